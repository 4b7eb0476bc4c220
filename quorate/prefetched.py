"""What a loop over messages has fetched ahead: extended while its caller goes on asking, else given back in time.

`Prefetched` is a machine: no clock, no thread, no socket. A lease is reckoned from when its message came; at each
request for the next message the rest is extended if a third of a lease is over. When two thirds are over, and nobody
has asked, it is to be given back, so that somebody else may work on it.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from quorate.after_fork import forget_after_fork
from quorate.background import started
from quorate.delivered import DeliveredMessage
from quorate.errors import QuorateError
from quorate.messages import Message

log = logging.getLogger("quorate")

NEVER_S: Final = float("inf")

MessageT = TypeVar("MessageT", bound=Message)


class Prefetched(Generic[MessageT]):
    """Messages that wait for their turn. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._waiting: deque[MessageT] = deque()
        self._leased_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def fetched(self, messages: Iterable[MessageT], now: float) -> None:
        """Note that these have come."""
        self._waiting.extend(messages)
        self._leased_at = now

    @property
    def _lease_s(self) -> float:
        return min((message.retry for message in self._waiting if message.retry), default=NEVER_S)

    @property
    def back_at(self) -> float:
        """When what waits is to be given back; infinite: there is nothing to give back."""
        return self._leased_at + self._lease_s * 2 / 3

    def to_extend(self, now: float) -> dict[float, list[MessageT]]:
        """List what has to be extended before the next is handed out, by the lease that each gets (s)."""
        found: dict[float, list[MessageT]] = {}
        if now >= self._leased_at + self._lease_s / 3:
            for message in self._waiting:
                if message.retry:
                    found.setdefault(message.retry, []).append(message)
        return found

    def extended(self, now: float) -> None:
        """They have been, at `now`."""
        self._leased_at = now

    def next(self) -> MessageT:
        """Hand out the next."""
        return self._waiting.popleft()

    def give_back(self) -> list[MessageT]:
        """Take out all that has a lease. What is delivered at most once stays: nobody else would get it."""
        back = [message for message in self._waiting if message.retry]
        self._waiting = deque(message for message in self._waiting if not message.retry)
        return back

    def left(self) -> list[MessageT]:
        """Take out all."""
        left = list(self._waiting)
        self._waiting.clear()
        return left


class Ahead:
    """What the sync client's loop has fetched. A thread gives it back in time; it begins when there is something."""

    def __init__(
        self,
        extend: Callable[[list[DeliveredMessage], float], int],
        not_handed_out: Callable[[list[DeliveredMessage]], None],
    ) -> None:
        self._extend = extend
        self._not_handed_out = not_handed_out
        self.after_fork()
        forget_after_fork(self)

    def after_fork(self) -> None:
        """In a child: what was fetched is its parent's, which goes on with it."""
        self._prefetched: Prefetched[DeliveredMessage] = Prefetched()
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def fetched(self, messages: list[DeliveredMessage]) -> None:
        """Note that these have come."""
        with self._lock:
            self._prefetched.fetched(messages, time.monotonic())
            if len(messages) > 1 and self._thread is None:
                try:
                    self._thread = started(self._keep_giving_back, "quorate-prefetched")
                except RuntimeError as error:  # what is too late is not handed out all the same
                    log.error("what is fetched ahead is not given back before it is asked for: %s", error)
            self._lock.notify_all()

    def next(self) -> DeliveredMessage | None:
        """Return the next; None: there is none that is still this client's."""
        with self._lock:
            now = time.monotonic()
            if late := self._prefetched.to_extend(now):
                if now < self._prefetched.back_at and self._has_extended(late):
                    self._prefetched.extended(now)
                else:
                    self._not_handed_out(self._prefetched.give_back())
            return self._prefetched.next() if len(self._prefetched) else None

    def _has_extended(self, late: dict[float, list[DeliveredMessage]]) -> bool:
        """Whether all of them are this client's still, and for longer."""
        try:
            return all(self._extend(messages, lease_s) == len(messages) for lease_s, messages in late.items())
        except QuorateError as error:
            log.debug("what was fetched ahead is let go: %s", error)
            return False

    def close(self) -> None:
        """Give back what is left."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
            left = self._prefetched.left()
        self._not_handed_out(left)

    def _keep_giving_back(self) -> None:
        while True:
            with self._lock:
                if self._is_closed:
                    return
                left_s = self._prefetched.back_at - time.monotonic()
                if left_s > 0:
                    self._lock.wait(None if left_s == NEVER_S else left_s)
                    continue
                back = self._prefetched.give_back()
            self._not_handed_out(back)
