"""Python's garbage collector, in pieces that a turn of the loop has time for.

By itself it looks through young objects when so many more were made than ended since it last did. While a crowd's
requests come and those of the crowd before end, that is not for long: then it looked through 47,000 of them at once,
for 16 ms. So it is asked every now and then how many are young, and looks through them when they are `PIECE`; through
those that have stayed, once more, when they are as many. What has stayed twice is old, and not looked through any
more: that would take as long as all that is live. The node's own objects end without it: none of them points to itself
in a circle, and nor does anything of a client's connection, with TLS or without, once it is gone.
"""

import gc
from typing import Final

PIECE: Final = 4_000
"""So many objects are looked through at a time: 1 ms or less."""

EVERY_S: Final = 0.005
"""How often young objects are counted, while the loop works: a busy one makes 1,500 in that time that stay."""


class Collector:
    """One process's. `begin`: from then on nothing is looked through but by `look`."""

    def __init__(self) -> None:
        self._look_at = 0.0
        self._is_middle_full = False

    def begin(self) -> None:
        """Take the collector over."""
        gc.disable()

    def look(self, now: float) -> None:
        """Look through a piece, if there is one, `now` (monotonic seconds); called whenever the loop works."""
        if now < self._look_at:
            return
        self._look_at = now + EVERY_S
        if self._is_middle_full:
            self._is_middle_full = False
            gc.collect(1)
        elif len(gc.get_objects(generation=0)) >= PIECE:
            gc.collect(0)
            self._is_middle_full = len(gc.get_objects(generation=1)) >= PIECE
