"""What nodes say to each other: msgpack arrays whose first item is the kind. The table is in docs/cluster.md.

Every message that is about the log names the `vote_id` it is said under. A trans_id with the vote_id that made it
names a place in a log; an entry is the bytes that the leader encoded once. `sent_at` is a moment of the sender's own
monotonic clock (seconds), which comes back as `echo`; -1 while there is none.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from quorate.protocol import BATCH_MAX, Request
from quorate.shards import ID_SHARDS, TRANS_ID_MAX

PEER_MAJOR: Final = 3
PEER_MINOR: Final = 2
KNOWS_HALF_CLOSED: Final = 2
"""From this minor version on nodes know `ClientHalfClosed`; others are told that such a client has left."""

NUMBER_MAX: Final = 2**53 - 1
NODES_MAX: Final = 1_000_000
Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
"""A vote_id, a count: whatever lies beyond is no message, and cuts the link."""

TransId = Annotated[int, Meta(ge=0, le=TRANS_ID_MAX)]
"""A record's number, from which a message's id can still be made."""

Moment = Annotated[float, Meta(ge=-1, le=1e15)]
"""A moment of somebody's monotonic clock (s). Below 0: none."""

ENTRIES_MAX: Final = 200_000
"""Entries, rows or calls in one message. What they may take together, the frame's limit says."""

NodeId = Annotated[int, Meta(ge=1, le=NODES_MAX)]
DrawnNumber = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A cluster's, a disk's, or a session's number: drawn at random."""

Shard = Annotated[int, Meta(ge=0, le=ID_SHARDS - 1)]
Shards = Annotated[int, Meta(ge=1, le=ID_SHARDS)]

Principal = Annotated[str, Meta(max_length=64)]
Host = Annotated[str, Meta(max_length=255)]
Port = Annotated[int, Meta(ge=0, le=65535)]


class Listening(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A port for clients of a protocol, as they are told to dial it."""

    protocol: Annotated[str, Meta(max_length=32)]
    host: Host
    port: Port


LISTENERS_MAX: Final = 64


class Hello(msgspec.Struct, array_like=True, tag=1, gc=False):
    """The first message of both sides of a link. A `cluster_id` of 0: in none yet. `to`: who is expected there.

    `host` and `port` are where its sender can be dialled by nodes, `client_host` and `client_port` by clients. `level`
    is the feature level that it understands. Said again over an open link when any of it has changed.

    The sender is the worker of shard `shard` of `shards`, and expects that of `to_shard` there; `direct_port` is where
    clients reach it alone, 0: nowhere. `listeners` are all its ports for clients; `is_leaving`: they are to go to other
    nodes. `is_removed`: who is expected there is no member any more; the link is kept until its clients are answered.
    An older version says none of them, and passes over all.
    """

    major: Number
    minor: Number
    node_type: Number
    node_id: NodeId
    to: NodeId
    cluster_id: DrawnNumber
    disk_id: DrawnNumber
    host: Host
    port: Port
    client_host: Host = ""
    client_port: Port = 0
    level: Number = 1
    version: Annotated[str, Meta(max_length=64)] = ""
    shard: Shard = 0
    shards: Shards = 1
    to_shard: Shard = 0
    direct_port: Port = 0
    listeners: Annotated[list[Listening], Meta(max_length=LISTENERS_MAX)] = []
    is_leaving: bool = False
    is_removed: bool = False


class Refused(msgspec.Struct, array_like=True, tag=2, gc=False):
    """Why the other side's hello is not accepted; the link closes. `is_removed`: it was removed from the cluster."""

    reason: str
    is_removed: bool = False


class VoteRequest(msgspec.Struct, array_like=True, tag=3, gc=False):
    """Candidate to all voters: its log ends at record `trans_id`, made by `end_vote_id`. Vote for me in `vote_id`?

    `is_pre`: would you? Nothing is promised. `is_forced`: the leader itself asked for this.
    """

    vote_id: Number
    is_pre: bool
    is_forced: bool
    end_vote_id: Number
    trans_id: TransId


class Vote(msgspec.Struct, array_like=True, tag=4, gc=False):
    """The answer; where it is no, `vote_id` is the voter's own."""

    vote_id: Number
    is_pre: bool
    is_granted: bool


class Push(msgspec.Struct, array_like=True, tag=5, gc=False):
    """Leader to follower: `entries` follow the record `after`, made by `after_vote_id`; `committed` is settled.

    Without entries it is a heartbeat. `is_pulled`: the answer to a pull; `is_end`: the log ends with it.
    """

    vote_id: Number
    after: TransId
    after_vote_id: Number
    entries: Annotated[list[bytes], Meta(max_length=ENTRIES_MAX)]
    committed: TransId
    sent_at: Moment
    is_pulled: bool = False
    is_end: bool = False


class Stored(msgspec.Struct, array_like=True, tag=6, gc=False):
    """Follower to leader: my disk agrees with your log up to record `trans_id`. `echo`: your latest `sent_at`.

    `is_full`: my disk takes nothing more for now, so I should not lead. `promise_s`: from `echo` on I vote for nobody
    else for so long by my clock (0: a node of before says nothing, and is taken to have the leader's time-out).
    `lacks_blocks`: some messages of topics are on their way to me, so another should rather lead.
    """

    vote_id: Number
    trans_id: TransId
    echo: Moment
    is_full: bool = False
    promise_s: Moment = 0.0
    lacks_blocks: bool = False


class Pull(msgspec.Struct, array_like=True, tag=7, gc=False):
    """Follower to leader: send what follows record `after`, where my log ends, at most about `records_max` records."""

    vote_id: Number
    after: TransId
    after_vote_id: Number
    records_max: Number


class Diverged(msgspec.Struct, array_like=True, tag=8, gc=False):
    """Leader to follower: our logs can't agree behind record `up_to`; drop what is there, and pull again.

    `after` and `after_vote_id` are the pull's: it holds only while the follower's log still ends there.
    """

    vote_id: Number
    up_to: TransId
    after: TransId
    after_vote_id: Number


class SnapshotNeeded(msgspec.Struct, array_like=True, tag=9, gc=False):
    """Leader to follower: my log begins behind record `trimmed`, which you lack; pull a snapshot first."""

    vote_id: Number
    trimmed: TransId


class SnapshotPull(msgspec.Struct, array_like=True, tag=10, gc=False):
    """Follower to leader: send the snapshot's rows behind `cursor` (empty: from its beginning)."""

    vote_id: Number
    trimmed: TransId
    cursor: bytes


SECTIONS_MAX: Final = 64
"""Of `storage.sections`: far more than there are."""


class SnapshotRows(msgspec.Struct, array_like=True, tag=11, gc=False):
    """Leader to follower: rows of what stands before the log; fields as `storage.log_store.SnapshotPart`.

    `sections`: those behind the members and the readers, which came first.
    """

    vote_id: Number
    trimmed: TransId
    trimmed_vote_id: Number
    members: bytes
    rows: Annotated[list[tuple[bytes, bytes]], Meta(max_length=ENTRIES_MAX)]
    cursor: bytes
    is_last: bool
    after_cursor: bytes
    readers: bytes = b""
    sections: Annotated[list[bytes], Meta(max_length=SECTIONS_MAX)] = []


class TakeOver(msgspec.Struct, array_like=True, tag=12, gc=False):
    """Leader to a follower that has everything: be elected now; I serve nobody meanwhile."""

    vote_id: Number


class ForwardedOperation(msgspec.Struct, array_like=True, gc=False):
    """An operation of a transaction, its payloads beside it."""

    request: Request
    payloads: Annotated[list[bytes | None], Meta(max_length=BATCH_MAX + 1)]


class ForwardedCall(msgspec.Struct, array_like=True, gc=False):
    """A client's request, its payloads beside it.

    `serial` numbers the calls of a node upwards; `client` is the client's number, 0 of one that has this call alone.
    `principal` is who asks, as the node that it asked knows it: what that one may do, the leader looks up itself.
    `operations`: those of a transaction.
    """

    serial: Number
    client: Number
    reply_bytes_max: Number
    request: Request
    payloads: Annotated[list[bytes | None], Meta(max_length=BATCH_MAX + 1)]
    principal: Principal = ""
    operations: Annotated[list[ForwardedOperation], Meta(max_length=BATCH_MAX)] = []


class Forward(msgspec.Struct, array_like=True, tag=13, gc=False):
    """To the leader: do these requests for clients of mine. `session` is drawn anew whenever the sender starts."""

    session: DrawnNumber
    calls: Annotated[list[ForwardedCall], Meta(min_length=1, max_length=ENTRIES_MAX)]


class ForwardAnswers(msgspec.Struct, array_like=True, tag=14, gc=False):
    """Back: these are done; each with its reply: see `net.peers.forwarding`.

    `session` is the one that they were forwarded in: an answer to a node's earlier life is for nobody (0: not said).
    """

    answers: Annotated[list[tuple[Number, tuple[int, bytes, list[bytes]]]], Meta(max_length=ENTRIES_MAX)]
    session: DrawnNumber = 0


class ForwardReturned(msgspec.Struct, array_like=True, tag=15, gc=False):
    """Back: none of these was looked at, since this node does not lead. `session`: as in `ForwardAnswers`."""

    serials: Annotated[list[Number], Meta(max_length=ENTRIES_MAX)]
    session: DrawnNumber = 0


class ClientLeft(msgspec.Struct, array_like=True, tag=16, gc=False):
    """To the leader: nobody reads this client's replies any more."""

    client: Number


class ClientHalfClosed(msgspec.Struct, array_like=True, tag=21, gc=False):
    """To the leader: this client asks nothing more, and may still read: it waits for no message any more."""

    client: Number


class ShardLeader(msgspec.Struct, array_like=True, gc=False):
    """Node `leader` was elected to lead shard `shard` under `vote_id`; clients reach it at `host` and `port`."""

    shard: Shard
    vote_id: Number
    leader: NodeId
    host: Host
    port: Port


class ShardLeaders(msgspec.Struct, array_like=True, tag=17, gc=False):
    """Between workers, of one node and of one shard: who leads which shard, as far as the sender knows."""

    leaders: Annotated[list[ShardLeader], Meta(max_length=ID_SHARDS)]


class RootMembers(msgspec.Struct, array_like=True, tag=18, gc=False):
    """Between workers, of one node and of one shard: the members that shard 0's log has settled, encoded.

    `committed`: that log is known to be committed so far. What is said with a higher one is as new, or newer.
    """

    committed: TransId
    members: bytes


class StillThere(msgspec.Struct, array_like=True, tag=19, gc=False):
    """Back: are the clients of these forwarded calls still there? They are not done before that is said, nor late."""

    serials: Annotated[list[Number], Meta(max_length=ENTRIES_MAX)]
    session: DrawnNumber


class StillHere(msgspec.Struct, array_like=True, tag=20, gc=False):
    """To the leader: the clients of these calls are there, so they can be done now."""

    serials: Annotated[list[Number], Meta(max_length=ENTRIES_MAX)]
    session: DrawnNumber


class BlocksPull(msgspec.Struct, array_like=True, tag=22, gc=False):
    """To any member: send the blocks of a topic's partition from that on which holds message `offset`, before `until`.

    `number` is the topic's. What is said of blocks is about no vote: they are committed, and never change.
    """

    number: Number
    partition: Number
    offset: Number
    until: Number


class BlocksRows(msgspec.Struct, array_like=True, tag=23, gc=False):
    """Back: blocks that were asked for so, as rows of LMDB, in order. Nothing is said where there is none."""

    number: Number
    partition: Number
    offset: Number
    until: Number
    rows: Annotated[list[tuple[bytes, bytes]], Meta(max_length=ENTRIES_MAX)]


PeerMessage = (
    Hello
    | Refused
    | VoteRequest
    | Vote
    | Push
    | Stored
    | Pull
    | Diverged
    | SnapshotNeeded
    | SnapshotPull
    | SnapshotRows
    | TakeOver
    | Forward
    | ForwardAnswers
    | ForwardReturned
    | ClientLeft
    | ShardLeaders
    | RootMembers
    | StillThere
    | StillHere
    | ClientHalfClosed
    | BlocksPull
    | BlocksRows
)

ASKS: Final = (Forward, ClientLeft, ClientHalfClosed, StillHere)
"""What is about the receiver's own shard."""

BULK: Final = (Forward, ForwardAnswers, ClientLeft, ClientHalfClosed)
"""What holds clients' requests and replies, and so may be large: it waits while the link is full. That a client has
left or half-closed goes behind what it has asked: before it, that would wait for nobody, and take a message."""

ANSWERS: Final = (ForwardAnswers, ForwardReturned, StillThere)
NEWS: Final = (ShardLeaders, RootMembers)
"""What workers tell each other of shards and members."""
