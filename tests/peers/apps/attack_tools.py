"""What attacks on task queues have in common."""

import os
import signal
import threading
import time

URL = os.environ["QUORATE_URL"]


class OddError(Exception):
    """What it says uses an attribute that was never set."""

    def __str__(self):
        return self.detail


def stand_still(seconds):
    """The node does not answer for so long; returns at once."""
    pids = [int(pid) for pid in os.environ["NODE_PIDS"].split()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    threading.Timer(seconds, lambda: [os.kill(pid, signal.SIGCONT) for pid in pids]).start()


def eventually(what, seconds=30):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)
