"""That what is checked of topics catches the bugs it is there for: as test_planted.py."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from actors.shard.ledger import Ledger
from actors.shard.savepoint import Savepoint
from actors.streams.groups import GroupMembers, Member
from actors.streams.transactions import Transacting
from quorate.protocol import Action, Reply
from storage import entry_making
from storage.log_store import LogStore
from storage.partition import Partition
from storage.records import Append, Offsets
from storage.topics import Topics
from storage.undo import Undo
from tests.simulation.run import Run
from tests.simulation.test_planted import finds, pytestmark, quiet

__all__ = ["pytestmark", "quiet"]

SEEDS_MAX = 150

FOUND_BY: Final = {"_in_parts": 131, "_shown_before_committed": 5, "_nobody_waited_for": 2}
"""The seeds that found these bugs first, tried before all others."""


def run(seed: int, size: int | None) -> Run:
    """A run of clients of topics alone."""
    others = {f"has_{name}": False for name in ("workers", "jobbers", "gophers", "dabblers", "replacers", "steward")}
    return Run(seed, size, shards=1, has_streamers=True, **others)


def seeds_for(plant: Callable[[pytest.MonkeyPatch], None]) -> Iterator[int]:
    """Give the seed that has found this bug before, and then all of them."""
    if found := FOUND_BY.get(plant.__name__):
        yield found
    yield from range(1, SEEDS_MAX)


def _blocks_not_stored(patch: pytest.MonkeyPatch) -> None:
    """The head of the log is trimmed, and the blocks that were to be stored before are not there."""
    true, true_trim = LogStore.store, LogStore.trim

    def store(self: LogStore, entries: Any, *, seals: bool = False, blocks: Any = ()) -> None:
        true(self, entries, seals=seals)

    patch.setattr(LogStore, "store", store)
    patch.setattr(LogStore, "store_blocks", lambda self, blocks: None)
    patch.setattr(LogStore, "trim", lambda self, trim, blocks=(): true_trim(self, trim))


def _shown_before_committed(patch: pytest.MonkeyPatch) -> None:
    """Readers get what is not committed."""
    true = Ledger.append

    def append(self: Ledger, record: Any) -> None:
        true(self, record)
        if isinstance(record, Append):
            self.state.topics.tails.settle(record.offset + (1 << 60))

    patch.setattr(Ledger, "append", append)


def _not_taken_back(patch: pytest.MonkeyPatch) -> None:
    """What a lost lead has appended stays."""
    patch.setattr(Partition, "take_back", lambda self: None)


def _answered_before_committed(patch: pytest.MonkeyPatch) -> None:
    """An append is answered before it is durable. All writes are slow: crashes within one are rare."""
    true = Ledger.answer_when_committed
    for disk in ("QUICK_DISK", "SLOW_DISK"):
        patch.setattr(f"tests.simulation.world.{disk}", [0.02, 0.2])

    def answer(self: Ledger, call: Any, reply: Any) -> None:
        if call.request.action == Action.APPEND:
            self.answer(call, reply)
        else:
            true(self, call, reply)

    patch.setattr(Ledger, "answer_when_committed", answer)


def _numbers_forgotten(patch: pytest.MonkeyPatch) -> None:
    """An append that is repeated is done again."""
    patch.setattr("actors.streams.writing.last_serial", lambda seen: 0)


def _two_owners(patch: pytest.MonkeyPatch) -> None:
    """A partition is given away before its owner has let it go."""

    def give(self: GroupMembers, now: float, member: Member) -> None:
        for index in member.wanted:
            member.has[index] = self.generation

    patch.setattr(GroupMembers, "give", give)
    patch.setattr(GroupMembers, "_takes", lambda self, member, index: member.has.pop(index))


def _nobody_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A new leader gives out at once what members of the old one's have."""
    true = GroupMembers.__init__
    patch.setattr(GroupMembers, "__init__", lambda self, partitions, embargo_until=0.0: true(self, partitions))


def _positions_not_kept(patch: pytest.MonkeyPatch) -> None:
    """What a group commits is forgotten by the next record about it."""
    true = Topics.set_offsets

    def set_offsets(self: Topics, undo: Undo, trans_id: int, record: Offsets) -> None:
        topic = self.numbers.get(record.number)
        if topic is not None and record.partitions:
            topic.groups.pop(record.group, None)
        true(self, undo, trans_id, record)

    patch.setattr(Topics, "set_offsets", set_offsets)


def _gap_filled_with_nothing(patch: pytest.MonkeyPatch) -> None:
    """What a node lacks behind a snapshot is noted as there, and is not."""
    true = LogStore.fill_gap
    patch.setattr(LogStore, "fill_gap", lambda self, gap, blocks, upto: true(self, gap, blocks[1:], upto))


def _refused_and_done(patch: pytest.MonkeyPatch) -> None:
    """What a refused transaction had made stays."""
    patch.setattr(Savepoint, "take_back", Savepoint.keep)


def _in_parts(patch: pytest.MonkeyPatch) -> None:
    """Each record is an entry of its own, whatever belongs together."""
    true = entry_making.make_entries

    def make_entries(vote_id: int, first: int, time: float, records: Any, bytes_max: int, together: Any = ()) -> Any:
        return [entry for at, one in enumerate(records) for entry in true(vote_id, first + at, time, [one], bytes_max)]

    patch.setattr("actors.shard.appending.make_entries", make_entries)


def _whoever_asks(patch: pytest.MonkeyPatch) -> None:
    """A transaction confirms what is not there any more, as a confirm alone does."""
    true = Transacting._do_one

    def do_one(self: Transacting, call: Any, operation: Any) -> Any:
        reply = true(self, call, operation)
        return Reply(action=3, code=0) if reply.action == Action.CONFIRM and operation.msg_id != 1 << 40 else reply

    patch.setattr(Transacting, "_do_one", do_one)


@pytest.mark.parametrize(
    ("plant", "says", "size"),
    [
        (_blocks_not_stored, "has .* of|damaged|begins|answered", 1),
        (_shown_before_committed, "readers have seen|was read", 3),
        (_not_taken_back, "QueueOwner failed|was read|was appended|both|other messages|behind|not", 3),
        (_answered_before_committed, "not s|was appended|has '' at", 1),
        (_numbers_forgotten, "twice", 3),
        (_two_owners, "it is to have", 1),
        (_nobody_waited_for, "it is to have", 3),
        (_positions_not_kept, "the group is (said to be )?at|has the group before", 3),
        (_gap_filled_with_nothing, "has .* of|damaged|answered", 3),
        (_refused_and_done, "never ", 3),
        (_in_parts, "and no more|and the job itself|has .* no more|not done|not appended", None),
        (_whoever_asks, "twice", None),
    ],
)
def test_a_bug_that_clients_of_topics_meet_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert finds(says, seeds_for(plant), lambda seed: run(seed, size))
