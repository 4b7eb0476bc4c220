"""Ends a wait of the sync client early, from another thread or a signal handler."""

import os
from contextlib import suppress

from quorate.after_fork import forget_after_fork


class Interrupt:
    """Given to a consume or a watch that waits: when it is set, the node is told, and that request is over at once.

    What the node had given out by then is still returned. It stays set until `clear`.
    """

    _hears = _says = -1
    """None, where the system had none to give."""

    def __init__(self) -> None:
        self._pipe()
        forget_after_fork(self)

    def _pipe(self) -> None:
        self._hears, self._says = os.pipe()
        os.set_blocking(self._hears, False)
        os.set_blocking(self._says, False)
        self.is_set = False

    def after_fork(self) -> None:
        """In a child: its parent is not to be woken up, or robbed of its word."""
        self._close()
        self._pipe()

    def set(self) -> None:
        """Whoever waits with it waits no longer."""
        self.is_set = True
        with suppress(BlockingIOError):  # it was said often enough
            os.write(self._says, b"x")

    def clear(self) -> None:
        """Waits last again. By whom it is given to requests, when none is under way."""
        self.is_set = False
        with suppress(BlockingIOError):
            while os.read(self._hears, 64):
                pass

    def fileno(self) -> int:
        """Readable once it is set."""
        return self._hears

    def _close(self) -> None:
        for descriptor in (self._hears, self._says):
            if descriptor >= 0:
                os.close(descriptor)

    def __del__(self) -> None:
        self._close()
