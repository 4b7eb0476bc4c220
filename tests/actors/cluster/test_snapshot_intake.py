"""A snapshot comes over a slow link once: a part is asked for again only when nothing has come for a while."""

from types import SimpleNamespace
from typing import Any

import pytest

from actors.cluster.decisions import Decisions
from actors.cluster.following import PULL_RETRY_S, Pace
from actors.cluster.snapshot_intake import PATIENCE_S, SnapshotIntake
from actors.messages.checkpoints import PartStaged, StagePart
from actors.messages.peers import SendPeers
from net.peers.messages import SnapshotNeeded, SnapshotPull, SnapshotRows

TRIMMED = 1000
PART_BYTES = 256 << 10
PARTS = 80
TICK_S = 0.02


class Link:
    """A leader's snapshot of `PARTS` parts, on its way at so many bytes a second; it answers each time it is asked."""

    def __init__(self, bytes_per_s: float, hears: bool) -> None:
        log: Any = SimpleNamespace(is_behind=lambda trimmed: trimmed >= TRIMMED, is_installing=False)
        self.role: Any = SimpleNamespace(leader=2, vote_id=3)
        self.intake = SnapshotIntake(log, Pace(1_000_000, 0.0), None)
        self.now = 0.0
        self.sent = 0
        self.is_whole = False
        self._hears = hears
        self._bytes_per_s = bytes_per_s
        self._on_its_way: list[tuple[float, int]] = []
        self._free_at = 0.0

    def _do(self, decisions: Decisions) -> None:
        for decision in decisions:
            if isinstance(decision, SendPeers):
                assert isinstance(decision.message, SnapshotPull)
                number = int(decision.message.cursor or b"0")
                self._free_at = max(self._free_at, self.now) + PART_BYTES / self._bytes_per_s
                self._on_its_way.append((self._free_at, number))
                self.sent += 1
            else:
                assert isinstance(decision, StagePart)
                self.is_whole = self.intake.staged(self.now, PartStaged(decision.part, 2))
                self._do(self.intake.ask(self.now, self.role))

    def run(self, seconds: float) -> None:
        self._do(self.intake.needed(self.now, self.role, SnapshotNeeded(3, TRIMMED)))
        until = self.now + seconds
        while self.now < until and not self.is_whole:
            self.now += TICK_S
            if self._on_its_way and self._hears:
                self.intake.receiving(self.now)
            while self._on_its_way and self._on_its_way[0][0] <= self.now:
                _, number = self._on_its_way.pop(0)
                cursor, after = str(number + 1).encode(), str(number).encode() if number else b""
                rows = SnapshotRows(3, TRIMMED, 3, b"", [], cursor, number == PARTS - 1, after)
                self._do(self.intake.rows(self.now, self.role, rows))
            self._do(self.intake.tick(self.now, self.role))


@pytest.mark.parametrize("bytes_per_s", [100_000, 500_000, 50_000_000])
def test_each_part_is_sent_once_however_slow_the_link_is(bytes_per_s: int) -> None:
    """At 500 kB/s 5,095 parts were sent for 80, and what takes 42 s took 43 minutes."""
    link = Link(bytes_per_s, hears=True)
    link.run(3600.0)
    assert link.is_whole
    assert link.sent == PARTS
    assert link.now <= 1.1 * PARTS * (PART_BYTES / bytes_per_s + TICK_S)


def test_what_does_not_come_is_asked_for_again() -> None:
    link = Link(1.0, hears=False)
    link.run(PULL_RETRY_S * 3.5)
    assert link.sent == 4


def test_other_things_that_come_in_do_not_put_that_off_for_ever() -> None:
    link = Link(1.0, hears=True)
    link.run(PATIENCE_S + 2 * PULL_RETRY_S)
    assert link.sent == 2


def test_over_a_new_link_it_is_asked_for_at_once() -> None:
    link = Link(1.0, hears=True)
    link.run(0.1)
    link.intake.linked(link.now)
    link.run(0.1)
    assert link.sent >= 2
