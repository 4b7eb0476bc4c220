"""Python's garbage collector, in pieces that a turn of the loop has time for.

By itself it looks through young objects when so many more were made than ended since it last did. While a crowd's
requests come and those of the crowd before end, that is not for long: then it looked through 47,000 of them at once,
for 16 ms. So it is asked every now and then how many are young, and looks through them when they are a piece; through
those that have stayed, once more, when they are one. To ask touches all that are young, and took a follower 7 % of its
time when it did so every 5 ms; so it asks when they may have become a piece since, by what the process has worked.

What has stayed twice is old, and not looked through any more: that would take as long as all that is live. The node's
own objects end without it: none of them points to itself in a circle, and nor does anything of a client's connection,
with TLS or without, once it is gone.
"""

import gc
import time
from collections.abc import Callable
from typing import Final

PIECE: Final = 4_000
"""So many objects are looked through at a time, or fewer, where that took longer than `GOAL_S`: a list of a thousand
takes as long as a thousand objects."""

PIECE_MIN: Final = 250

MIDDLE: Final = 1_000
"""As `PIECE`, to begin with, of those that have stayed: what stays longest are lists, of blocks and of stretches."""

GOAL_S: Final = 0.0005

EVERY_S: Final = 0.005
GROWTH: Final = 1_500
"""So many objects that stay are made at most while the process works for so long: a busy loop's were counted."""


class Collector:
    """One process's. `begin`: from then on nothing is looked through but by `look`. `clock`: monotonic seconds;
    `worked`: seconds of processor time that the process has had."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, worked: Callable[[], float] = time.process_time
    ) -> None:
        self._clock = clock
        self._worked = worked
        self._look_at = 0.0
        self._look_at_worked = 0.0
        self._is_middle_full = False
        self._young_max = PIECE
        self._middle_max = MIDDLE

    def begin(self) -> None:
        """Take the collector over."""
        gc.disable()

    def look(self, now: float) -> bool:
        """Look through a piece, if there is one, `now` (monotonic seconds); whether there was. Called whenever the loop
        works."""
        if now < self._look_at:
            return False
        worked = self._worked()
        if worked < self._look_at_worked:  # so much work takes as much time at least
            self._look_at = now + self._look_at_worked - worked
            return False
        if self._is_middle_full:
            self._is_middle_full = False
            self._middle_max = self._look_through(1, self._middle_max)  # and what is young, with them
            self._wait(now, worked, self._young_max)
            return True
        room = self._young_max - len(gc.get_objects(generation=0))
        has_piece = room <= min(GROWTH, self._young_max // 2)
        if has_piece:
            self._young_max = self._look_through(0, self._young_max)
            self._is_middle_full = len(gc.get_objects(generation=1)) >= self._middle_max
            room = 0 if self._is_middle_full else self._young_max
        self._wait(now, worked, room)
        return has_piece

    def _wait(self, now: float, worked: float, room: int) -> None:
        """Look again when the process may have made so many objects."""
        wait_s = EVERY_S * max(room / GROWTH, 1.0)
        self._look_at, self._look_at_worked = now + wait_s, worked + wait_s

    def _look_through(self, generation: int, piece: int) -> int:
        """Look through what is as young as that; how large the next piece may be."""
        begun = self._clock()
        gc.collect(generation)
        took_s = self._clock() - begun
        return max(int(piece * GOAL_S / took_s), PIECE_MIN) if took_s > GOAL_S else min(piece + piece // 4, PIECE)
