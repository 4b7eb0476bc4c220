"""Writing the journal: which bytes go where, and in which order they count. A machine; the disk is the host's.

Several writes may be under way at once, since a disk takes them so; they count in order: what `completed` gives is
durable together with all before it. The segment that comes next is made ready ahead of time, out of one whose
records LMDB has, so that switching to it costs nothing and needs no space.
"""

from collections import deque
from typing import Final, NamedTuple

from msgspec.structs import astuple

from storage.disk import UNFINISHED, DiskFile, Folder
from storage.entry import StoredEntry
from storage.journal import (
    FRAME_HEAD_BYTES,
    HEAD_BYTES,
    SUFFIX,
    frame,
    frame_size,
    head_bytes,
    is_empty_segment,
    is_segment_name,
    segment_name,
)

_fields_of: Final = astuple
assert StoredEntry.__struct_fields__ == ("first_trans_id", "last_trans_id", "vote_id", "data", "is_members", "read")


class Segment(NamedTuple):
    """A segment of so many bytes that has its head and is ready for frames."""

    number: int
    file: DiskFile
    size: int


class Write:
    """Bytes of so many `records` that go to `offset` of a segment.

    With them `entry_count` entries have been placed since the start. `begun_at`: a note of whoever writes it.
    """

    __slots__ = ("begun_at", "data", "entry_count", "file", "offset", "records")

    def __init__(self, file: DiskFile, offset: int, data: bytes, entry_count: int, records: int = 0) -> None:
        self.file = file
        self.offset = offset
        self.data = data
        self.entry_count = entry_count
        self.begun_at = 0.0
        self.records = records


class SegmentTask(NamedTuple):
    """What is to be done to the folder: make segment `number` out of `reuse` (or afresh), remove the files `remove`.

    The segment has `size` bytes. The oldest go first: an entry that was cut off must not outlive the later frame that
    says so.
    """

    number: int
    reuse: str | None
    remove: tuple[str, ...]
    size: int


def run_errand(folder: Folder, errand: SegmentTask, alignment: int) -> Segment:
    """Do it; doing it twice is the same as once. Blocks. Raises `DiskFullError` when there was no space for it."""
    names = set(folder.names())
    name = segment_name(errand.number)
    if errand.reuse is not None and errand.reuse in names:
        folder.rename(errand.reuse, name)
        names.add(name)
    for old in errand.remove:
        if old in names:
            folder.remove(old)
    file = folder.open(name) if name in names else folder.create(name, errand.size)
    if file.size() != errand.size:  # of another configuration, or made for one large entry
        file.close()
        file = folder.create(name, errand.size)
    file.write_at(0, head_bytes(errand.number, alignment))
    file.flush()
    return Segment(errand.number, file, errand.size)


def _segment_of(folder: Folder, name: str) -> Segment:
    file = folder.open(name)
    return Segment(int(name.removesuffix(SUFFIX)), file, file.size())


class JournalWriter:
    """Decides where entries go: `place`, `completed`, `recycle`. Made by `begin_journal`.

    With `writes_are_durable` False a write that is completed is only with the system, and `flushed` says what is on
    disk.
    """

    def __init__(
        self, segment_bytes: int, alignment: int, active: Segment, ready: Segment, *, writes_are_durable: bool = True
    ) -> None:
        self._writes_are_durable = writes_are_durable
        self._segment_bytes = segment_bytes
        self.alignment = alignment
        self._active = active
        self._ready: Segment | None = ready
        self._next_number = ready.number + 1
        self._offset = HEAD_BYTES
        self._synced = HEAD_BYTES
        self._under_way: deque[Write] = deque()
        self._done: set[int] = set()
        self._full: deque[tuple[int, Segment]] = deque()
        self._reusable: list[str] = []
        self._errand: SegmentTask | None = None
        self._wanted_bytes = segment_bytes
        self._last_trans_id = 0
        self._count = 0

    def adopt(self, last_trans_id: int, segment: Segment) -> None:
        """Keep a segment of an earlier run until LMDB has its records, which end at or before `last_trans_id`."""
        self._full.append((last_trans_id, segment))

    @property
    def room_bytes(self) -> int:
        """What can be placed before another segment must be made ready (bytes, about)."""
        ready = self._ready.size - HEAD_BYTES if self._ready is not None else 0
        return self._active.size - self._offset + ready

    @property
    def is_short(self) -> bool:
        """Whether it is time to ask for the next segment, also if none is free for it: three quarters are left.

        So that there is room for what is under way when the disk turns out to be full.
        """
        return self.room_bytes < self._segment_bytes * 3 // 4

    @property
    def has_reusable(self) -> bool:
        """Whether the next segment would need no space."""
        return bool(self._reusable)

    @property
    def under_way(self) -> int:
        """How many writes are not completed."""
        return len(self._under_way)

    def place(self, entries: deque[StoredEntry]) -> Write | None:
        """Take as many entries as fit off the front, and say where they go; None if that has to wait.

        It waits for a segment to be made ready (`errand`), or for the writes under way, which end the old segment.
        """
        alignment = self.alignment
        need = frame_size(len(entries[0].data), alignment)
        if self._offset + need > self._active.size:
            self._make_room(need)
            if self._under_way or self._ready is None or self._synced < self._offset:
                return None
            self._full.append((self._last_trans_id, self._active))
            self._last_trans_id = 0
            self._active = self._ready
            self._ready = None
            self._offset = self._synced = HEAD_BYTES
        start = self._offset
        frames: list[bytes] = []
        records = 0
        number, file, size = self._active
        while self._offset + need <= size:
            first, last, _, data, _, _ = _fields_of(entries.popleft())
            self._last_trans_id = max(self._last_trans_id, last)
            self._count += 1
            records += last - first + 1
            frames.append(frame(number, self._synced, data, alignment))
            self._offset += need
            if not entries:
                break
            need = frame_size(len(entries[0].data), alignment)
        write = Write(file, start, frames[0] if len(frames) == 1 else b"".join(frames), self._count, records)
        self._under_way.append(write)
        return write

    def _make_room(self, need: int) -> None:
        """Give an entry that outgrows a segment, since its leader has larger ones, a segment of its own size.

        The one that was ready stays without entries, and is used again later.
        """
        ready = self._ready
        size = HEAD_BYTES + need
        if size <= self._segment_bytes or (ready is not None and ready.size >= size):
            return
        self._wanted_bytes = max(self._wanted_bytes, size)
        if ready is not None:
            ready.file.close()
            self._reusable.append(segment_name(ready.number))
            self._ready = None

    def completed(self, write: Write) -> int | None:
        """`write` is done; returns how many entries since the start count now, if that are more than before."""
        self._done.add(write.entry_count)
        durable: int | None = None
        while self._under_way and self._under_way[0].entry_count in self._done:
            first = self._under_way.popleft()
            durable = first.entry_count
            self._done.discard(durable)
            if self._writes_are_durable:
                self._synced = first.offset + len(first.data)
        return durable

    def written(self) -> tuple[DiskFile, int] | None:
        """Say what a flush has to cover when writes are not durable by themselves: the file, and how far; None:
        nothing."""
        return (self._active.file, self._offset) if self._synced < self._offset else None

    def flushed(self, file: DiskFile, end: int) -> None:
        """Everything in `file` before `end` is on disk."""
        if file is self._active.file:
            self._synced = max(self._synced, end)

    def recycle(self, stored_trans_id: int) -> None:
        """LMDB has the records up to `stored_trans_id`: full segments up to there are free for their next use."""
        while self._full and self._full[0][0] <= stored_trans_id:
            segment = self._full.popleft()[1]
            segment.file.close()
            self._reusable.append(segment_name(segment.number))

    def errand(self) -> SegmentTask | None:
        """Say what is to be done to the folder now; call `errand_done` or `errand_failed` afterwards."""
        if self._errand is not None or self._ready is not None:
            return None
        reuse = self._reusable[0] if self._reusable and self._wanted_bytes == self._segment_bytes else None
        self._errand = SegmentTask(self._next_number, reuse, tuple(self._reusable[1:-1]), self._wanted_bytes)
        return self._errand

    def errand_done(self, segment: Segment) -> None:
        """Take the segment that is ready; one that was free for it is used up, and no more than one is kept beside
        it."""
        was_reused = self._errand is not None and self._errand.reuse is not None
        self._errand = None
        self._reusable = self._reusable[1:][-1:] if was_reused else [*self._reusable[:1], *self._reusable[1:][-1:]]
        self._wanted_bytes = self._segment_bytes
        self._ready = segment
        self._next_number = segment.number + 1

    def errand_failed(self) -> None:
        """There was no space for it; ask again later, the same."""
        self._errand = None

    def close(self) -> None:
        """Flush what was not, and give the files back. Blocks."""
        unflushed = self.written()
        if unflushed is not None:
            unflushed[0].flush()
            self._synced = self._offset
        for segment in (self._active, self._ready, *(segment for _, segment in self._full)):
            if segment is not None:
                segment.file.close()


def begin_journal(
    folder: Folder,
    segment_bytes: int,
    *,
    writes_are_durable: bool,
    stored: int,
    last_trans_id: int,
    torn_at: tuple[str, int] | None = None,
) -> JournalWriter:
    """Start behind all segments that are there, whose records end at `last_trans_id`; LMDB has those up to `stored`.

    The torn frame at `torn_at`, if there is one, is erased first. Older
    segments are kept until LMDB has all of their records. Blocks. Raises `DiskFullError`.
    """
    if torn_at is not None:
        torn = folder.open(torn_at[0])
        torn.write_at(torn_at[1], bytes(FRAME_HEAD_BYTES))
        torn.flush()
        torn.close()
    names = [name for name in folder.names() if is_segment_name(name)]
    for name in folder.names():
        if name.endswith(UNFINISHED):
            folder.remove(name)
    number = max((int(name.removesuffix(SUFFIX)) for name in names), default=0)
    kept = [] if stored >= last_trans_id else [name for name in names if not is_empty_segment(folder, name)]
    free = [name for name in names if name not in kept]
    for name in kept:
        file = folder.open(name)
        file.flush()  # recovery may have read what only the system's cache held
        file.close()
    reuse: list[str | None] = [*free[:2], None, None]
    alignment = folder.alignment if writes_are_durable else 8
    first = run_errand(folder, SegmentTask(number + 1, reuse[0], (), segment_bytes), alignment)
    second = run_errand(folder, SegmentTask(number + 2, reuse[1], tuple(free[2:]), segment_bytes), alignment)
    writer = JournalWriter(segment_bytes, alignment, first, second, writes_are_durable=writes_are_durable)
    for name in kept:
        writer.adopt(last_trans_id, _segment_of(folder, name))
    return writer
