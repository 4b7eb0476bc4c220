"""Threads that a part of the library begins when it has something to do."""

import threading
from collections.abc import Callable


def started(work: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread for `work`. Raises RuntimeError where the system has none to give: keep nothing of it then."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
