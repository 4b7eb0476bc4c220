"""Which limits were reached lately: each is logged once, and again when it was not reached for a while."""

import logging
from typing import Final

from actors.messages.client_counts import ClientCounts

CALM_SWEEPS: Final = 60
"""A limit that was not reached for so many sweeps is logged again when it is."""

NAMES_MAX: Final = 100


class ReachedLimits:
    """Of one Listener, which says them to `log`, and to others in its `counts`."""

    def __init__(self, log: logging.Logger, counts: ClientCounts) -> None:
        self._log = log
        self._counts = counts
        self._quiet_sweeps: dict[str, int] = {}

    def note(self, limit: str, what: str) -> None:
        """It is reached: `what` says so."""
        known = self._quiet_sweeps
        if limit not in known and len(known) < NAMES_MAX:
            self._log.warning(
                "a limit is reached: %s; more is refused (logged once, until it was not for a minute)", what
            )
        known[limit] = 0
        self._counts.limits_reached = sorted(known)

    def sweep(self) -> None:
        """Time has passed."""
        known = self._quiet_sweeps
        self._quiet_sweeps = {limit: quiet + 1 for limit, quiet in known.items() if quiet < CALM_SWEEPS}
        self._counts.limits_reached = sorted(self._quiet_sweeps)
