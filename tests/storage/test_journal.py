"""The journal: what was durable is read back, a torn end is cut off, damage before it is an error."""

import contextlib
from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.entry import StoredEntry
from storage.errors import DamagedError, UnknownFormatError
from storage.journal import HEAD_BYTES, read_journal, segment_name
from storage.journal_writer import JournalWriter, Write, begin_journal, run_errand
from tests.storage.memory import SECTOR, MemoryFolder

SEGMENT = 16 * 1024


class Disk:
    """A journal on a disk in memory, with the errands done at once."""

    def __init__(self, folder: MemoryFolder | None = None, stored: int = 0, last: int = 0) -> None:
        self.folder = folder or MemoryFolder()
        self.writer: JournalWriter = begin_journal(
            self.folder,
            SEGMENT,
            writes_are_durable=True,
            stored=stored,
            last_trans_id=last,
            torn_at=read_journal(self.folder).torn_at,
        )
        self.last = last

    def append(self, payload: bytes) -> Write:
        """Start a write of one entry. Raises BlockingIOError when the segment's last writes must arrive first."""
        self.last += 1
        entries = deque([StoredEntry(self.last, self.last, 1, payload)])
        write = self.writer.place(entries)
        while write is None:
            if self.writer.under_way:
                raise BlockingIOError
            errand = self.writer.errand()
            assert errand is not None
            self.writer.errand_done(run_errand(self.folder, errand, SECTOR))
            write = self.writer.place(entries)
        write.file.write_durably_at(write.offset, write.data)
        return write

    def complete(self, write: Write) -> int | None:
        """The write has arrived."""
        self.folder.settle()
        return self.writer.completed(write)


def test_entries_come_back_in_order_over_many_segments() -> None:
    disk = Disk()
    payloads = [bytes([n % 251]) * (n * 7 % 3000) for n in range(100)]
    for payload in payloads:
        assert disk.complete(disk.append(payload)) == disk.last
    content = read_journal(disk.folder)
    assert content.payloads == payloads
    assert content.torn is None


def test_a_segment_is_used_again_when_lmdb_has_its_records() -> None:
    disk = Disk()
    for n in range(500):
        disk.complete(disk.append(b"x" * 1000))
        if n % 10 == 9:
            disk.writer.recycle(disk.last - 5)
    assert len(disk.folder.files) <= 4
    content = read_journal(disk.folder)
    assert content.torn is None, "what an earlier use of the file left is no torn write"
    assert content.payloads == [b"x" * 1000] * len(content.payloads)
    assert len(content.payloads) >= 5


def test_writes_count_in_order_even_if_they_arrive_out_of_order() -> None:
    disk = Disk()
    first, second = disk.append(b"1"), disk.append(b"2")
    assert disk.complete(second) is None
    assert disk.complete(first) == 2


@given(st.lists(st.integers(0, 2000), max_size=12), st.lists(st.integers(0, 4000), max_size=2), st.integers(0, 2**32))
def test_a_power_cut_keeps_all_that_was_durable_and_at_most_tears_the_rest(
    done: list[int], under_way: list[int], seed: int
) -> None:
    disk = Disk()
    durable = [b"d" * size for size in done]
    for payload in durable:
        disk.complete(disk.append(payload))
    pending = [b"p" * size for size in under_way]
    with contextlib.suppress(BlockingIOError):
        for payload in pending:
            disk.append(payload)
    disk.folder.power_cut(Random(seed))
    found = read_journal(disk.folder).payloads
    assert found[: len(durable)] == durable
    assert found[len(durable) :] == pending[: len(found) - len(durable)]
    again = Disk(disk.folder, stored=0, last=len(found))
    again.complete(again.append(b"after"))
    assert read_journal(again.folder).payloads == [*found, b"after"]


def test_a_second_power_cut_right_after_the_first_changes_nothing() -> None:
    disk = Disk()
    disk.complete(disk.append(b"one"))
    for _ in range(3):
        disk.folder.power_cut(Random(1))
        disk = Disk(disk.folder, stored=0, last=1)
        assert read_journal(disk.folder).payloads == [b"one"]


def _flip(folder: MemoryFolder, number: int, offset: int) -> None:
    file = folder.files[segment_name(number)]
    file.content[offset] ^= 0xFF
    file.flush()


def test_a_damaged_last_entry_is_cut_off_and_told() -> None:
    disk = Disk()
    for payload in (b"a" * 600, b"b" * 600, b"c" * 600):
        disk.complete(disk.append(payload))
    _flip(disk.folder, 1, HEAD_BYTES + 2 * 1024 + 100)
    content = read_journal(disk.folder)
    assert content.payloads == [b"a" * 600, b"b" * 600]
    assert content.torn is not None
    assert segment_name(1) in content.torn


@pytest.mark.parametrize("offset", [0, 5, 14, 30, 300])
def test_a_damaged_entry_in_the_middle_is_an_error_that_says_where(offset: int) -> None:
    disk = Disk()
    for payload in (b"a" * 600, b"b" * 600, b"c" * 600):
        disk.complete(disk.append(payload))
    _flip(disk.folder, 1, HEAD_BYTES + 1024 + offset)
    with pytest.raises(DamagedError, match=f"{segment_name(1)}, byte {HEAD_BYTES + 1024}"):
        read_journal(disk.folder)


def test_damage_in_an_earlier_segment_is_an_error() -> None:
    disk = Disk()
    for _ in range(40):
        disk.complete(disk.append(b"a" * 600))
    assert segment_name(2) in disk.folder.files
    last_in_first = HEAD_BYTES + 11 * 1024
    _flip(disk.folder, 1, last_in_first + 50)
    with pytest.raises(DamagedError):
        read_journal(disk.folder)


def test_a_newer_journal_format_is_refused() -> None:
    disk = Disk()
    file = disk.folder.files[segment_name(1)]
    import struct
    import zlib

    plain = struct.pack("<8sIIQ", b"QUORATEJ", 99, 512, 1)
    file.content[: len(plain) + 4] = plain + zlib.crc32(plain).to_bytes(4, "little")
    with pytest.raises(UnknownFormatError):
        read_journal(disk.folder)


def test_an_entry_that_outgrows_a_segment_gets_one_of_its_own_size_and_all_is_read_back() -> None:
    """Its leader has larger segments: the follower died of it, again and again."""
    disk = Disk()
    payloads = [b"a" * 100, b"b" * (3 * SEGMENT), b"c" * 50, b"d" * (SEGMENT // 2), b"e" * (5 * SEGMENT), b"f" * 9000]
    for payload in payloads:
        disk.complete(disk.append(payload))
    content = read_journal(disk.folder)
    assert content.payloads == payloads
    assert content.torn is None
    disk.writer.recycle(disk.last)
    for _ in range(40):
        disk.complete(disk.append(b"g" * 5000))
        disk.writer.recycle(disk.last - 1)
    assert sum(file.size() for file in disk.folder.files.values()) < 8 * SEGMENT, "the large ones are not kept"
    restarted = Disk(disk.folder, stored=0, last=disk.last)
    restarted.complete(restarted.append(b"h" * (2 * SEGMENT)))
    assert read_journal(disk.folder).payloads[-1] == b"h" * (2 * SEGMENT)
