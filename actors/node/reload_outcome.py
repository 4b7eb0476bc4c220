"""What came of the last reload: the supervisor notes it in the data folder, and `qctl node reload` waits for it."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FILE: Final = "reload.json"

WAIT_S: Final = 3.0
"""Whoever asked for a reload is told of workers that have not taken it by then."""


@dataclass(frozen=True)
class ReloadOutcome:
    """Of the `serial`-th reload of supervisor `pid`: a line for each thing `said`; `is_taken` False: all stays.

    `without` names the workers that do not go by it, for a line of `said` each.
    """

    pid: int
    serial: int
    is_taken: bool
    said: list[str]
    without: list[str]


class Reload:
    """One reload under way: waits until every worker that was told of it goes by it, at most until `until`.

    Times are of the monotonic clock, in s. A later reload takes an earlier one's place: its asker sees the later one.
    """

    def __init__(self, serial: int, said: Iterable[str], told: Iterable[str], now: float, *, is_taken: bool) -> None:
        self.serial = serial
        self.until = now + WAIT_S
        self._said = list(said)
        self._is_taken = is_taken
        self._awaited = set(told)
        self._without: list[str] = []

    def answered(self, worker: str, serial: int, faults: Iterable[str]) -> None:
        """Note that a worker goes by the configuration of that reload, or does not for these reasons."""
        if serial != self.serial or worker not in self._awaited:
            return
        self._awaited.discard(worker)
        reasons = "; ".join(faults)
        if reasons:
            self._lacks(worker, f"{worker} has not taken all of it: {reasons}")

    def gone(self, worker: str) -> None:
        """Note that a worker has ended: it is started with what was read."""
        self._awaited.discard(worker)

    def outcome(self, now: float) -> ReloadOutcome | None:
        """Say what came of it; None while there is reason to wait."""
        if self._awaited and now < self.until:
            return None
        for worker in sorted(self._awaited):
            self._lacks(worker, f"{worker} has not taken it yet, and will when it can")
        self._awaited.clear()
        return ReloadOutcome(os.getpid(), self.serial, self._is_taken, self._said, self._without)

    def _lacks(self, worker: str, said: str) -> None:
        self._without.append(worker)
        self._said.append(said)


def note(folder: Path, outcome: ReloadOutcome) -> None:
    """Write it, whole or not at all. Raises OSError."""
    beside = folder / f"{FILE}.new"
    beside.write_text(json.dumps(asdict(outcome)) + "\n", encoding="utf-8")
    os.replace(beside, folder / FILE)


def last(folder: Path) -> ReloadOutcome | None:
    """Read what was noted last; None if nothing was, or it can't be read."""
    try:
        return ReloadOutcome(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
