"""Making entries and votes durable, by a lane.

| message | from | to | meaning |
|---|---|---|---|
| WriteBytes, BytesWritten | Replicator, DiskLane | the other | a write, and that it is durable |
| FlushFile, FileFlushed | Replicator, DiskLane | the other | a flush, and that it is done |
| RunErrand, SegmentReady, ErrandFailed | Replicator, DiskLane | the other | make a segment ready; it is; no space |
| SaveIdentity, IdentitySaved | Elector, DiskLane | the other | a vote is to be durable; it is |
"""

import msgspec

from actors.messages.mailbox import Mailbox
from storage.disk import DiskFile
from storage.journal_writer import Segment, SegmentTask, Write
from storage.vote_file import Identity


class WriteBytes(msgspec.Struct):
    """Put these bytes on the disk. A lane serves several actors, so each request says who is to be told."""

    write: Write
    reply_to: "Mailbox[BytesWritten]"


class BytesWritten(msgspec.Struct):
    """The write is durable."""

    write: Write


class FlushFile(msgspec.Struct):
    """Flush what was written to `file`, which is everything before `end`."""

    file: DiskFile
    end: int
    reply_to: "Mailbox[FileFlushed]"


class FileFlushed(msgspec.Struct):
    """Everything in `file` before `end` is on disk."""

    file: DiskFile
    end: int


class RunErrand(msgspec.Struct):
    """Make a segment ready."""

    errand: SegmentTask
    reply_to: "Mailbox[SegmentReady | ErrandFailed]"


class SegmentReady(msgspec.Struct):
    """The next segment can be written."""

    segment: Segment


class ErrandFailed(msgspec.Struct):
    """There was no space for a segment."""

    reason: str


class SaveIdentity(msgspec.Struct):
    """Make a vote durable."""

    identity: Identity
    reply_to: "Mailbox[IdentitySaved]"


class IdentitySaved(msgspec.Struct):
    """That identity is on disk: what depends on it may be told."""

    identity: Identity
