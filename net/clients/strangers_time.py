"""What strangers may take of a worker's time, so that they hold nobody up who has shown a token. A machine.

All strangers together have a share of the loop's time. Who has made the loop work for longer than a moment is not heard
again before that has been paid for: what he took, and all others before him, makes the share. Small requests cost
nothing. Who comes with something large while there is a debt waits until that is paid before he is heard at all: else
a new connection for each such request would be a way around.
"""

from typing import Final

SHARE: Final = 0.2
"""Of the time, what strangers get who cost more than `FREE_S` at once."""

FREE_S: Final = 0.001
"""What one of them may take at once and is not reckoned for."""


class StrangersTime:
    """One worker's. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._paid_at = 0.0

    def spent(self, now: float, took_s: float) -> float:
        """A stranger has taken so much; for how long he rests (s), 0 if he may go on."""
        if took_s < FREE_S:
            return 0.0
        self._paid_at = max(now, self._paid_at) + took_s * (1.0 / SHARE - 1.0)
        return self._paid_at - now

    def owed(self, now: float) -> float:
        """For how long it takes to pay for what strangers took (s)."""
        return self._paid_at - now
