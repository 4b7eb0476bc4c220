"""What a job says while it runs: whoever shows it decides how."""

from typing import Protocol


class Progress(Protocol):
    """One job's."""

    def step(self, what: str, done: int | None = None, total: int | None = None) -> None:
        """Show that `what` goes on; `done` of `total` are behind it, where that is known."""


class Silent:
    """Says nothing."""

    def step(self, what: str, done: int | None = None, total: int | None = None) -> None:
        """Nothing."""
