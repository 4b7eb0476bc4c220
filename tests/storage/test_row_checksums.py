"""A damaged row is known: when it is read at a start, by `verify`, and before a snapshot sends it."""

import faulthandler
import hashlib
import mmap
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from storage.entry import StoredEntry
from storage.entry_codec import encode
from storage.errors import DamagedError, StorageError
from storage.log_store import LogStore
from storage.message import Message
from storage.message_ids import message_id
from storage.queue_state import QueueState
from storage.records import BASE_LEVEL, STREAMS_LEVEL, Member, Members, Produce, Remove
from storage.recovery import recover
from storage.repair import verify
from storage.row_checksums import is_sealed, number_in, opened, sealed, sealed_number
from storage.sections import padded
from storage.state import ShardState
from storage.tables import BACKLOG, META, PAGE_BYTES, QUEUES, TABLES, LmdbTables
from storage.trimming import Trim, TrimRows, encode_row, queue_row
from tests.storage.memory import MemoryFolder, MemoryTables

MEMBERS = Members("", 7, [Member(1, "h", 1, 2, is_voter=True)], [], level=STREAMS_LEVEL)
COUNT = 40

LAST_TRANSACTION = [range(page + 144, page + 152) for page in (0, mmap.PAGESIZE)]
"""Where LMDB's two meta pages have the number of their transaction: behind a header, 24 bytes, two trees and a page."""


def message(n: int) -> Message:
    return Message(f"q{n % 3}", message_id(n, 0), b'"%d"' % n * 20, 1.0, 2.0 + n, 9e9, 60.0, n % 5, f"k{n}")


def produced(n: int) -> Produce:
    fields = {name: getattr(message(n), name) for name in Produce.__struct_fields__}
    return Produce(**fields)


def written(tables: Any, *, seals: bool, count: int = COUNT) -> LogStore:
    """A store with messages and queues before its log, and some in it."""
    store = LogStore(tables, 0)
    first = [produced(n) for n in range(1, count + 1)]
    store.store([StoredEntry(1, count, 1, encode(1, 1, 1.0, first))], seals=seals)
    rows = TrimRows(
        [(message_id(n, 0), encode_row(message(n).record())) for n in range(1, count + 1)],
        [(f"q{n}", queue_row(QueueState(f"q{n}"))) for n in range(3)],
        padded((encode_row(MEMBERS),)),
    )
    store.trim(Trim(count, 4, rows))
    store.store([StoredEntry(count + 1, count + 1, 4, encode(4, count + 1, 2.0, [Remove("x")]))], seals=seals)
    return store


def outcome(tables: Any, folder: Any) -> str:
    """What a start makes of it, and whether `verify` finds a fault."""
    try:
        findings = verify(tables, folder, 0)
        said = "fault" if findings.faults or findings.torn else "well"
    except StorageError:
        said = "fault"
    try:
        state = ShardState()
        recover(tables, folder, LogStore(tables, 0), state, lambda: 0.0)
    except StorageError:
        return f"{said}, refused"
    digest = hashlib.sha1()
    for one in sorted(state.messages.values(), key=lambda one: one.msg_id):
        digest.update(repr(one.record()).encode())
    for name in sorted(state.queues):
        digest.update(repr((name, state.queues[name].settings(), state.queues[name].max_id)).encode())
    digest.update(repr((state.trans_id, state.facts.members)).encode())
    return f"{said}, {digest.hexdigest()}"


def test_a_flipped_bit_of_any_row_is_a_fault_to_verify_and_to_a_start() -> None:
    """Seven of 34 gave another state, and `qctl log verify` said that all was well."""
    tables = MemoryTables()
    written(tables, seals=True)
    draw = random.Random(7)
    pristine = outcome(tables, MemoryFolder())
    assert pristine.startswith("well, ")
    assert "refused" not in pristine
    flipped = 0
    for table in (BACKLOG, QUEUES, META):
        for key, row in list(tables.tables[table].items()):
            for at in draw.sample(range(len(row) * 8), min(len(row) * 8, 24)):
                bad = bytearray(row)
                bad[at // 8] ^= 1 << at % 8
                tables.tables[table][key] = bytes(bad)
                found = outcome(tables, MemoryFolder())
                assert found in ("fault, refused", pristine), (table, key, at, found)
                flipped += found != pristine
            tables.tables[table][key] = row
    assert flipped > 500


@pytest.mark.parametrize("table", [BACKLOG, QUEUES])
def test_a_row_under_another_keys_name_is_a_fault(table: str) -> None:
    tables = MemoryTables()
    written(tables, seals=True)
    rows = tables.tables[table]
    key, row = rows.popitem(0)
    rows[key[:-1] + bytes([key[-1] ^ 0x40])] = row
    assert outcome(tables, MemoryFolder()) == "fault, refused"


def test_a_damaged_row_is_not_sent_in_a_snapshot() -> None:
    tables = MemoryTables()
    store = written(tables, seals=True)
    sound = store.read_part(b"", 1 << 20)
    assert [opened(key[1:], row, "") for key, row in sound.rows] == [row for _, row in sound.rows]
    assert not any(is_sealed(row) for _, row in sound.rows), "the other node gives them checksums of its own"
    key, row = tables.tables[BACKLOG].peekitem(5)
    tables.tables[BACKLOG][key] = row[:-1] + bytes([row[-1] ^ 1])
    with pytest.raises(DamagedError, match="checksum"):
        store.read_part(b"", 1 << 20)


def test_rows_of_a_version_before_are_read_counted_and_get_a_checksum_when_they_are_next_written() -> None:
    tables = MemoryTables()
    store = written(tables, seals=False)
    assert not store.seals
    assert not any(is_sealed(row) for table in (BACKLOG, QUEUES) for row in tables.tables[table].values())
    assert verify(tables, MemoryFolder(), 0).rows_without_checksum == COUNT + 3 + 1
    before = outcome(tables, MemoryFolder())
    store.store([StoredEntry(COUNT + 2, COUNT + 2, 4, encode(4, COUNT + 2, 3.0, [Remove("x")]))], seals=True)
    again = LogStore(tables, 0)
    assert again.seals
    again.trim(Trim(COUNT + 1, 4, TrimRows([(message_id(1, 0), encode_row(message(1).record()))], [])))
    assert verify(tables, MemoryFolder(), 0).rows_without_checksum == COUNT + 3 + 1 - 1
    assert before.startswith("well, ")


@pytest.mark.parametrize(("level", "seals"), [(BASE_LEVEL, False), (STREAMS_LEVEL, True)])
def test_a_snapshots_rows_get_checksums_where_its_cluster_knows_them(level: int, seals: bool) -> None:
    source = written(MemoryTables(), seals=seals)
    part = source.read_part(b"", 1 << 20)
    members = Members("", 7, MEMBERS.members, [], level=level)
    part = part._replace(sections=padded((encode_row(members),)))
    tables = MemoryTables()
    target = LogStore(tables, 0)
    target.stage(part, 2, is_first=True)
    target.install(part)
    assert target.seals == seals
    assert all(is_sealed(row) == seals for row in tables.tables[target.backlog].values())
    assert LogStore(tables, 0).bounds == (COUNT, COUNT)


def test_a_number_is_read_with_a_checksum_and_without() -> None:
    row = sealed_number(b"format", 3)
    assert number_in(b"format", row, "") == number_in(b"format", row[:8], "") == 3
    for bad in (row[:5], b"", row + b"x", row[:-1] + b"x", b"x" + row[1:]):
        with pytest.raises(DamagedError):
            number_in(b"format", bad, "")


def test_what_has_no_checksum_is_given_as_it_is() -> None:
    assert opened(b"key", b"\x93abc", "") == b"\x93abc"
    assert opened(b"key", b"", "") == b""
    with pytest.raises(DamagedError, match=r"^row 5: "):
        opened(b"other", sealed(b"key", b"row"), "row 5")


def test_bits_that_flip_in_lmdbs_file_give_no_other_state_that_verify_calls_well(tmp_path: Path) -> None:
    """Each is looked at by a process of its own: LMDB may end it. LMDB's own numbers of its last two transactions are
    left out (docs/log.md): a bit there makes the one before the last the last, whose state is sound as well."""
    store = written(LmdbTables(tmp_path), seals=True, count=400)
    store.close()
    sound = (tmp_path / "data.mdb").read_bytes()
    draw = random.Random()
    seed = draw.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    used = [at for at in range(0, len(sound), 512) if any(sound[at : at + 512])]
    drawn = [(draw.choice(used) + draw.randrange(512), draw.randrange(8)) for _ in range(60)]
    left_out = {at for numbers in LAST_TRANSACTION for at in numbers}
    assert_none_unseen(tmp_path, ((at, bit) for at, bit in drawn if at not in left_out))


def test_bits_that_flip_in_the_key_of_the_logs_last_entry_lose_nothing_unseen(tmp_path: Path) -> None:
    """The key of 401 became that of a record before 400, where the log begins: a start went on without the entry."""
    written(LmdbTables(tmp_path), seals=True, count=400).close()
    sound = (tmp_path / "data.mdb").read_bytes()
    key = b"\x08\x00" + (401).to_bytes(8, "big")  # its length, as LMDB has it before a key
    (begin,) = (at for at in range(len(sound) - 10) if sound[at : at + 10] == key and at % PAGE_BYTES > 2000)
    assert_none_unseen(tmp_path, ((at, bit) for at in range(begin, begin + len(key)) for bit in range(8)))


def test_bits_that_flip_where_lmdb_keeps_the_order_of_rows_lose_none_unseen(tmp_path: Path) -> None:
    """Two pointers to one page of the backlog, and none to another, gave as many messages as there were."""
    written(LmdbTables(tmp_path), seals=True, count=400).close()
    sound = (tmp_path / "data.mdb").read_bytes()
    branches = [page for page in range(0, len(sound), PAGE_BYTES) if sound[page + 10 : page + 12] == b"\x01\0"]
    [branch] = [page for page in branches if int.from_bytes(sound[page : page + 8], "little") * PAGE_BYTES == page]
    nodes = branch + int.from_bytes(sound[branch + 14 : branch + 16], "little")
    metas = [place for place in range(len(sound) - 7) if sound[place : place + 7] == b"trimmed"]
    places = [*range(branch + 16, branch + 54, 2), *range(nodes, nodes + 60), *metas]
    assert_none_unseen(tmp_path, ((at, bit) for at in places for bit in (0, 3, 4)))


def test_bits_that_flip_where_lmdb_keeps_the_names_of_tables_lose_none(tmp_path: Path) -> None:
    """A table that it did not find it made anew, and a start went on without its rows."""
    written(LmdbTables(tmp_path), seals=True, count=400).close()
    sound = (tmp_path / "data.mdb").read_bytes()
    pages = [
        at
        for at in range(0, len(sound), PAGE_BYTES)
        if all(name.encode() in sound[at : at + PAGE_BYTES] for name in TABLES)
    ]
    assert pages
    names = [
        page + sound[page : page + PAGE_BYTES].rindex(b"\0" + name) for page in pages for name in (b"log", b"backlog")
    ]
    heads = [page + offset for page in pages for offset in range(10, 32)]
    places = heads + [place + offset for place in names for offset in range(9)]
    assert_none_unseen(tmp_path, ((at, bit) for at in places for bit in range(8)))


def test_a_bit_that_flips_in_the_number_of_a_transaction_gives_no_state_but_that_of_the_last_or_the_one_before(
    tmp_path: Path,
) -> None:
    """The exception of docs/log.md: LMDB has no checksum there, and takes the greater number."""
    written(LmdbTables(tmp_path), seals=True).close()
    sound = (tmp_path / "data.mdb").read_bytes()
    pristine = looked_at(tmp_path)
    places = [at for numbers in LAST_TRANSACTION for at in numbers]
    found = {looked_at_with(tmp_path, sound, at, bit) for at in places for bit in range(8)}
    well = {one for one in found if one.startswith("well, ") and one != "well, refused"}
    assert pristine in well
    assert len(well) <= 2


def assert_none_unseen(path: Path, flips: Iterable[tuple[int, int]]) -> None:
    """Flip each of these bits alone: what a start then calls well is what was there."""
    sound, pristine = (path / "data.mdb").read_bytes(), looked_at(path)
    assert pristine.startswith("well, ")
    for at, bit in flips:
        found = looked_at_with(path, sound, at, bit)
        assert found == pristine or "refused" in found or not found.startswith("well"), (at, bit, found)


def looked_at_with(path: Path, sound: bytes, at: int, bit: int) -> str:
    """The outcome of a start on what was `sound`, with that bit of that byte flipped."""
    bad = bytearray(sound)
    bad[at] ^= 1 << bit
    (path / "data.mdb").write_bytes(bytes(bad))
    return looked_at(path)


def looked_at(path: Path) -> str:
    """The outcome of a start there, in another process; "refused" where that ended."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reads)
        faulthandler.disable()
        found = "fault, refused"
        try:
            found = outcome(LmdbTables(path), MemoryFolder())
        finally:
            os.write(writes, found.encode())
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said or "fault, refused"
