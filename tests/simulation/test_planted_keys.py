"""As test_planted.py, for what clients meet whose keys replace, or who wait for a key."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from actors.queues.producing import Producing
from actors.queues.showing import Showing
from tests.simulation.run import Run
from tests.simulation.test_planted import finds, pytestmark, quiet, seeds_for

__all__ = ["pytestmark", "quiet"]


def _replaced_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A produce that replaces is answered early. All writes are slow: crashes within one are rare."""
    honest = Producing._answer_many
    for disk in ("QUICK_DISK", "SLOW_DISK"):
        patch.setattr(f"tests.simulation.world.{disk}", [0.02, 0.2])

    def early(self: Producing, *arguments: Any, has_replaced: bool) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self.ledger, "answer_when_committed", self.ledger.answer)
            honest(self, *arguments, has_replaced=has_replaced)

    patch.setattr(Producing, "_answer_many", early)


def _the_known_one_is_shown(patch: pytest.MonkeyPatch) -> None:
    """A show that wants another message is answered with the one that is known."""
    honest = Showing._named
    patch.setattr(Showing, "_named", lambda self, request: honest(self, replace(request, unless=None)))


def _kept_means_replaced(patch: pytest.MonkeyPatch) -> None:
    """A message that is to be kept is replaced."""
    patch.setattr("actors.queues.producing.KEEP", "none")
    patch.setattr("actors.queues.producing.REPLACE", "keep")


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (_replaced_before_it_is_durable, "was said to be|is known to be|was to keep|which message"),
        (_the_known_one_is_shown, "was said to be"),
        (_kept_means_replaced, "was to keep"),
    ],
)
def test_a_bug_that_clients_with_keys_meet_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert finds(says, seeds_for(plant), lambda seed: Run(seed, 1, has_replacers=True))
