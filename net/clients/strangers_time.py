"""What strangers may take of a worker's time, so that they hold nobody up who has shown a token. A machine.

All strangers together have a share of the loop's time. Who has made the loop work for something large is not heard
again before that has been paid for: what he took, and all others before him, makes the share. What is small counts for
one turn alone (`ReadingTurn`). Who comes with something large while there is a debt waits until that is paid before he
is heard at all: else a new connection for each such request would be a way around.

A turn that takes long delays whoever asks meanwhile, so the share is another for what is long at once: with a fifth of
the time spent in turns of 20 ms, one request of five waits for 10 ms; with a two-hundredth, one of two hundred does,
and the p99 of all others stays what it was.
"""

from typing import Final

SHARE: Final = 0.2
"""Of the time, what strangers get for what is large, in turns that are short."""

LONG_S: Final = 0.002
"""Of a turn's time, what delays nobody by much more than a disk or a network does."""

LONG_SHARE: Final = 0.005
"""Of the time, what strangers get for what a turn takes beyond `LONG_S`."""

SMALL_BYTES: Final = 16 << 10
"""A request, a piece of one, or a reply of so many bytes is small."""

MANY: Final = 100
"""A request about more messages than this is not small, however few bytes it has: each takes its time at every node."""

QUANTUM_S: Final = 0.005
"""What strangers may owe before one of them rests: to stop reading and begin again costs as much as to read 64 KiB."""

OWED_MAX_S: Final = 20.0
"""More is forgotten: what is large is refused long before, and nobody is kept waiting for what a crowd has done."""

FREE_S: Final = 0.001
"""What something small may take and is not reckoned for."""


class StrangersTime:
    """One worker's. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._paid_at = 0.0

    def spent(self, now: float, took_s: float, size: int, turns: float = 1.0) -> float:
        """Reckon a stranger's `size` bytes, which have taken so much of each of `turns` turns, here and at other
        nodes; for how long he rests (s), 0 if he may go on."""
        if size <= SMALL_BYTES and took_s < FREE_S:
            return 0.0
        beyond_s = max(took_s - LONG_S, 0.0)
        rest_s = (took_s - beyond_s) * (1.0 / SHARE - 1.0) + beyond_s * (1.0 / LONG_SHARE - 1.0)
        self._paid_at = min(max(now, self._paid_at) + turns * rest_s, now + OWED_MAX_S)
        return self.owed(now)

    def owed(self, now: float) -> float:
        """For how long it takes to pay for what strangers took (s); 0 while they need not rest."""
        owed_s = self._paid_at - now
        return owed_s if owed_s > QUANTUM_S else 0.0
