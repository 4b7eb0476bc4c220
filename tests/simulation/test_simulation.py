"""Whole nodes under faults, some hundreds of seeds; and that every checker catches the bug it is there for."""

import logging
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.cluster.following import Following
from actors.cluster.leading import Leading
from actors.disk.disk_lane import DiskLane
from actors.gateway.seeking import Seeking
from actors.gateway.virtual_queues import VirtualQueues
from actors.messages.disk import BytesWritten, IdentitySaved, SaveIdentity, WriteBytes
from actors.queues.delivery import Delivery
from actors.queues.ledger import Ledger
from net.peers.messages import Pull, Push
from quorate.protocol import Reply
from storage.errors import StorageError
from storage.log_store import LogStore, TrimPlan, TrimRows
from storage.records import Confirm, Message
from storage.state import ShardState
from tests.simulation.observe import RARE
from tests.simulation.run import Outcome, Run

SEEDS = range(1, 201)
SEEDS_OF_SHARDS = range(1, 25)
SEEDS_FOR_A_PLANTED_BUG = 60
SEEDS_FOR_A_CLUSTERS_BUG = 200

FOUND_BEFORE: list[tuple[int, int | None]] = [
    (2026, 3),  # a leader that was elected again was not followed in its new vote_id
    (37, 3),  # a node with a new disk, passing the cluster's founding in the log, took itself for the founder
    (347, 3),  # on its way through the log a node refused its leader, which had been removed once
    (81, 3),  # a follower was told to keep the very record that the logs do not agree on
    (678, 3),  # ... and could not answer a leader that was no member then
    (20729, 5),  # a follower that had parted from the leader right at the log's head
    (2308, None),  # what a deposed node was asked about itself was forgotten when it led again
    (160, None),  # the answer to a request of a node's earlier life was taken for one to a request of the new one
    (31636, None),  # a new node never heard that the leader belongs to a cluster by now, and waited for ever
    (30918, None),  # a new node that had the first record of another's log, and no more, founded a cluster of its own
    (2584, None),  # a new node took itself for one of the cluster that a stranger named
    (72083, None),  # the removal of a node was said to be done by a leader that stepped down before it was committed
    (350, 3),  # the leader's clock ran fast when it was read often
]


FOUND_BEFORE_IN_SHARDS = [
    100116,  # a shard whose founder crashed behind its first record was never founded
    105458,  # a node was removed once more by an old request, whose client had asked again and then added the node
    100644,  # a part of the raw log was larger than the frames that this test allowed
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Recovery's warnings about torn writes are what these tests ask for."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", range(4))
def test_nothing_acknowledged_is_lost_and_nothing_confirmed_comes_back(part: int) -> None:
    for seed in SEEDS[part::4]:
        outcome = Run(seed).go()
        assert not outcome.problems, f"repeat with: python -m tests.simulation --seed {seed}"


@pytest.mark.parametrize(("seed", "size"), FOUND_BEFORE)
def test_what_was_found_once_stays_mended(seed: int, size: int | None) -> None:
    assert not Run(seed, size).go().problems, f"repeat with: --seed {seed} --nodes {size}"


@pytest.mark.parametrize("part", range(2))
def test_several_shards_lose_nothing_and_agree_who_is_a_member(part: int) -> None:
    for seed in SEEDS_OF_SHARDS[part::2]:
        assert not Run(seed, shards=0).go().problems, f"repeat with: --seed {seed} --shards 0"


@pytest.mark.parametrize("seed", FOUND_BEFORE_IN_SHARDS)
def test_what_was_found_in_shards_stays_mended(seed: int) -> None:
    assert not Run(seed, shards=0).go().problems, f"repeat with: --seed {seed} --shards 0"


def test_the_seeds_reach_the_rare_branches() -> None:
    outcomes: list[Outcome] = []
    reached: Counter[str] = Counter()
    for seed in range(1, 500):  # the rarest are reached by one seed in a hundred
        outcomes.append(Run(seed).go())
        reached += outcomes[-1].reached
        if len(outcomes) >= 60 and set(RARE) == set(reached):
            break
    assert {outcome.nodes for outcome in outcomes} == {1, 3, 5}
    assert sum(outcome.crashes for outcome in outcomes) > 100
    assert sum(outcome.requests for outcome in outcomes) > 5000
    assert sum(outcome.elections for outcome in outcomes) > 100
    assert set(RARE) == set(reached), "every rare branch is reached"


def test_one_seed_gives_one_trace_in_any_process() -> None:
    code = "from tests.simulation.run import Run; print(Run(7).go().trace)"
    traces = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "2")
    }
    assert len(traces) == 1
    assert traces != {Run(8).go().trace + "\n"}


def _told_before_written(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge before it is on disk."""
    true = DiskLane.on_receive

    def on_receive(self: DiskLane, message: Any) -> None:
        if isinstance(message, WriteBytes):
            message.reply_to.tell(BytesWritten(message.write))
            self.runtime.call_later(
                0.05, lambda: message.write.file.write_durably_at(message.write.offset, message.write.data)
            )
        else:
            true(self, message)

    patch.setattr(DiskLane, "on_receive", on_receive)


def _backlog_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Trim without moving live messages into the backlog."""
    true = LogStore.trim

    def trim(self: LogStore, plan: TrimPlan, rows: TrimRows) -> None:
        true(self, plan, TrimRows([], rows.queues, rows.members))

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
    patch.setattr(Ledger, "park", Ledger.answer)


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

    def trim(self: LogStore, plan: TrimPlan, rows: TrimRows) -> None:
        true(self, plan._replace(maybe_stored=set()), rows)

    patch.setattr(LogStore, "trim", trim)


def _voted_before_saved(patch: pytest.MonkeyPatch) -> None:
    """Tell a vote before it is on disk; the disk gets it later, if the power stays on."""
    true = DiskLane.on_receive

    def on_receive(self: DiskLane, message: Any) -> None:
        if isinstance(message, SaveIdentity):
            message.reply_to.tell(IdentitySaved(message.identity))
            self.runtime.call_later(30.0, lambda: self._vote_file.save(message.identity))
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
        if isinstance(record, Message) and record.key is not None:
            self.queues[record.queue].keys.pop(record.key, None)
            record.key = None

    patch.setattr(ShardState, "follow", follow)


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (_voted_before_saved, "both lead in vote"),
        (_logs_not_matched, "committed other records"),
        (_committed_by_one, "is lost|committed other records|would be dropped"),
        (_keys_dropped_on_failover, "both alive with the key|KeyError"),
    ],
)
def test_a_bug_planted_in_a_cluster_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(1, SEEDS_FOR_A_CLUSTERS_BUG):
        try:
            problems = Run(seed, 3).go().problems
        except (AssertionError, StorageError) as error:
            problems = [str(error)]
        if any(re.search(says, problem) for problem in problems):
            return
    pytest.fail(f"{SEEDS_FOR_A_CLUSTERS_BUG} seeds did not find it")


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
    for seed in range(1, SEEDS_FOR_A_PLANTED_BUG):
        try:
            problems = Run(seed, size, shards=2).go().problems
        except (AssertionError, StorageError) as error:
            problems = [str(error)]
        if any(re.search(says, problem) for problem in problems):
            return
    pytest.fail(f"{SEEDS_FOR_A_PLANTED_BUG} seeds did not find it")


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (_told_before_written, "damaged"),
        (_backlog_forgotten, "is lost"),
        (_backlog_rows_kept, "after its confirmation|on the disk of node"),
        (_confirm_not_logged, "after its confirmation"),
        (_taken_before_logged, "delivered twice"),
        (_delivered_early, "due at"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(1, SEEDS_FOR_A_PLANTED_BUG):
        try:
            problems = Run(seed, 1).go().problems
        except (AssertionError, StorageError) as error:
            problems = [str(error)]
        if any(re.search(says, problem) for problem in problems):
            return
    pytest.fail(f"{SEEDS_FOR_A_PLANTED_BUG} seeds did not find it")
