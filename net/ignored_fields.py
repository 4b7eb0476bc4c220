"""What requests have that no request has, and were done without, as the original does: counted, and logged."""

import logging
import time
from typing import Final

log = logging.getLogger("quorate.net")

QUIET_S: Final = 60.0
"""Between two lines of the log."""

NAMES_MAX: Final = 16
"""So many names a line has."""


class IgnoredFields:
    """Of one worker's clients. `count`: such requests since it began."""

    def __init__(self) -> None:
        self.count = 0
        self._unlogged: dict[str, int] = {}
        self._quiet_until = 0.0

    def note(self, names: list[str]) -> None:
        """Count a request that had fields of these names; the log gets the names, once a minute."""
        self.count += 1
        for name in names:
            if name in self._unlogged or len(self._unlogged) < NAMES_MAX:
                self._unlogged[name] = self._unlogged.get(name, 0) + 1
        now = time.monotonic()
        if now < self._quiet_until:
            return
        self._quiet_until = now + QUIET_S
        named = ", ".join(f"{name!r} ({times})" for name, times in self._unlogged.items())
        self._unlogged.clear()
        log.warning("requests had fields that there are not, and were done without them: %s", named)
