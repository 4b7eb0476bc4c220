"""That every checker of the simulator catches the bug it is there for.

A bug is planted by replacing a method, which compiled code passes by: so this is for the interpreted code alone. That
both are one program, test_compiled.py shows.
"""

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import pytest

import quorate_compiled
from actors.cluster.following import Following
from actors.cluster.leading import Leading
from actors.disk.checkpointer import Retention, RetentionLimits
from actors.disk.disk_lane import DiskLane
from actors.disk.write_ways import Place as WritePlace
from actors.disk.write_ways import WriteWays
from actors.gateway.scatter_gather import Seeking
from actors.gateway.virtual_queues import VirtualQueues
from actors.messages.disk import BytesWritten, IdentitySaved, SaveIdentity, WriteBytes
from actors.queues import message_replies, moving
from actors.queues.delivery import Delivery
from actors.queues.idle_queues import IdleQueues
from actors.queues.ripening import Ripening
from actors.queues.settling import Confirming
from actors.shard.ledger import Ledger
from actors.shard.log_head import HeadRows
from net.peers.messages import Pull, Push
from quorate.protocol import MessageView, Reply
from storage import recovery, state
from storage.errors import StorageError
from storage.journal_writer import Write
from storage.log_store import LogStore
from storage.message import Message
from storage.message_ids import named
from storage.queue_state import QueueState
from storage.records import Bury, Clear, Confirm, Expire, Extend, Place, Produce
from storage.state import ShardState
from storage.trimming import Trim
from storage.undo import Undo
from tests.simulation.run import Run
from tests.simulation.world import QUICK_DISK, World
from tests.storage.memory import MemoryWrites

pytestmark = pytest.mark.skipif(
    quorate_compiled.running() == "compiled", reason="compiled code can't be replaced: QUORATE_COMPILE=0 runs these"
)

SEEDS_MAX = 200
"""One seed in twenty meets the rarest of these bugs: among 60 none did once, after a change elsewhere."""


FOUND_BY: Final = {
    "_voted_before_saved": 25,
    "_keys_dropped_on_failover": 23,
    "_committed_by_one": 9,
    "_votes_without_its_log": 6,
    "_due_by_its_own_clock": 6,
    "_undone_but_for_one": 4,
    "_not_undone": 4,
    "_taken_before_logged": 54,
    "_readers_not_waited_for": 31,
    "_backlog_rows_kept": 5,
    "_half_cleared": 7,
    "_idle_kept": 9,
    "_offer_dropped": 3,
    "_members_not_followed": 3,
    "_used_unnoticed": 3,
    "_told_before_written_by_the_loop": 161,
}
"""The seeds that found these bugs first, tried before all others. After a change of what is drawn others do."""


def seeds_for(plant: Callable[[pytest.MonkeyPatch], None]) -> Iterator[int]:
    """Give the seed that has found this bug before, if one did, and then all of them."""
    first = FOUND_BY.get(plant.__name__)
    if first is not None:
        yield first
    yield from range(1, SEEDS_MAX)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Recovery's warnings about torn writes are what these tests ask for."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def finds(says: str, seeds: Iterable[int], run: Callable[[int], Run]) -> bool:
    """Whether one of the seeds' runs comes upon a problem of which a checker says that (a regular expression)."""
    for seed in seeds:
        try:
            problems = run(seed).go().problems
        except (AssertionError, StorageError) as error:
            problems = [str(error)]
        if any(re.search(says, problem) for problem in problems):
            return True
    return False


def _write_late(runtime: Any, write: Write) -> None:
    """The disk gets it after a while."""
    late = partial(write.file.write_durably_at, write.offset, write.data)
    runtime.call_later(0.05, lambda: runtime.handle_in_lane(late))


def _told_before_written(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge before it is on disk."""
    true = DiskLane.on_receive

    def on_receive(self: DiskLane, message: Any) -> None:
        if isinstance(message, WriteBytes):
            message.reply_to.tell(BytesWritten(message.write))
            _write_late(self.runtime, message.write)
        else:
            true(self, message)

    patch.setattr(DiskLane, "on_receive", on_receive)


def _told_before_written_by_the_loop(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge what the loop is about to write."""
    true = WriteWays.write

    def write_(self: WriteWays, write: Write, *, is_alone: bool, others_wait: bool) -> bool:
        at, size = self._runtime.monotonic(), len(write.data)
        place = self.place.choose(at, write.records, size, is_alone=is_alone, others_wait=others_wait)
        if place is not WritePlace.LOOP:
            return true(self, write, is_alone=is_alone, others_wait=others_wait)
        write.begun_at = at
        _write_late(self._runtime, write)
        return True

    patch.setattr(WriteWays, "write", write_)


def _told_when_begun(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge what the system has only begun to write."""
    true = WriteWays.write

    def write_(self: WriteWays, write: Write, *, is_alone: bool, others_wait: bool) -> bool:
        is_written = true(self, write, is_alone=is_alone, others_wait=others_wait)
        return is_written or self._begun.pop(write.entry_count, None) is not None

    def by_system(self: WriteWays) -> list[Write]:
        assert self._writes is not None
        self._writes.finished()
        return []

    patch.setattr(WriteWays, "write", write_)
    patch.setattr(WriteWays, "by_system", by_system)


def _half_written_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Take writes that the system gave up for written."""
    true = MemoryWrites.finished

    def finished(self: MemoryWrites) -> list[tuple[int, bool]]:
        return [(token, True) for token, _ in true(self)]

    patch.setattr(MemoryWrites, "finished", finished)


def _backlog_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Trim without moving live messages into the backlog."""
    true = LogStore.trim

    def trim(self: LogStore, trim: Trim, *blocks: Any) -> None:
        true(self, trim._replace(rows=trim.rows._replace(messages=[])), *blocks)

    patch.setattr(LogStore, "trim", trim)


def _confirm_not_logged(patch: pytest.MonkeyPatch) -> None:
    """Apply a confirmation but leave it out of the log."""
    true = Ledger.append

    def append(self: Ledger, record: Any) -> None:
        true(self, record)
        if isinstance(record, Confirm):
            self.records[-1] = Confirm(record.queue, [1], [1])

    patch.setattr(Ledger, "append", append)


def _taken_before_logged(patch: pytest.MonkeyPatch) -> None:
    """Answer an at-most-once delivery before it is durable."""
    patch.setattr(Ledger, "answer_when_committed", Ledger.answer)


def _delivered_early(patch: pytest.MonkeyPatch) -> None:
    """Deliver delayed messages at once."""
    true = Delivery.place_produced

    def place_produced(self: Delivery, messages: Any) -> None:
        for message in messages:
            message.due_at = min(message.due_at, self._ledger.now)
        true(self, messages)

    patch.setattr(Delivery, "place_produced", place_produced)


def _backlog_rows_kept(patch: pytest.MonkeyPatch) -> None:
    """Trim without removing the rows of messages that are gone."""
    true = LogStore.trim

    def trim(self: LogStore, trim: Trim, *blocks: Any) -> None:
        true(self, trim._replace(rows=trim.rows._replace(gone=())), *blocks)

    patch.setattr(LogStore, "trim", trim)


def _dropped_for_buried(patch: pytest.MonkeyPatch) -> None:
    """Drop what belongs into the dead letter queue."""

    def end(self: Delivery, queue: QueueState, messages: list[Message]) -> None:
        ids, previous = named(messages)
        self._ledger.append(Expire(queue.name, ids, previous))

    patch.setattr(Delivery, "_end", end)


def _half_cleared(patch: pytest.MonkeyPatch) -> None:
    """Leave one message of a clear out of the log."""
    true = Ledger.append

    def append(self: Ledger, record: Any) -> None:
        true(self, record)
        if isinstance(record, Clear):
            self.records[-1] = Clear(record.queue, record.msg_ids[1:], record.previous[1:])

    patch.setattr(Ledger, "append", append)


def _voted_before_saved(patch: pytest.MonkeyPatch) -> None:
    """Tell a vote before it is on disk; the disk gets it later, if the power stays on."""
    true = DiskLane.on_receive

    def on_receive(self: DiskLane, message: Any) -> None:
        if isinstance(message, SaveIdentity):
            message.reply_to.tell(IdentitySaved(message.identity))
            late = partial(self._vote_file.save, message.identity)
            runtime: Any = self.runtime
            runtime.call_later(30.0, lambda: runtime.handle_in_lane(late))
        else:
            true(self, message)

    patch.setattr(DiskLane, "on_receive", on_receive)


def _logs_not_matched(patch: pytest.MonkeyPatch) -> None:
    """A follower takes entries without looking whether its log agrees with what they follow."""
    accept, pulled_by = Following._accept, Leading.pulled_by

    def accept_all(self: Following, push: Push, decisions: Any) -> bool:
        push.after_vote_id = self.log.tail.vote_id_at(push.after) or 0
        return accept(self, push, decisions)

    def never_diverged(self: Leading, now: float, node_id: int, message: Pull) -> Any:
        message.after_vote_id = self.log.tail.vote_id_at(message.after) or 0
        return pulled_by(self, now, node_id, message)

    patch.setattr(Following, "_accept", accept_all)
    patch.setattr(Leading, "pulled_by", never_diverged)


def _committed_by_one(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge what the leader alone has stored."""
    patch.setattr("actors.cluster.leading.on_majority", max)


def _keys_dropped_on_failover(patch: pytest.MonkeyPatch) -> None:
    """A follower forgets the keys of the messages that it applies."""
    true = ShardState.follow

    def follow(self: ShardState, trans_id: int, record: Any, time: float) -> None:
        true(self, trans_id, record, time)
        if isinstance(record, Produce) and record.key is not None:
            keys = self.queues[record.queue].keys
            if record.key in keys:
                del keys[record.key]
            self.messages[record.msg_id].key = None

    patch.setattr(ShardState, "follow", follow)


def _votes_without_its_log(patch: pytest.MonkeyPatch) -> None:
    """A node whose log was lost votes as before."""
    patch.setattr("storage.renewal.abstain", lambda folder, abstains=True: None)
    patch.setattr("tests.simulation.faults.DAMAGE_RATE", 0.5)


def _undone_but_for_one(patch: pytest.MonkeyPatch) -> None:
    """The newest of what a lost lead has changed stays."""
    true = Undo.take

    def take(self: Undo, after: int, trans_id: int) -> Any:
        taken = true(self, after, trans_id)
        return taken if taken is None else (taken[0][1:], taken[1])

    patch.setattr(Undo, "take", take)


def _not_undone(patch: pytest.MonkeyPatch) -> None:
    """A node that has led takes its state for the log's, wherever that ends."""
    patch.setattr(ShardState, "undoing", lambda self, after, piece=0: iter(()))


def _due_by_its_own_clock(patch: pytest.MonkeyPatch) -> None:
    """A node that starts takes for due what is so by its own clock, though another leads. Each starts ahead."""
    patch.setattr("tests.simulation.faults.AHEAD_RATE", 1.0)
    honest, shown = ShardState.finish_loading, [0.0]

    def recover(*where: Any) -> Any:
        shown[0] = where[4]()
        return recovery.recover(*where)

    def finish_loading(self: ShardState, now: float, rest: Callable[[], None] | None = None) -> None:
        honest(self, max(now, shown[0]), rest)
        self.placed_at = now

    patch.setattr("actors.node.assembly.recover", recover)
    patch.setattr(ShardState, "finish_loading", finish_loading)


def _never_ripe(patch: pytest.MonkeyPatch) -> None:
    """Followers leave it to the next leader to look what is due."""
    patch.setattr(Ripening, "followed", lambda self: None)


def _leases_not_read(patch: pytest.MonkeyPatch) -> None:
    """A state that is read from the disk does not know which messages somebody holds."""
    honest = ShardState.finish_loading

    def forgets(self: ShardState, now: float, rest: Callable[[], None] | None = None) -> None:
        for message in self.messages.values():
            if message.retry_s:
                message.place = Place.UNPLACED
        honest(self, now, rest)

    patch.setattr(ShardState, "finish_loading", forgets)


def _readers_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A node that starts takes it that nobody reads its log until it is told otherwise, which may be later."""
    begin, describe = Retention.__init__, HeadRows.describe

    def unread(self: Retention, limits: RetentionLimits) -> None:
        begin(self, limits)
        self.moved({})

    def unsaid(self: HeadRows, ledger: Ledger, *, is_leading: bool) -> None:
        seen, self.readers = self.readers, ledger.state.facts.readers
        describe(self, ledger, is_leading=is_leading)
        self.readers = seen

    patch.setattr(Retention, "__init__", unread)
    patch.setattr(HeadRows, "describe", unsaid)


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (_due_by_its_own_clock, "delivered at .* at the latest, due at"),
        (_leases_not_read, "is not the log's"),
        (_never_ripe, "says that it is delayed still"),
        (_undone_but_for_one, "is not the log's|AssertionError|KeyError"),
        (_not_undone, "is not the log's|AssertionError|KeyError"),
        (_votes_without_its_log, "is lost|committed other records|would be dropped"),
        pytest.param(_voted_before_saved, "both lead in vote", marks=pytest.mark.slow),
        (_logs_not_matched, "committed other records"),
        (_committed_by_one, "is lost|committed other records|would be dropped"),
        (_keys_dropped_on_failover, "both alive with the key|KeyError"),
    ],
)
def test_a_bug_planted_in_a_cluster_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert finds(says, seeds_for(plant), lambda seed: Run(seed, 3))


def _offer_dropped(patch: pytest.MonkeyPatch) -> None:
    """A consumer over queues of several shards goes on to the next when it has a message."""
    true = Seeking.answered

    def answered(self: Seeking, now: float, order: int, reply: Any) -> Any:
        if order not in self._watches and reply.msg_id is not None and self._to_try:
            reply = Reply(action=2, code=0)
        return true(self, now, order, reply)

    patch.setattr(Seeking, "answered", answered)


def _copy_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A produce to a virtual queue is done when it is stored in the first queue."""
    true = VirtualQueues.split

    def split(self: VirtualQueues, calls: Any, reply_to: Any) -> Any:
        first_alone = VirtualQueues({name: queues[:1] for name, queues in self.names.items()})
        return true(first_alone, calls, reply_to)

    patch.setattr(VirtualQueues, "split", split)


def _members_not_followed(patch: pytest.MonkeyPatch) -> None:
    """The shards beyond the first keep the members that they were founded with."""
    patch.setattr("actors.cluster.admin.to_be_removed", lambda current, root: None)
    patch.setattr("actors.cluster.admin.next_members", lambda current, root, shard: None)


@pytest.mark.parametrize(
    ("plant", "says", "size"),
    [
        (_offer_dropped, "is lost", 1),
        (_copy_forgotten, "copies of .* were stored", 1),
        (_members_not_followed, "has the members|come to agree", 3),
    ],
)
def test_a_bug_planted_in_shards_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert finds(says, seeds_for(plant), lambda seed: Run(seed, size, shards=2))


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (_told_before_written, "damaged"),
        (_told_when_begun, "damaged|is lost"),
        (_half_written_forgotten, "damaged|is lost"),
        (_backlog_forgotten, "is lost"),
        (_backlog_rows_kept, "after its confirmation|on the disk of node"),
        (_confirm_not_logged, "after its confirmation"),
        (_taken_before_logged, "delivered twice"),
        (_delivered_early, "due at"),
        (_readers_not_waited_for, "and archive has read up to"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert finds(says, seeds_for(plant), lambda seed: Run(seed, 1))


@pytest.mark.parametrize(
    ("plant", "says", "size"),
    [
        (_dropped_for_buried, "is lost", 1),
        (_half_cleared, "after its confirmation", 1),
    ],
)
def test_a_bug_that_a_steward_sees_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert finds(says, seeds_for(plant), lambda seed: Run(seed, size, has_steward=True))


def test_a_bug_planted_where_the_loop_writes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = ((seed, World(seed)) for seed in itertools.count(1))
    apt = (seed for seed, world in worlds if world.latencies is QUICK_DISK and not world.has_async_writes)
    _told_before_written_by_the_loop(monkeypatch)
    seeds = itertools.chain([FOUND_BY["_told_before_written_by_the_loop"]], itertools.islice(apt, SEEDS_MAX))
    assert finds("damaged|is lost", seeds, lambda seed: Run(seed, 1))


def _fence_open(patch: pytest.MonkeyPatch) -> None:
    """Whoever names a message settles it, whichever delivery is meant."""
    patch.setattr("actors.queues.named_messages._deliveries_of", lambda request, delivery: _Any())
    true = Confirming.confirm

    def confirm(self: Confirming, call: Any) -> None:
        call.request.delivery = None
        true(self, call)

    patch.setattr(Confirming, "confirm", confirm)


class _Any:
    """Equal to every count."""

    def __getitem__(self, msg_id: int) -> Any:
        return self

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def _extended_to_expiry(patch: pytest.MonkeyPatch) -> None:
    """A lease ends with its message's expiry, whatever was promised."""
    true = ShardState._extend

    def extend(self: ShardState, trans_id: int, record: Extend) -> None:
        live = [self.messages.get(msg_id) for msg_id in record.msg_ids]
        record.due_ats = [
            at if one is None else max(min(at, one.expires_at), one.due_at)
            for at, one in zip(record.due_ats, live, strict=True)
        ]
        true(self, trans_id, record)

    patch.setitem(state._APPLY, Extend, extend)


def _headers_lost(patch: pytest.MonkeyPatch) -> None:
    """A message that was delivered has its consumer for its only mark."""
    true = message_replies.view_of

    def view_of(*arguments: Any) -> MessageView:
        view = true(*arguments)
        view.headers = None
        return view

    patch.setattr("actors.queues.message_replies.view_of", view_of)


def _drop_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What is to be dropped when it expires waits as all others do."""
    patch.setattr("actors.queues.handing_out.is_dropped", lambda marks: False)
    patch.setattr("storage.queue_state.is_dropped", lambda marks: False)


def _dropped_unasked(patch: pytest.MonkeyPatch) -> None:
    """Everything is dropped when it expires."""
    patch.setattr("actors.queues.handing_out.is_dropped", lambda marks: True)
    patch.setattr("storage.queue_state.is_dropped", lambda marks: True)


def _origin_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A dead letter says of itself what it is by now."""
    true = ShardState._mark_dead

    def mark_dead(self: ShardState, message: Message, record: Bury, at: float, deliveries: int) -> None:
        true(self, message, record, at, message.deliveries)

    patch.setattr(ShardState, "_mark_dead", mark_dead)


def _cancelled_and_waits(patch: pytest.MonkeyPatch) -> None:
    """A wait that was cancelled goes on."""
    patch.setattr(Delivery, "cancel", lambda self, client, seq: bool(self.lines.of_client(client)))


def _moved_in_flight(patch: pytest.MonkeyPatch) -> None:
    """What somebody has in hand is moved."""
    some = moving._Looked.__iter__

    def all_of_them(self: moving._Looked) -> Iterator[Message]:
        yield from some(self)
        yield from [self._live[msg_id] for _, msg_id in self._origin.in_hand]

    patch.setattr(moving._Looked, "__iter__", all_of_them)


def _idle_kept(patch: pytest.MonkeyPatch) -> None:
    """A queue that nobody uses stays."""
    patch.setattr(IdleQueues, "configured", lambda self, queue, now: None)


def _used_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """A queue goes though it was used."""
    patch.setattr(IdleQueues, "used", lambda self, names, now: None)


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (_fence_open, "was confirmed when there were"),
        (_extended_to_expiry, "was extended by|was dropped|was ended"),
        (_headers_lost, "a full delivery says"),
        (_drop_forgotten, "to be dropped at"),
        (_dropped_unasked, "is lost|nobody had seen it"),
        (_origin_forgotten, "dead letter .* says"),
        (_cancelled_and_waits, "cancelled and not answered"),
        (_moved_in_flight, "was ended at"),
        (_idle_kept, "is still there"),
        (_used_unnoticed, "and was used at"),
    ],
)
def test_a_bug_that_workers_meet_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert finds(says, seeds_for(plant), lambda seed: Run(seed, 1, has_workers=True))
