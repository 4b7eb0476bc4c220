"""Confirmations that are gathered: what comes while one request is under way goes with the next.

`Confirms`: each thread waits for its own. Whoever comes while none is under way asks, for all that have come by then;
so one thread alone waits for one request, and many together for two at most. `LaterConfirms`: nobody waits, a thread
of its own asks.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from quorate.after_fork import forget_after_fork
from quorate.background import started
from quorate.client import Client
from quorate.errors import ConnectionFailedError, UnavailableError, UnknownOutcomeError
from quorate.messages import Message
from quorate.protocol import BATCH_MAX

log = logging.getLogger("quorate")

AGAIN_S: Final = 0.5

MessageT = TypeVar("MessageT", bound=Message)


class _Batch:
    """Messages that are confirmed together; `error` is what that raised."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.is_done = False
        self.error: Exception | None = None


class Confirms:
    """Of one client. Any thread may use it."""

    def __init__(self, client: Client) -> None:
        self._client: Final = client
        self.after_fork()
        forget_after_fork(self)

    def after_fork(self) -> None:
        """In a child: what waited is its parent's."""
        self._lock = threading.Condition()
        self._gathering = _Batch()
        self._is_asking = False

    def confirm(self, message: Message) -> None:
        """Return when it is confirmed, or was another's or gone already. Raises what `Client.confirm` does."""
        with self._lock:
            while len(self._gathering.messages) >= BATCH_MAX:
                self._lock.wait()
            batch = self._gathering
            batch.messages.append(message)
            while self._is_asking and not batch.is_done:
                self._lock.wait()
            if not batch.is_done:
                self._is_asking = True
                self._gathering = _Batch()
        if not batch.is_done:
            self._ask(batch)
        if batch.error is not None:
            raise batch.error

    def _ask(self, batch: _Batch) -> None:
        batch.error = ConnectionFailedError("the thread that asked for this and others was ended")
        try:
            self._client.confirm(batch.messages)
            batch.error = None
        except Exception as error:
            batch.error = error
        finally:  # whatever ends this thread, the others must not wait for it
            with self._lock:
                batch.is_done = True
                self._is_asking = False
                self._lock.notify_all()


class _Word(NamedTuple, Generic[MessageT]):
    """That a message is done, or, with a `reason`, rejected; it is tried `until` then (monotonic s)."""

    message: MessageT
    until: float
    reason: str | None = None


class LaterConfirms(Generic[MessageT]):
    """Confirmed and rejected soon by a thread of its own, which begins with the first. Any thread may use it.

    While no node can be reached it is tried again, for as long as a message's lease may last: what is done is not to be
    done again. `told` gets each batch and how many of it there were, or why nothing could be said. `reject` rejects one
    message, and returns 0 if it is somebody else's by then.
    """

    def __init__(
        self,
        client: Client,
        told: Callable[[Sequence[MessageT], int | Exception], None],
        reject: Callable[[MessageT, str], int] | None = None,
    ) -> None:
        self._client: Final = client
        self._told = told
        self._reject = reject
        self.after_fork()
        forget_after_fork(self)

    def after_fork(self) -> None:
        """In a child: what is to be said is its parent's."""
        self._lock = threading.Condition()
        self._waiting: list[_Word[MessageT]] = []
        self._is_asking = self._has_ended = False
        self._thread: threading.Thread | None = None

    def confirm(self, message: MessageT) -> None:
        """Note that it is done. Where no thread can be started it is said now."""
        self._note(_Word(message, time.monotonic() + message.retry))

    def reject(self, message: MessageT, reason: str) -> None:
        """Note that it is rejected. Where no thread can be started it is said now."""
        self._note(_Word(message, time.monotonic() + message.retry, reason))

    def _note(self, word: _Word[MessageT]) -> None:
        with self._lock:
            self._waiting.append(word)
            if self._thread is not None:
                if not self._is_asking:
                    self._lock.notify_all()
                return
            try:
                self._thread = started(self._keep_saying, "quorate-confirms")
            except RuntimeError as error:
                log.error("confirmations have no thread of their own: %s", error)
                batch, self._waiting = self._waiting, []
            else:
                return
        again = self._say(batch)
        with self._lock:
            self._waiting[:0] = again

    def flush(self, timeout_s: float) -> bool:
        """Wait until all is said; whether it is."""
        until = time.monotonic() + timeout_s
        with self._lock:
            while self._waiting or self._is_asking:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return False
                self._lock.wait(left_s)
        return True

    def end(self) -> None:
        """End the thread when nothing is left to be said; what still comes begins another."""
        with self._lock:
            self._has_ended = True
            self._lock.notify_all()

    def close(self, timeout_s: float) -> None:
        """Say what is left, for so long at most."""
        if not self.flush(timeout_s):
            with self._lock:
                left, self._waiting = [word.message for word in self._waiting], []
            if left:
                self._told(left, ConnectionFailedError("no node could be reached until it was closed"))
        self.end()

    def _keep_saying(self) -> None:
        while True:
            with self._lock:
                while not self._waiting:
                    if self._has_ended:
                        self._thread = None
                        return
                    self._lock.wait()
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                self._is_asking = True
            again = self._say(batch)
            with self._lock:
                self._waiting[:0] = again
                self._is_asking = False
                self._lock.notify_all()
                if again:
                    self._lock.wait(AGAIN_S)

    def _say(self, batch: list[_Word[MessageT]]) -> list[_Word[MessageT]]:
        """Say all of them; returns those that are to be tried again."""
        done = [word for word in batch if word.reason is None]
        again = self._ask(done, lambda: self._client.confirm([word.message for word in done])) if done else []
        for word in batch:
            if word.reason is None:
                continue
            if again:  # no node answers: the others need not find that out again
                again.append(word)
            else:
                again += self._ask([word], partial(self._rejected, word.message, word.reason))
        return again

    def _rejected(self, message: MessageT, reason: str) -> int:
        assert self._reject is not None, "who rejects has said how"
        return self._reject(message, reason)

    def _ask(self, batch: list[_Word[MessageT]], ask: Callable[[], int]) -> list[_Word[MessageT]]:
        """Those that are to be tried again."""
        messages = [word.message for word in batch]
        try:
            self._told(messages, ask())
            return []
        except (ConnectionFailedError, UnavailableError) as error:
            if isinstance(error, UnknownOutcomeError) and error.reply is not None and "confirmed" in error.reply:
                self._told(messages, error)  # it was answered: asked again, it would be taken for somebody else's
                return []
            now = time.monotonic()
            over = [word.message for word in batch if word.until <= now]
            if over:
                self._told(over, error)
            return [word for word in batch if word.until > now]
        except Exception as error:
            self._told(messages, error)
            return []
