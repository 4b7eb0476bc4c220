"""The shard's owner and its log.

| message | from | to | meaning |
|---|---|---|---|
| Append | QueueOwner | Replicator | the leader's next entries |
| LogAdvanced | Replicator | QueueOwner | how far the log is durable here, and committed |
| Apply | Replicator | QueueOwner | a follower: these entries are committed |
| Promoted, Deposed | Replicator | QueueOwner | this node leads; it does not any more |
| LogCut | Replicator | QueueOwner | what was applied is not all part of the log any more |
| ReloadNeeded | QueueOwner | Replicator | what the log does not hold can't be undone |
| StateDropped | Replicator | QueueOwner | the log is another one |
| StateGone | QueueOwner | Replicator | all of it is let go of: there is memory for a fresh one |
| StateLoaded | Checkpointer | Replicator, QueueOwner | a fresh state |
| Propose | Replicator | QueueOwner | put this change of the members into the log |
| Drain, Undrain | Replicator | Router, QueueOwner | settle what is open, another is to lead; serve on |
| Drained | QueueOwner | Replicator | all that was open is committed |
"""

import msgspec

from storage.entry import StoredEntry
from storage.records import Change
from storage.state import ShardState


class Append(msgspec.Struct):
    """The leader's next entries. `is_counted`: somebody waits for them on more or fewer nodes than a majority."""

    vote_id: int
    entries: list[StoredEntry]
    is_counted: bool = False


class LogAdvanced(msgspec.Struct, kw_only=True):
    """The log is durable here up to `durable`, committed up to `committed`, and begins behind `trimmed`.

    `replicas`: at least n nodes have the records up to the n-th of these. `leased_until`: no other node leads before;
    `confirmed_at`: a majority took this node for the leader then (both monotonic seconds). `tail_bytes` wait for LMDB.
    `disk_full`: why nothing can be stored now, None while it can. `heard`: so many voters were heard within an election
    time-out, this one included.
    """

    durable: int
    committed: int
    trimmed: int
    replicas: tuple[int, ...]
    leased_until: float
    confirmed_at: float
    tail_bytes: int
    room_bytes: float
    disk_full: str | None
    heard: int = 1


class Apply(msgspec.Struct):
    """These entries are committed; they follow what was applied before."""

    entries: list[StoredEntry]


class Promoted(msgspec.Struct):
    """This node leads. `entries` are in its log, but not known to be committed yet."""

    vote_id: int
    entries: list[StoredEntry]


class Deposed(msgspec.Struct):
    """This node does not lead any more.

    Its log ends at `log_end`, and is committed up to `committed`. `leader` is who does lead, if that is known.
    """

    log_end: int
    committed: int
    leader: int | None


class LogCut(msgspec.Struct):
    """The log ends behind record `after` now, and goes on with another leader's."""

    after: int


class ReloadNeeded(msgspec.Struct):
    """The state holds what the log does not, and that can't be undone: it must be made anew from the disk."""


class StateDropped(msgspec.Struct):
    """The state is not this log's; a fresh one will come."""


class StateGone(msgspec.Struct):
    """The dropped state is let go of, which goes in pieces; only then is there to be another: two would not fit."""


class StateLoaded(msgspec.Struct):
    """A fresh state, of what is committed up to its trans_id."""

    state: ShardState


class Propose(msgspec.Struct):
    """Put this record into the log."""

    vote_id: int
    record: Change


class Drain(msgspec.Struct):
    """Take nothing new on, and say `Drained` when all is committed; `Undrain` takes it back."""

    vote_id: int


class Undrain(msgspec.Struct):
    """Serve again: this node leads on."""


class Drained(msgspec.Struct):
    """All that was open is committed."""

    vote_id: int
