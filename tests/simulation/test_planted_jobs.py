"""As test_planted.py, for what clients of Disque's and gmq's meet."""

from collections.abc import Callable
from typing import Any

import pytest

from actors.queues.settling import Confirming
from storage.split_dict import SplitDict
from storage.state import ShardState
from storage.tenures import Tenures
from tests.simulation.run import Run
from tests.simulation.test_planted import finds, pytestmark, quiet, seeds_for

__all__ = ["pytestmark", "quiet"]


def _kept_given_back(patch: pytest.MonkeyPatch) -> None:
    """A job that is to be got once at most is queued again by NACK."""
    patch.setattr("actors.queues.settling._is_over", lambda message: False)


def _leader_mixed_up(patch: pytest.MonkeyPatch) -> None:
    """A job's id names the node that leads by now, and not the one that led when it was made."""
    patch.setattr(Tenures, "at", lambda self, trans_id: self.rows[-1].node_id if self.rows else 0)


def _key_of_all_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """Two messages get one key."""
    patch.setattr("actors.queues.producing.Producing._holder", lambda self, made: None)


def _held_confirmed_early(patch: pytest.MonkeyPatch) -> None:
    """A confirmation is answered before it is durable. All writes are slow: crashes within one were one seed in 200."""
    honest = Confirming._confirm_held
    for disk in ("QUICK_DISK", "SLOW_DISK"):
        patch.setattr(f"tests.simulation.world.{disk}", [0.02, 0.2])

    def early(self: Confirming, call: Any) -> None:
        ledger = self._ledger
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ledger, "answer_when_committed", ledger.answer)
            honest(self, call)

    patch.setattr(Confirming, "_confirm_held", early)


def _key_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A state that is read from the disk does not know whose keys are one among all."""
    honest = ShardState.finish_loading

    def forgets(self: ShardState, now: float, rest: Callable[[], None] | None = None) -> None:
        honest(self, now, rest)
        self.keys = SplitDict()

    patch.setattr(ShardState, "finish_loading", forgets)
    patch.setattr(ShardState, "check", lambda self: None)


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (_key_of_all_unnoticed, "was taken twice"),
        (_held_confirmed_early, "came back after|is known to be otherwise|had been so before|and was acknowledged"),
        (_key_forgotten, "was taken twice|is lost|is known to be otherwise"),
    ],
)
def test_a_bug_that_clients_of_gmqs_meet_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert finds(says, seeds_for(plant), lambda seed: Run(seed, 1, has_gophers=True))


@pytest.mark.parametrize(
    ("plant", "says", "size"),
    [
        (_kept_given_back, "got twice, and is at most once", 1),
        (_leader_mixed_up, "and is called", 3),
    ],
)
def test_a_bug_that_clients_of_disques_meet_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert finds(says, seeds_for(plant), lambda seed: Run(seed, size, has_jobbers=True))
