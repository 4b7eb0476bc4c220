"""Who is turned away at a port is logged, at a bounded rate. A machine, but for its logger."""

import logging
from typing import Final

REFUSED_MAX: Final = 100
"""So many that were refused are remembered."""

QUIET_S: Final = 60.0
"""Who was refused is told of again after so long, if it still comes."""

FAULT_CHARACTERS: Final = 40
"""By its first so many a reason is known again: it may hold numbers that differ."""

LINES_MAX: Final = 20
"""Lines about those who are refused, within `QUIET_S`."""


class Refusals:
    """Logs who is refused on the port `where`: each once in a while, and so many lines at most."""

    def __init__(self, logger: logging.Logger, where: str) -> None:
        self._logger = logger
        self._where = where
        self._logged_at: dict[str, float] = {}
        self._begun_at = 0.0
        self._lines = 0
        self._unsaid = 0

    def log(self, now: float, who: str, fault: str) -> None:
        """They are refused for that, at `now` (monotonic s). `who` empty: where they are is not known."""
        who = who or "somebody"
        if now - self._begun_at >= QUIET_S:
            if self._unsaid:
                self._logger.warning("%d more were refused on %s", self._unsaid, self._where)
            self._begun_at, self._lines, self._unsaid = now, 0, 0
        known = f"{who}: {fault[:FAULT_CHARACTERS]}"
        known_at = self._logged_at.pop(known, None)
        if (known_at is not None and now - known_at < QUIET_S) or self._lines >= LINES_MAX:
            if known_at is not None:
                self._logged_at[known] = known_at
            self._unsaid += 1
            return
        while len(self._logged_at) >= REFUSED_MAX:
            del self._logged_at[next(iter(self._logged_at))]
        self._logged_at[known] = now
        self._lines += 1
        self._logger.warning("%s is refused on %s: %s", who, self._where, fault)
