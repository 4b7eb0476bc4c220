"""Takes messages for somebody who holds so many at most: a thread that waits at the node as long as there is room.

For frameworks that want to be told when something has come. When other queues are wanted the wait is interrupted, and a
message that comes all the same is handed over like all others; so none waits out its lease for that.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from quorate.after_fork import forget_after_fork
from quorate.background import started
from quorate.client import Client
from quorate.delivered import DeliveredMessage
from quorate.errors import ConnectionFailedError
from quorate.interrupt import Interrupt
from quorate.protocol import BATCH_MAX
from quorate.turns import Turns

log = logging.getLogger("quorate")

WAIT_S: Final = 25.0
SETTLED_S: Final = 1.0
"""So long other queues wait for the answer to what was asked about those before."""

FAILED_PAUSE_S: Final = 1.0
"""After an error that was told, while nobody does anything about it."""


class Taker:
    """For one holder. `room`: how many more it takes; `arrived` and `failed` are told, in the taker's thread.

    `keep` is called there, too, before a wait and as long as there is no room: it sees to queues that go when nobody
    uses them, and says after how many seconds it wants to be called again.
    """

    def __init__(
        self,
        client: Client,
        room: Callable[[], int],
        arrived: Callable[[list[DeliveredMessage]], None],
        failed: Callable[[Exception], None],
        keep: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._client = client
        self._room = room
        self._arrived = arrived
        self._failed = failed
        self._keep = keep
        self._keep_at = 0.0
        self._interrupt = Interrupt()
        self._begin()
        forget_after_fork(self)

    def _begin(self) -> None:
        self._turns: Turns | None = None
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = self._is_asking = False
        self._asked = 0

    def after_fork(self) -> None:
        """In a child: its parent takes on, and this one never does."""
        self._begin()
        self._is_closed = True

    def set_queues(self, queues: Sequence[str]) -> None:
        """Take from these from now on, in turn; from none: nothing.

        Returns when what was asked before is answered and handed over, or after a second without an answer. Raises
        `ConnectionFailedError` where no thread can be started.
        """
        with self._lock:
            now = () if self._turns is None else self._turns.queues
            if self._is_closed or set(queues) == set(now):
                return
            if self._thread is None:
                try:
                    self._thread = started(self._keep_taking, "quorate-taker")  # it waits for this lock
                except RuntimeError as error:
                    raise ConnectionFailedError(f"nothing can be taken: {error}") from error
                self._turns = Turns(list(dict.fromkeys(queues))) if queues else None
                return
            self._turns = Turns(list(dict.fromkeys(queues))) if queues else None
            self._interrupt.set()
            self._lock.notify_all()
            asked, until = self._asked, time.monotonic() + SETTLED_S
            while self._asked == asked and self._is_asking and time.monotonic() < until:
                self._lock.wait(SETTLED_S)

    def has_room(self) -> None:
        """There is room again, perhaps."""
        with self._lock:
            self._lock.notify_all()

    def close(self, timeout_s: float) -> None:
        """Take no more; waits so long for what is under way. What comes later is handed over all the same."""
        with self._lock:
            self._is_closed = True
            self._interrupt.set()
            self._lock.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _keep_taking(self) -> None:
        while True:
            self._see_to_queues()
            with self._lock:
                if self._is_closed:
                    return
                turns = self._turns
                count = 0 if turns is None else min(self._room(), BATCH_MAX)
                if turns is None or count <= 0:
                    left_s = self._keep_at - time.monotonic()
                    if left_s > 0:
                        self._lock.wait(left_s if left_s < math.inf else None)
                    continue
                self._interrupt.clear()
                self._is_asking = True
                self._asked += 1
            has_failed = not self._take(turns, count)
            with self._lock:
                self._is_asking = False
                self._lock.notify_all()
                if has_failed and not self._is_closed:
                    self._lock.wait(FAILED_PAUSE_S)

    def _take(self, turns: Turns, count: int) -> bool:
        try:
            found = self._client.consume_many(turns.asked, count, wait=WAIT_S, interrupt=self._interrupt)
            if found:
                turns.served(found[0].queue)
                self._arrived(found)
        except Exception as error:  # whatever it is, somebody has to be told, and this thread goes on
            self._failed(error)
            return False
        return True

    def _see_to_queues(self) -> None:
        with self._lock:
            if time.monotonic() < self._keep_at:
                return
            self._keep_at = math.inf  # what is noted while this is done is seen to after it
        try:
            again_s = self._keep()
        except Exception as error:  # taking goes on
            log.warning("queues that go when they are unused could not be kept: %s", error)
            again_s = FAILED_PAUSE_S
        if again_s is not None:
            with self._lock:
                self._keep_at = min(self._keep_at, time.monotonic() + again_s)

    def keep_now(self) -> None:
        """There is something more to see to."""
        with self._lock:
            self._keep_at = 0.0
            self._lock.notify_all()
