"""Waiting for a port that a killed node gives up: it does a moment after it gives up the lock of its folder."""

import errno
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

GOING_S: Final = 0.5
"""Who has a port for longer than that is somebody else."""


def when_free(bind: Callable[[], T]) -> T:
    """Bind it, again and again while somebody has it. Raises OSError."""
    until = time.monotonic() + GOING_S
    while True:
        try:
            return bind()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
        time.sleep(GOING_S / 50)
