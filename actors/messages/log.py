"""Messages: log."""

from dataclasses import dataclass

from storage.entry import StoredEntry
from storage.records import Record
from storage.state import ShardState


@dataclass(slots=True)
class Append:
    """The leader's next entries."""

    vote_id: int
    entries: list[StoredEntry]


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
class StateLoaded:
    """A fresh state, of what is committed up to its trans_id."""

    state: ShardState


@dataclass(slots=True)
class Propose:
    """Put this record into the log."""

    vote_id: int
    record: Record


@dataclass(slots=True)
class Drain:
    """Take nothing new on, and say `Drained` when all is committed; `Undrain` takes it back."""

    vote_id: int


@dataclass(slots=True)
class Undrain:
    """Serve again."""


@dataclass(slots=True)
class Drained:
    """All that was open is committed."""

    vote_id: int
