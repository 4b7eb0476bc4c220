"""Ends a wait of the sync client early, from another thread or a signal handler."""

import socket
from contextlib import suppress

from quorate.after_fork import forget_after_fork


class Interrupt:
    """Given to a consume or a watch that waits: when it is set, the node is told, and that request is over at once.

    What the node had given out by then is still returned. It stays set until `clear`.

    Sockets, not a pipe: those that eventlet puts in the system's place keep to it that they don't block; its `os.read`
    does not.
    """

    _hears: socket.socket | None = None
    """None, where the system had none to give."""

    def __init__(self) -> None:
        self._pair()
        forget_after_fork(self)

    def _pair(self) -> None:
        self._hears, self._says = socket.socketpair()
        self._hears.setblocking(False)
        self._says.setblocking(False)
        self.is_set = False

    def after_fork(self) -> None:
        """In a child: its parent is not to be woken up, or robbed of its word."""
        self._close()
        self._pair()

    def set(self) -> None:
        """Whoever waits with it waits no longer."""
        self.is_set = True
        with suppress(BlockingIOError):  # it was said often enough
            self._says.send(b"x")

    def clear(self) -> None:
        """Let waits last again. By whom it is given to requests, when none is under way."""
        self.is_set = False
        assert self._hears is not None, "it was made"
        with suppress(BlockingIOError):
            while self._hears.recv(64):
                pass

    def fileno(self) -> int:
        """Readable once it is set."""
        assert self._hears is not None, "it was made"
        return self._hears.fileno()

    def _close(self) -> None:
        if self._hears is not None:
            self._hears.close()
            self._says.close()

    def __del__(self) -> None:
        self._close()
