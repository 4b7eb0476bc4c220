"""What the JSON codec reads of an object that is no request. Apart, since mypyc compiles neither kind of class."""

from typing import Any

import msgspec


class Loose(msgspec.Struct):
    """What can be said of a request that is wrong elsewhere, so that its client recognises the reply."""

    action: Any = 0
    queue: Any = None
    seq: Any = None


class Noted(dict[str, Any]):
    """A JSON object that remembers the first of its fields that stood there twice, if any did."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        self.twice: str | None = None
        for name, value in pairs:
            if name in self and self.twice is None:
                self.twice = name
            self[name] = value
