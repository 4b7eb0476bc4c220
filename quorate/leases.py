"""What somebody works on stays in flight: a thread extends every lease when a third of it is over.

A thread, and no timer of the worker's own loop: a handler that blocks that loop, or holds all other threads up for
less than two thirds of its lease, loses nothing.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from quorate.after_fork import forget_after_fork
from quorate.background import started
from quorate.client import Client
from quorate.errors import NotInFlightError
from quorate.hands import Hands
from quorate.messages import Message

log = logging.getLogger("quorate")

MessageT = TypeVar("MessageT", bound=Message)

REST_S: Final = 0.5
"""So long the thread sleeps at most while there is something to extend."""

FAILED_PAUSE_S: Final = 1.0
"""After a request that failed, or a tenth of the lease if that is less."""


class Leases(Generic[MessageT]):
    """Of what one process holds. Any thread may use it; the thread of its own runs from the first message on."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._forget()
        forget_after_fork(self)

    def _forget(self) -> None:
        self._hands: Hands[MessageT] = Hands()
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self._has_ended = False
        self._wakes_at = 0.0

    def after_fork(self) -> None:
        """In a child: what is held is its parent's."""
        self._forget()

    def __len__(self) -> int:
        return len(self._hands)

    def __contains__(self, message: Message) -> bool:
        """Whether that delivery is held. Nothing is locked: it may be asked anywhere."""
        return message in self._hands

    @property
    def held(self) -> list[MessageT]:
        """All that is held."""
        with self._lock:
            return self._hands.held

    def take(self, messages: Sequence[MessageT]) -> None:
        """Keep these in flight from now on."""
        with self._lock:
            now = time.monotonic()
            self._hands.take(messages, now)
            if any(message.retry and now + message.retry / 3 < self._wakes_at for message in messages):
                self._lock.notify_all()
            if self._thread is None and not self._has_ended:
                try:
                    self._thread = started(self._keep_extending, "quorate-leases")
                except RuntimeError as error:  # the next message tries again
                    log.error("%d messages are not kept in flight: %s", len(self._hands), error)

    def drop(self, message: MessageT) -> bool:
        """Keep it no longer; False: this delivery was not held."""
        with self._lock:
            return self._hands.drop(message)

    def drop_all(self) -> list[MessageT]:
        """Keep nothing any longer; returns what was held."""
        with self._lock:
            held = self._hands.held
            for message in held:
                self._hands.drop(message)
            return held

    def end(self) -> None:
        """Extend nothing more."""
        with self._lock:
            self._has_ended = True
            self._lock.notify_all()

    def close(self) -> None:
        """Extend nothing more; waits for a request that is under way."""
        self.end()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _keep_extending(self) -> None:
        while True:
            with self._lock:
                if self._has_ended:
                    return
                now = time.monotonic()
                next_at = self._hands.next_at
                if next_at > now:
                    rest_s = min(max(next_at - now, 0.01), REST_S)
                    self._wakes_at = now + rest_s
                    self._lock.wait(rest_s)
                    continue
                due = self._hands.due(now)
            for lease_s, messages in due.items():
                self._extend(messages, lease_s)

    def _extend(self, messages: list[MessageT], lease_s: float) -> None:
        try:
            self._client.extend(messages, lease_s)
        except NotInFlightError:
            return  # their confirmations tell whose they are
        except Exception as error:  # whatever it is, the other leases go on
            log.warning("%d leases could not be extended, and are tried again: %s", len(messages), error)
            with self._lock:
                self._hands.failed(messages, time.monotonic())
                self._lock.wait(min(lease_s / 10, FAILED_PAUSE_S))
