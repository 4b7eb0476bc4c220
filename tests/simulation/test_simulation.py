"""Whole nodes under faults, some hundreds of seeds; and that every checker catches the bug it is there for."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.delivery import Delivery
from actors.disk_lane import DiskLane
from actors.ledger import Ledger
from actors.messages import BytesWritten, WriteBytes
from storage.errors import StorageError
from storage.log_store import LogStore, TrimPlan, TrimRows
from storage.records import Confirm
from tests.simulation.run import Run

SEEDS = range(1, 201)
SEEDS_FOR_A_PLANTED_BUG = 60


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


def test_the_seeds_reach_the_rare_branches() -> None:
    outcomes = [Run(seed).go() for seed in range(1, 80)]
    assert sum(outcome.crashes for outcome in outcomes) > 100
    assert sum(outcome.requests for outcome in outcomes) > 5000


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
        true(self, plan, TrimRows([], rows.queues))

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


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (_told_before_written, "damaged"),
        (_backlog_forgotten, "is lost"),
        (_backlog_rows_kept, "after its confirmation"),
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
            problems = Run(seed).go().problems
        except (AssertionError, StorageError) as error:
            problems = [str(error)]
        if any(says in problem for problem in problems):
            return
    pytest.fail(f"{SEEDS_FOR_A_PLANTED_BUG} seeds did not find it")
