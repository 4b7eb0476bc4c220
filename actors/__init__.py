"""The actors of a worker process and the messages between them; each is one concern.

| message | from | to | meaning |
|---|---|---|---|
| Execute | Listener | Router, and from there QueueOwner | do these requests, all that one turn of the loop read |
| ClientGone | Listener | Router, QueueOwner | keep no message waiting for this client |
| Answered | whoever did it | Listener or Router, whoever the call names | these requests are done |
| Returned | QueueOwner | Router | these were not done: this node does not lead |
| Append | QueueOwner | Replicator | the leader's next entries |
| LogAdvanced | Replicator | QueueOwner | how far the log is on disk here, and committed |
| Apply | Replicator | QueueOwner | a follower: these entries are committed |
| Promoted, Deposed | Replicator | QueueOwner | this node leads; it does not any more |
| StateDropped, StateLoaded, ReloadNeeded | Replicator, QueueOwner | the other | a state that is not the log's goes |
| Propose | Replicator | QueueOwner | put this change of the members into the log |
| Drain, Undrain, Drained | Replicator, Router, QueueOwner | the next | settle what is open: another node is to lead |
| WriteEntries, EntriesWritten, JournalBlocked | Replicator, LogWriter | the other | make durable; done; disk full |
| WriteBytes, FlushFile, RunErrand, and their answers | LogWriter, DiskLane | the other | what the disk is to do |
| SaveIdentity, IdentitySaved | Elector, DiskLane | the other | make a vote durable |
| AskVotes, CastVote, Follow, TakeLead | Elector | Replicator | what was decided about who leads |
| VoteAsked, VoteGiven, LeaderHeard, VoteIdSeen, QuorumHeard, TakeOverAsked, VotersChanged, ClusterFounded |
  Replicator | Elector | what was heard about who leads |
| LeaderChanged | Replicator | Router | where requests go now |
| SendPeers, CutPeer, Acquaintances | Replicator, Router | Peers | say this to nodes; whom to know |
| PeerSaid, PeerUp, PeerDown | Peers | Replicator, Router | what nodes say; their links |
| Checkpoint, Checkpointed, CheckpointFailed, Recycle | Replicator, Checkpointer, LogWriter | the next | committed
  entries go to LMDB, and the journal need not keep them |
| DescribeRows, RowsDescribed | Checkpointer, QueueOwner | the other | what are these now? The head is trimmed |
| ReadLog, ReadEntries, ReadSnapshot, StagePart, LoadState, and their answers | Replicator, Checkpointer | the other |
  what only LMDB has |
| LogAsked, ClusterAsked | QueueOwner | Replicator | requests that are about the log or the cluster |
| HandOver, HandedOver | the worker, Replicator | the other | let another node lead before this one stops |
| Reconfigure | the worker | Listener, Router, QueueOwner | limits that changed |
| Stop, Stopped | the worker, Listener, Router, QueueOwner, Replicator | the next, and back | finish what is open |

The life of a produce on a single node: a socket's bytes become a `Request` in net; the Listener gathers all that one
turn read and tells the Router, which hands it to the QueueOwner. Its broker makes the record, applies it, and parks
the reply. The owner encodes all records that gathered as one entry and tells the Replicator, and that the LogWriter,
whose DiskLane writes durably on its thread; `EntriesWritten` comes back, a majority of one has it, `LogAdvanced` tells
the owner: the message may be delivered now, the reply is free, and goes to the Listener, which writes it to the
client. Later the Checkpointer stores the entry in LMDB. What other nodes have to do with it is in docs/cluster.md.

`machine and host`: broker, delivery, ledger, queries, election, replication, membership, routing and the like decide,
without I/O; the actors carry out. `worker` is where real sockets, clocks and disks meet the actors; the simulator in
tests/simulation is the only other such place.
"""
