"""LMDB behind the log: what only the Checkpointer stores and reads.

| message | from | to | meaning |
|---|---|---|---|
| Checkpoint | Replicator | Checkpointer | store these committed entries |
| Checkpointed, CheckpointFailed | Checkpointer | Replicator | LMDB has them; no space |
| DescribeHead | Checkpointer | QueueOwner | the log's head is to be trimmed: what is it about? |
| HeadDescribed | QueueOwner | Checkpointer | that is what its messages and queues are, once it is committed |
| ReadersMoved | QueueOwner | Checkpointer | the log's named readers are there now |
| ReadLog, LogRead | Replicator, Checkpointer | the other | entries for a client's log request |
| ReadRaw, RawRead | Replicator, Checkpointer | the other | entries as they are stored, for a client's log request |
| ReadEntries, EntriesRead | Replicator, Checkpointer | the other | entries for a follower that pulls |
| ReadSnapshot, SnapshotRead | Replicator, Checkpointer | the other | rows for a follower behind the log's head |
| StagePart, PartStaged | Replicator, Checkpointer | the other | keep a part of a snapshot; it is kept |
| LoadState | Replicator | Checkpointer | make a state out of what LMDB has; `StateLoaded` answers |
"""

from collections.abc import Sequence

import msgspec

from actors.messages.call import Call
from storage.entry import StoredEntry
from storage.log_store import SnapshotPart
from storage.records import FIRST_LEVEL, ReaderPosition
from storage.trimming import Trim


class Checkpoint(msgspec.Struct):
    """Store these committed entries in LMDB, as all members of a cluster at feature level `level` can read it."""

    entries: list[StoredEntry]
    level: int = FIRST_LEVEL


class Checkpointed(msgspec.Struct):
    """LMDB has all records up to `trans_id`, and the log begins behind `trimmed`."""

    trans_id: int
    trimmed: int


class CheckpointFailed(msgspec.Struct):
    """There was no space for the checkpoint; it is tried again with the next one."""

    reason: str


class DescribeHead(msgspec.Struct):
    """Say what the messages and queues of the log's first stretch are now: it begins behind record `trimmed`.

    It may go if it ends at or before record `until`.
    """

    trimmed: int
    until: int


class HeadDescribed(msgspec.Struct):
    """What messages and queues were at or before record `as_of`, which is committed.

    `trim` None: the first stretch goes on behind the record up to which it was asked for.
    """

    asked: DescribeHead
    trim: Trim | None
    as_of: int


class ReadLog(msgspec.Struct):
    """Read the entries behind record `after` from LMDB for `call`."""

    call: Call
    after: int
    count: int
    bytes_max: int


class LogRead(msgspec.Struct):
    """The entries that a `ReadLog` asked for."""

    call: Call
    after: int
    count: int
    entries: Sequence[bytes]


class ReadersMoved(msgspec.Struct):
    """Where the log's named readers are, all of them, as committed."""

    readers: dict[str, ReaderPosition]


class ReadRaw(msgspec.Struct):
    """Read the entries behind record `after` from LMDB for `call`, until `count` records or `bytes_max` are passed."""

    call: Call
    after: int
    count: int
    bytes_max: int


class RawRead(msgspec.Struct):
    """The entries that a `ReadRaw` asked for, which hold the records up to `last_trans_id`."""

    call: Call
    entries: list[bytes]
    last_trans_id: int


class ReadEntries(msgspec.Struct):
    """Read what follows record `after` for a node that pulls."""

    node_id: int
    after: int
    records_max: int
    bytes_max: int


class EntriesRead(msgspec.Struct):
    """The entries that a `ReadEntries` asked for."""

    node_id: int
    after: int
    entries: list[bytes]


class ReadSnapshot(msgspec.Struct):
    """Read the snapshot's rows behind `cursor` for a node."""

    node_id: int
    cursor: bytes


class SnapshotRead(msgspec.Struct):
    """The rows that a `ReadSnapshot` asked for."""

    node_id: int
    after_cursor: bytes
    part: SnapshotPart


class StagePart(msgspec.Struct):
    """Keep a part of a snapshot that node `source` sent; the last one makes it count."""

    part: SnapshotPart
    source: int
    is_first: bool


class PartStaged(msgspec.Struct):
    """The part is kept; `refused`: there was no space, and it must be asked for again."""

    part: SnapshotPart
    source: int
    refused: str | None = None


class LoadState(msgspec.Struct):
    """Make a state out of what LMDB has."""
