"""TurnedAway: clients that found no place, did not get as far as a connection, or broke their protocol. A part of the
Listener. Each is told to the log with its address, and not so often that telling it is the harm.
"""

import logging
from typing import Final

from actors.runtime.contract import Runtime, Timer
from net.clients.connection import Connection
from net.refusals import Refusals

log = logging.getLogger("quorate.clients")

REFUSED_S: Final = 3.0
"""A client that found no place has so long to read that."""

REFUSED_MAX: Final = 100
"""So many of them at once; others are closed without a word."""

BROKEN: Final = "what it sent, or was to be answered, broke the protocol: {!r}"


class TurnedAway:
    """Of one worker."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._refusals = Refusals(log, "the clients' ports")
        self._without_place: dict[Connection, Timer] = {}

    def no_place(self, connection: Connection) -> None:
        """Tell it why, and close it: nobody sweeps it."""
        if len(self._without_place) >= REFUSED_MAX:
            connection.abort()
        else:
            self._without_place[connection] = self._runtime.call_later(REFUSED_S, connection.abort)

    def closed(self, connection: Connection) -> None:
        """Forget a client that is gone."""
        timer = self._without_place.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def broke(self, who: str, error: Exception) -> None:
        """Let whoever made its session raise pay, and nobody else."""
        self.note(who, BROKEN.format(error))

    def note(self, address: str, why: str) -> None:
        """Somebody at that address was turned away."""
        self._refusals.log(self._runtime.monotonic(), address, why)
