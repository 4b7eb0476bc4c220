"""The messages that actors send each other; the table of who sends which to whom is in `actors/__init__.py`.

Commands are imperative, facts are past participles. Treated as immutable once sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pykka

from quorate.protocol import Reply, Request
from storage.disk import DiskFile
from storage.entry import StoredEntry
from storage.journal_writer import Errand, Segment, Write
from storage.log_store import TrimPlan, TrimRows
from storage.state import ShardState


class Client(Protocol):
    """Where a reply goes: a connection, or the sender of a datagram."""

    def answer(self, order: int, reply: Reply) -> None:
        """Send `reply` to the request that came with `order`."""


class Call(msgspec.Struct, gc=False):
    """A request on its way: who asked, and the `order` by which its client knows which request is answered.

    The answer goes to the actor `reply_to`; it should not be larger than `reply_bytes_max`, but for one message.
    `is_single`: its client has this call alone, and is not said to be gone. `returns`: how often it came back undone.
    """

    request: Request
    client: Client
    order: int
    reply_to: "pykka.ActorRef[Any]"
    reply_bytes_max: int = 4 << 20
    is_single: bool = False
    returns: int = 0


Answer = tuple[Call, Reply]
"""A reply behind the call that it answers."""


@dataclass(slots=True)
class Execute:
    """Do these requests; all that one turn of the loop read."""

    calls: list[Call]


@dataclass(slots=True)
class Answered:
    """These requests are done."""

    answers: list[Answer]


@dataclass(slots=True)
class ClientGone:
    """Nobody reads this client's replies any more: consumers that wait for it need no message."""

    client: Client


@dataclass(slots=True)
class Append:
    """The leader's next entries."""

    vote_id: int
    entries: list[StoredEntry]


@dataclass(slots=True)
class WriteEntries:
    """Make these entries (and cuts) durable, in order."""

    entries: list[StoredEntry]
    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class EntriesWritten:
    """The first `entry_count` entries since the start are durable here.

    The journal has `room_bytes` more without asking for space.
    """

    entry_count: int
    room_bytes: int


@dataclass(slots=True)
class JournalBlocked:
    """Entries wait: the journal needs space for a segment, and the disk is full. It goes on when there is some."""

    reason: str


@dataclass(slots=True)
class LogAdvanced:
    """The log is on disk here up to `stored`, and settled up to `committed`.

    `replicas`: at least n nodes have the records up to the n-th of these. `leased_until`: no other node leads before
    (monotonic seconds). `tail_bytes` wait for LMDB. `disk_full`: the last checkpoint found no space.
    """

    stored: int
    committed: int
    replicas: tuple[int, ...]
    leased_until: float
    tail_bytes: int
    room_bytes: float
    disk_full: str | None


@dataclass(slots=True)
class Apply:
    """These entries are committed; they follow what was applied before."""

    entries: list[StoredEntry]


@dataclass(slots=True)
class Promoted:
    """This node leads. `entries` are in its log, but not known to be committed yet."""

    vote_id: int
    entries: list[StoredEntry]


@dataclass(slots=True)
class Deposed:
    """This node does not lead any more; its log ends at `log_end`. `leader` is who does, if that is known."""

    log_end: int
    leader: int | None


@dataclass(slots=True)
class ReloadNeeded:
    """The state holds changes that never got into the log: it must be made anew from the disk."""


@dataclass(slots=True)
class StateDropped:
    """What was applied is not part of the log any more; a fresh state will come."""


@dataclass(slots=True)
class LoadState:
    """Make a state out of what LMDB has."""

    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class StateLoaded:
    """A fresh state, of what is committed up to its trans_id."""

    state: ShardState


@dataclass(slots=True)
class WriteBytes:
    """Put these bytes on the disk."""

    write: Write
    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class BytesWritten:
    """They are there."""

    write: Write


@dataclass(slots=True)
class FlushFile:
    """Flush what was written to `file`, which is everything before `end`."""

    file: DiskFile
    end: int
    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class FileFlushed:
    """Everything in `file` before `end` is on disk."""

    file: DiskFile
    end: int


@dataclass(slots=True)
class RunErrand:
    """Make a segment ready."""

    errand: Errand
    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class SegmentReady:
    """The next segment can be written."""

    segment: Segment


@dataclass(slots=True)
class ErrandFailed:
    """There was no space for a segment."""

    reason: str


@dataclass(slots=True)
class Recycle:
    """LMDB has all records up to `trans_id`: the journal need not keep them."""

    trans_id: int


@dataclass(slots=True)
class Checkpoint:
    """Store these committed entries in LMDB."""

    entries: list[StoredEntry]
    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class Checkpointed:
    """LMDB has all records up to `trans_id`, and the log begins behind `trimmed`."""

    trans_id: int
    trimmed: int


@dataclass(slots=True)
class CheckpointFailed:
    """There was no space for the checkpoint; it is tried again with the next one."""

    reason: str


@dataclass(slots=True)
class DescribeRows:
    """Say what these messages and queues are now, so that the log's head can be trimmed."""

    plan: TrimPlan


@dataclass(slots=True)
class RowsDescribed:
    """What the plan's messages and queues were after record `as_of`, which is committed."""

    plan: TrimPlan
    rows: TrimRows
    as_of: int


@dataclass(slots=True)
class LogAsked:
    """A client wants to read the log."""

    call: Call


@dataclass(slots=True)
class ReadLog:
    """Read the entries behind record `after` from LMDB for `call`."""

    call: Call
    after: int
    count: int
    bytes_max: int
    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class LogRead:
    """The entries that a `ReadLog` asked for."""

    call: Call
    after: int
    count: int
    entries: Sequence[bytes]


@dataclass(slots=True)
class Continue:
    """To itself: go on with work that was cut into pieces."""


@dataclass(slots=True)
class CheckpointDue:
    """To itself: entries have gathered for long enough."""


@dataclass(slots=True)
class TimePassed:
    """To itself: the moment has come that a timer was set for."""


@dataclass(slots=True)
class Reconfigure:
    """Take over the limits that can change while running."""

    limits: Any


@dataclass(slots=True)
class Stop:
    """Finish what is open, make it durable, and say `Stopped`."""

    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class Stopped:
    """Nothing is open here any more."""

    actor: str
