"""A machine whose calls' decisions are kept until they are looked at."""

from typing import Any


class Recorded:
    """Passes every call on to `machine`; `take_out` gives what all calls since the last time have decided."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.out: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.machine, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            decided = found(*arguments, **named)
            if isinstance(decided, list):
                self.out += decided
            return decided

        return call

    def take_out(self) -> list[Any]:
        """The decisions, in order; they are the caller's now."""
        out, self.out = self.out, []
        return out

    def take(self, *kinds: type) -> list[Any]:
        """The decisions of these kinds; all others stay."""
        found = [decision for decision in self.out if isinstance(decision, kinds)]
        self.out = [decision for decision in self.out if not isinstance(decision, kinds)]
        return found
