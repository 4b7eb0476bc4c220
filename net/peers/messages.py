"""What nodes say to each other: msgpack arrays whose first item is the kind. The table is in docs/cluster.md.

Every message that is about the log names the `vote_id` it is said under. A trans_id with the vote_id that made it
names a place in a log; an entry is the bytes that the leader encoded once. `sent_at` is a moment of the sender's own
monotonic clock (seconds), which comes back as `echo`.
"""

from typing import Final

import msgspec

PEER_MAJOR: Final = 1
PEER_MINOR: Final = 0


class Hello(msgspec.Struct, array_like=True, tag=1, gc=False):
    """The first message of both sides of a link. A `cluster_id` of 0: in none yet. `to`: who is expected there.

    `host` and `port` are where its sender can be dialled.
    """

    major: int
    minor: int
    node_type: int
    node_id: int
    to: int
    cluster_id: int
    disk_id: int
    host: str
    port: int


class Refused(msgspec.Struct, array_like=True, tag=2, gc=False):
    """Why the other side's hello is not accepted; the link closes."""

    reason: str


class VoteRequest(msgspec.Struct, array_like=True, tag=3, gc=False):
    """Candidate to all voters: its log ends at record `trans_id`, made by `end_vote_id`. Vote for me in `vote_id`?

    `is_pre`: would you? Nothing is promised. `is_forced`: the leader itself asked for this.
    """

    vote_id: int
    is_pre: bool
    is_forced: bool
    end_vote_id: int
    trans_id: int


class Vote(msgspec.Struct, array_like=True, tag=4, gc=False):
    """The answer; where it is no, `vote_id` is the voter's own."""

    vote_id: int
    is_pre: bool
    is_granted: bool


class Push(msgspec.Struct, array_like=True, tag=5, gc=False):
    """Leader to follower: `entries` follow the record `after`, made by `after_vote_id`; `committed` is settled.

    Without entries it is a heartbeat. `is_pulled`: the answer to a pull; `is_end`: the log ends with it.
    """

    vote_id: int
    after: int
    after_vote_id: int
    entries: list[bytes]
    committed: int
    sent_at: float
    is_pulled: bool = False
    is_end: bool = False


class Stored(msgspec.Struct, array_like=True, tag=6, gc=False):
    """Follower to leader: my disk agrees with your log up to record `trans_id`. `echo`: your latest `sent_at`."""

    vote_id: int
    trans_id: int
    echo: float


class Pull(msgspec.Struct, array_like=True, tag=7, gc=False):
    """Follower to leader: send what follows record `after`, where my log ends, at most about `records_max` records."""

    vote_id: int
    after: int
    after_vote_id: int
    records_max: int


class Diverged(msgspec.Struct, array_like=True, tag=8, gc=False):
    """Leader to follower: our logs can't agree behind record `up_to`; drop what is there, and pull again.

    `after` and `after_vote_id` are the pull's: it holds only while the follower's log still ends there.
    """

    vote_id: int
    up_to: int
    after: int
    after_vote_id: int


class SnapshotNeeded(msgspec.Struct, array_like=True, tag=9, gc=False):
    """Leader to follower: my log begins behind record `trimmed`, which you lack; pull a snapshot first."""

    vote_id: int
    trimmed: int


class SnapshotPull(msgspec.Struct, array_like=True, tag=10, gc=False):
    """Follower to leader: send the snapshot's rows behind `cursor` (empty: from its beginning)."""

    vote_id: int
    trimmed: int
    cursor: bytes


class SnapshotRows(msgspec.Struct, array_like=True, tag=11, gc=False):
    """Leader to follower: rows of what stands before the log; fields as `storage.log_store.SnapshotPart`."""

    vote_id: int
    trimmed: int
    trimmed_vote_id: int
    members: bytes
    rows: list[tuple[bytes, bytes]]
    cursor: bytes
    is_last: bool
    after_cursor: bytes


class TakeOver(msgspec.Struct, array_like=True, tag=12, gc=False):
    """Leader to a follower that has everything: be elected now; I serve nobody meanwhile."""

    vote_id: int


class ForwardedCall(msgspec.Struct, array_like=True, gc=False):
    """A client's request, as JSON. `serial` numbers the calls of a link upwards; `client` is the client's number.

    A `client` of 0 has this call alone.
    """

    serial: int
    client: int
    reply_bytes_max: int
    request: bytes


class Forward(msgspec.Struct, array_like=True, tag=13, gc=False):
    """To the leader: do these requests for clients of mine. `session` is drawn anew whenever the sender starts."""

    session: int
    calls: list[ForwardedCall]


class ForwardAnswers(msgspec.Struct, array_like=True, tag=14, gc=False):
    """Back: these are done; each with its reply as JSON."""

    answers: list[tuple[int, bytes]]


class ForwardReturned(msgspec.Struct, array_like=True, tag=15, gc=False):
    """Back: none of these was looked at, since this node does not lead."""

    serials: list[int]


class ClientLeft(msgspec.Struct, array_like=True, tag=16, gc=False):
    """To the leader: nobody reads this client's replies any more."""

    client: int


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
)
