"""The actors of a worker process and the messages between them; each is one concern.

| message | from | to | meaning |
|---|---|---|---|
| Execute | Listener | Router, and from there QueueOwner | do these requests, all that one turn of the loop read |
| ClientGone | Listener | Router, QueueOwner | keep no message waiting for this client |
| Answered | QueueOwner | Listener or Router, whoever the call names | these requests are done |
| Append | QueueOwner | LogWriter | make these entries durable |
| Appended, AppendRefused | LogWriter | QueueOwner | they are; or the disk is full, and they are not |
| Flush | QueueOwner | LogWriter | flush = "interval": flush now |
| Checkpoint | QueueOwner | Checkpointer | store these committed entries in LMDB |
| Checkpointed, CheckpointFailed | Checkpointer | QueueOwner | they are there, and where the log begins; or no space |
| Recycle | QueueOwner | LogWriter | the journal need not keep what LMDB has |
| DescribeRows | Checkpointer | QueueOwner | what are these messages now? The log's head is to be trimmed |
| RowsDescribed | QueueOwner | Checkpointer | that is what they are, once it is committed |
| ReadLog, LogRead | QueueOwner, Checkpointer | the other | entries from LMDB for a log request |
| Reconfigure | the worker | Listener, Router, QueueOwner | limits that changed |
| Stop, Stopped | the worker, Listener, Router, QueueOwner | the next, and back | finish what is open, make it durable |

The life of a produce: a socket's bytes become a `Request` in net; the Listener gathers all that one turn read and
tells the Router, which hands it to the QueueOwner. Its broker makes the record, applies it, and parks the reply. The
owner encodes all records that gathered as one entry and tells the LogWriter, on its thread, which writes and
flushes; `Appended` comes back, the broker commits: the message may be delivered now, the reply is free, and goes to
the Listener, which writes it to the client. Later the Checkpointer stores the entry in LMDB.

`machine and host`: broker, delivery, ledger and queries decide, without I/O; the actors carry out. `worker` is where
real sockets, clocks and disks meet the actors; the simulator in tests/simulation is the only other such place.
"""
