"""Which names a list is of."""

import re
from fnmatch import translate


class Pattern:
    """What names are to match: shell wildcards if it has any, else a part of the name; None: any name.

    `cost`: how many of its characters are compared with each of a name.
    """

    def __init__(self, pattern: str | None) -> None:
        self.is_any = not pattern
        self._part = pattern or ""
        has_wildcards = any(character in self._part for character in "*?[")
        self._expression = re.compile(translate(self._part)) if has_wildcards else None
        self.cost = len(self._part) if has_wildcards else 0

    def matches(self, name: str) -> bool:
        """Whether that is one of them."""
        return self._part in name if self._expression is None else self._expression.match(name) is not None
