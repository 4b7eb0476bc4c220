"""Making entries and votes durable.

| message | from | to | meaning |
|---|---|---|---|
| WriteEntries | Replicator | LogWriter | make these durable, in order |
| EntriesWritten | LogWriter | Replicator | so many since the start are durable here |
| JournalSpace | LogWriter | Replicator | the disk has no space for the journal's next segment; it has again |
| Recycle | Replicator | LogWriter | LMDB has these: the journal need not keep them |
| WriteBytes, BytesWritten | LogWriter, DiskLane | the other | a write, and that it is durable |
| FlushFile, FileFlushed | LogWriter, DiskLane | the other | a flush, and that it is done |
| RunErrand, SegmentReady, ErrandFailed | LogWriter, DiskLane | the other | make a segment ready; it is; no space |
| SaveIdentity, IdentitySaved | Elector, DiskLane | the other | a vote is to be durable; it is |
"""

from typing import Any

import msgspec
import pykka

from storage.disk import DiskFile
from storage.entry import StoredEntry
from storage.journal_writer import Errand, Segment, Write
from storage.vote_file import Identity


class WriteEntries(msgspec.Struct):
    """Make these entries (and cuts) durable, in order.

    `others_wait`: they are also on their way to other nodes, so the loop has something to do meanwhile.
    """

    entries: list[StoredEntry]
    others_wait: bool = True


class EntriesWritten(msgspec.Struct):
    """The first `entry_count` entries since the start are durable here.

    The journal has `room_bytes` more without asking for space.
    """

    entry_count: int
    room_bytes: int


class JournalSpace(msgspec.Struct):
    """`shortage`: why there is no space for the journal's next segment, None when it is there after all.

    The journal has `room_bytes` until it needs that segment; with 0 entries wait for it.
    """

    room_bytes: int
    shortage: str | None


class Recycle(msgspec.Struct):
    """LMDB has all records up to `trans_id`: the journal need not keep them."""

    trans_id: int


class WriteBytes(msgspec.Struct):
    """Put these bytes on the disk. A lane serves several actors, so each request says who is to be told."""

    write: Write
    reply_to: "pykka.ActorRef[Any]"


class BytesWritten(msgspec.Struct):
    """The write is durable."""

    write: Write


class FlushFile(msgspec.Struct):
    """Flush what was written to `file`, which is everything before `end`."""

    file: DiskFile
    end: int
    reply_to: "pykka.ActorRef[Any]"


class FileFlushed(msgspec.Struct):
    """Everything in `file` before `end` is on disk."""

    file: DiskFile
    end: int


class RunErrand(msgspec.Struct):
    """Make a segment ready."""

    errand: Errand
    reply_to: "pykka.ActorRef[Any]"


class SegmentReady(msgspec.Struct):
    """The next segment can be written."""

    segment: Segment


class ErrandFailed(msgspec.Struct):
    """There was no space for a segment."""

    reason: str


class SaveIdentity(msgspec.Struct):
    """Make a vote durable."""

    identity: Identity
    reply_to: "pykka.ActorRef[Any]"


class IdentitySaved(msgspec.Struct):
    """That identity is on disk: what depends on it may be told."""

    identity: Identity
