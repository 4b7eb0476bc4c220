"""Looking at a shard that no node runs, and mending one that is damaged.

`verify` reads everything and names every fault. `repair` keeps what can be read: it applies each readable record,
skips the damaged ones, and writes the resulting messages and queues as a new backlog with an empty log behind the
highest trans_id seen. What a skipped entry had said is lost: messages it produced are gone, and messages it
confirmed come back. The caller copies the folder first.
"""

from dataclasses import dataclass, field

from storage import entry_codec
from storage.blocks import BlockView, read_key
from storage.disk import Folder
from storage.entry import Entry
from storage.errors import DamagedError, StorageError
from storage.journal import is_segment_name, read_journal, salvage_journal
from storage.log_rows import ROW_BYTES
from storage.log_store import (
    LogStore,
    check_end,
    decode_message_row,
    decode_queue_row,
    gaps_in,
    section_rows,
    trimmed_vote_id,
)
from storage.records import Members
from storage.recovery import UNREADABLE, standing_entries
from storage.row_checksums import is_sealed, opened
from storage.sections import rows_of
from storage.state import ShardState
from storage.tables import BLOCKS, Tables
from storage.topic_loading import Loader, all_keys, row_of
from storage.trimming import TrimRows, encode_row, queue_row


@dataclass
class Findings:
    """What a shard's folder holds. `faults` stop a start; `torn` is what a start would cut off by itself.

    `lost` are the ranges of trans_ids that can't be read, both ends included. `rows_without_checksum`: written by a
    version before, and not since. `damaged_blocks`: messages of topics that can't be read; a node starts with them.
    """

    first_trans_id: int = 0
    last_trans_id: int = 0
    entries: int = 0
    records: int = 0
    journal_entries: int = 0
    backlog_messages: int = 0
    live_messages: int = 0
    queues: int = 0
    vote_id: int = 0
    faults: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    members: Members | None = None
    rows_without_checksum: int = 0
    blocks: int = 0
    damaged_blocks: list[str] = field(default_factory=list)
    damaged_keys: list[bytes] = field(default_factory=list)

    @property
    def is_of_cluster(self) -> bool:
        """Whether other nodes belong to the shard's cluster, as far as can be read."""
        known = self.members
        return known is not None and len(known.members) + len(known.wanted) > 1


def verify(tables: Tables, folder: Folder, shard: int) -> Findings:
    """Read everything; change nothing. Raises `UnknownFormatError` for what another version wrote."""
    findings, _ = _salvage(tables, folder, shard)
    return findings


def repair(tables: Tables, folder: Folder, shard: int) -> Findings:
    """Write back what can be read; returns what was found before. A shard without faults is left as it is."""
    findings, state = _salvage(tables, folder, shard)
    if not findings.faults:
        return findings
    state.topics.tails.close_until(state.topics.numbers.values(), state.trans_id)
    rows = TrimRows(
        [(msg_id, encode_row(state.messages[msg_id].record())) for msg_id in sorted(state.messages)],
        [(name, queue_row(queue)) for name, queue in sorted(state.queues.items())],
        rows_of(state),
        topics=[(key, row_of(state.topics, key)) for key in all_keys(state.topics)],
    )
    store = LogStore(tables, shard)
    store.replace(rows, findings.last_trans_id, findings.vote_id)
    store.remove_blocks(findings.damaged_keys)
    store.store_blocks([block.row() for block in state.topics.tails.take_to_store()])
    for name in [name for name in folder.names() if is_segment_name(name)]:
        folder.remove(name)
    return findings


def _salvage(tables: Tables, folder: Folder, shard: int) -> tuple[Findings, ShardState]:
    findings = Findings()
    state = ShardState(shard)
    state.loading = True
    store = LogStore(tables, shard)
    trimmed = store.bounds.trimmed
    state.trans_id = trimmed
    findings.first_trans_id = trimmed + 1
    try:
        check_end(store)
    except DamagedError as error:
        findings.faults.append(str(error))
    ends = _read_blocks(tables, findings)
    _read_rows(tables, store, state, findings, ends)
    try:
        content = read_journal(folder)
        payloads = content.payloads
        if content.torn:
            findings.torn.append(content.torn)
    except DamagedError as error:
        payloads = salvage_journal(folder)
        findings.faults.append(str(error))
    journal = standing_entries(payloads)
    copies = {entry.first_trans_id: entry.last_trans_id for entry, _ in journal if entry is not None}

    def journal_has(end: int) -> bool:
        """Whether it goes on where the log is read to, and has that entry."""
        return state.trans_id + 1 in copies and end in copies.values()

    def unreadable(end: int, error: DamagedError) -> None:
        findings.entries += 1
        if end == store.bounds.checkpointed and journal_has(end):
            findings.faults.append(f"{error}, and the journal has all of it: nothing is lost")
        else:
            # A row of several has fewer records than bytes: else its key is damaged, and the next says where it ends.
            end = end if state.trans_id < end <= state.trans_id + ROW_BYTES else state.trans_id + 1
            findings.faults.append(str(error))
            findings.lost.append((state.trans_id + 1, end))
            state.trans_id = end

    with tables.read() as transaction:
        findings.vote_id = trimmed_vote_id(transaction)
        for end, data in store.entries(transaction, unreadable=unreadable):
            is_last = end == store.bounds.checkpointed
            findings.entries += 1
            if is_last and not entry_codec.is_whole(data) and journal_has(end):
                findings.torn.append(f"log entry {end} is damaged, and the journal has it: nothing is lost")
                continue
            _take(data, f"log entry {end}", end, is_last, state, findings)
    for index, (entry, data) in enumerate(journal):
        end = 0 if entry is None else entry.last_trans_id
        if end == 0 or end > state.trans_id:
            findings.journal_entries += 1
            _take(data, f"journal entry {index}", end, False, state, findings)
    findings.last_trans_id = max([state.trans_id, *(end for _, end in findings.lost)])
    findings.records = findings.last_trans_id - trimmed
    findings.members = state.facts.members
    findings.live_messages = len(state.messages)
    findings.queues = len(state.queues)
    state.finish_loading(state.time)
    return findings, state


def _read_rows(
    tables: Tables,
    store: LogStore,
    state: ShardState,
    findings: Findings,
    ends: dict[tuple[int, int], tuple[int, int]],
) -> None:
    """Read the rows beside the log, with their checksums."""

    def content(key: bytes, data: bytes, where: str) -> bytes | None:
        """Give what a row holds; None, and a fault, if its checksum does not fit."""
        findings.rows_without_checksum += not is_sealed(data)
        try:
            return opened(key, data, where)
        except DamagedError as error:
            findings.faults.append(str(error))
            return None

    with tables.read() as transaction:
        for section, data in section_rows(transaction):
            try:
                if data and (held := content(section.key, data, section.name)) is not None:
                    section.into_facts(state.facts, section.decode(held))
            except UNREADABLE as error:
                findings.faults.append(f"{section.name}: {error}")
        loader = Loader(state.topics, lambda number, index: ends.get((number, index)))
        for table in (store.queues, store.topics, store.backlog):
            count, last = 0, b""
            for count, (key, data) in enumerate(transaction.range(table), 1):  # noqa: B007
                if key <= last:
                    findings.faults.append(f"table {table}: the row {bytes(key)!r} stands behind {bytes(last)!r}")
                last = key
                is_queue = table == store.queues
                where = f"queue row {key!r}" if is_queue else f"backlog row {int.from_bytes(key, 'big')}"
                if table == store.topics:
                    where = f"row {key!r} of a topic"
                try:
                    held = content(key, data, where)
                    if held is None:
                        continue
                    if table == store.topics:
                        loader.restore(key, held)
                    elif is_queue:
                        state.restore_queue(*decode_queue_row(held))
                    else:
                        state.restore_message(decode_message_row(held))
                        findings.backlog_messages += 1
                except (*UNREADABLE, DamagedError) as error:
                    findings.faults.append(f"{where}: {error}")
            expected = transaction.count(table)
            if count != expected:
                findings.faults.append(f"table {table}: {count} rows can be found, and there are {expected}")
        loader.finish()


def _read_blocks(tables: Tables, findings: Findings) -> dict[tuple[int, int], tuple[int, int]]:
    """Read the messages of topics, and see that those of a partition follow each other.

    A block that is damaged is a gap, which readers are told of (`damaged`); no repair brings it back. A partition's
    last one says where it goes on, so a node does not start without it. Returns where each partition's blocks end.
    """
    ends: dict[tuple[int, int], tuple[int, int]] = {}
    last: dict[tuple[int, int], str | None] = {}
    with tables.read() as transaction:
        missing = {(number, index): until for number, index, _, until in gaps_in(transaction)}
        for key, value in transaction.range(BLOCKS):
            findings.blocks += 1
            try:
                its = read_key(key)
                at = (its.number, its.partition)
                expected = ends.get(at)
                last[at] = None
                view = BlockView(key, value)
            except DamagedError as error:
                findings.damaged_blocks.append(str(error))
                findings.damaged_keys.append(bytes(key))
                last[at] = str(error)
                continue
            if expected is not None and its.offset > expected[0] and its.offset > missing.get(at, 0):
                findings.damaged_blocks.append(f"{view.name}: those before it end at {expected[0]}")
            ends[at] = (max(view.end, 0 if expected is None else expected[0]), view.end_position)
    findings.faults += [fault for fault in last.values() if fault is not None]
    return ends


def _take(data: bytes, where: str, end: int, is_last: bool, state: ShardState, findings: Findings) -> None:
    try:
        entry = entry_codec.decode(data, where)
    except DamagedError as error:
        (findings.torn if is_last else findings.faults).append(str(error))
        findings.lost.append((state.trans_id + 1, max(end, state.trans_id + 1)))
        state.trans_id = max(end, state.trans_id)
        return
    if end and entry.last_trans_id != end:
        (findings.torn if is_last else findings.faults).append(f"{where}: its records end with {entry.last_trans_id}")
    if entry.first_trans_id != state.trans_id + 1:
        findings.faults.append(f"{where}: begins at {entry.first_trans_id}, those before it end at {state.trans_id}")
        if entry.first_trans_id > state.trans_id + 1:
            findings.lost.append((state.trans_id + 1, entry.first_trans_id - 1))
    findings.vote_id = entry.vote_id
    _apply(state, entry, where, findings)


def _apply(state: ShardState, entry: Entry, where: str, findings: Findings) -> None:
    for offset, record in enumerate(entry.records):
        try:
            state.apply(entry.first_trans_id + offset, record)
        except (KeyError, ValueError, StorageError) as error:
            findings.faults.append(f"{where}: record {entry.first_trans_id + offset} does not fit: {error!r}")
    state.time = entry.time
