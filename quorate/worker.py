"""A worker: takes messages of queues, hands each to a handler, and says what became of it.

    def handle(message):
        send_mail(message.data)

    Worker(Client(), "mail", handle).run()

A handler is a plain function, which runs in a thread, or `async`, which runs on a loop of the worker's own. When it
returns the message is confirmed; when it raises, the message is released and rests for a while (`Backoff`); `Retry(s)`
says for how long, `Reject(reason)` that it is for nobody: to the dead letter queue. As long as a handler works, its
message's lease is extended, by a thread of its own, so that a busy or blocked handler loses nothing.
"""

import asyncio
import inspect
import logging
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from quorate.checking import check_seconds
from quorate.client import Client
from quorate.confirms import LaterConfirms
from quorate.dead_letters import LAPSES_MAX, check_lapses, dead_letters_of, have_dead_letters, lapsed, reject
from quorate.delivered import DeliveredMessage
from quorate.errors import HOPELESS, NotAllowedError, NotInFlightError, QuorateError, RefusedError
from quorate.handler_loop import HandlerLoop, is_async, raised_by
from quorate.hands import Backoff
from quorate.interrupt import Interrupt
from quorate.leases import Leases
from quorate.messages import reason_of
from quorate.protocol import BATCH_MAX
from quorate.texts import log_error
from quorate.turns import Turns

log = logging.getLogger("quorate.worker")

WAIT_S: Final = 25.0
"""So long a consume waits; stopping interrupts it."""

CONFIRM_S: Final = 10.0
"""So long a worker that stops tries to confirm what was done."""

ENDED_S: Final = 5.0
"""So long it waits for threads that have nothing more to do."""

FAILED_PAUSE_S: Final = 1.0
"""After a request that failed."""

NO_HANDS_S: Final = 0.5

DEAD: Final = ".dead"
"""The ending of the dead letter queue that a worker sets for a message of a queue that has none."""

HURRY_S: Final = 1.0
"""So long each thing may take at the end when a second signal has come."""

Handler = Callable[[DeliveredMessage], Any] | Callable[[DeliveredMessage], Awaitable[Any]]


PREPARE_S: Final = 3.0
"""At its start a worker waits no longer for a node that does not answer."""


class Retry(Exception):  # noqa: N818  # it says what to do, and is no error
    """A handler raises it: the message comes again after `delay` seconds."""

    def __init__(self, delay: float = 0.0) -> None:
        """Take the delay. Raises TypeError, ValueError for one that is none."""
        super().__init__(delay)
        self.delay = check_seconds("delay", delay, may_be_0=True)


class NotSettledError(Exception):
    """What the log says of a handler that returned, though what it had said of its message was refused."""


class Reject(Exception):  # noqa: N818
    """A handler raises it: the message goes to the dead letter queue at once, with that reason; without one, and with
    `dead_letters` False, it is dropped.
    """

    def __init__(self, reason: object = None) -> None:
        super().__init__(reason)
        self.reason = reason_of(reason)


class _Terms(NamedTuple):
    """How long a message rests behind a failure, how many of its deliveries may lapse, whether queues are given dead
    letter queues, and what is told of messages that have lapsed too often."""

    backoff: Backoff
    max_lapses: int | None
    dead_letters: bool
    on_lapsed: Callable[[DeliveredMessage, str], None] | None


class Worker:
    """Works with `concurrency` hands on the messages of `queues`, of which none starves.

    `grace`: so many seconds handlers have to end when it is stopped; then what they hold is released. `counts`: how
    many messages were done, failed, rejected, and lost to somebody else. A message that can be delivered at most once
    (`retry` 0) is handed over like all others, and nothing is said of it afterwards. One of which `max_lapses`
    deliveries have lapsed, since it ends who works on it, is not handed over any more: it goes to the dead letters, as
    what is rejected does; `on_lapsed` is given it before, and why. A queue that has no dead letter queue gets one at
    the start, `{QUEUE}.dead`; with `dead_letters` False it gets none, and what would go there is dropped.
    """

    def __init__(
        self,
        client: Client,
        queues: str | Sequence[str],
        handler: Handler,
        *,
        concurrency: int = 8,
        grace: float = 30.0,
        backoff: Backoff | None = None,
        max_lapses: int | None = LAPSES_MAX,
        dead_letters: bool = True,
        on_lapsed: Callable[[DeliveredMessage, str], None] | None = None,
    ) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 0 < concurrency <= BATCH_MAX:
            raise ValueError(f"concurrency is {concurrency!r}: from 1 to {BATCH_MAX}")
        self._client = client
        self._turns = Turns(queues)
        self._handler = handler
        self._grace_s = grace
        self._terms = _Terms(backoff or Backoff(), check_lapses(max_lapses), dead_letters, on_lapsed)
        self._concurrency = concurrency
        self._leases: Leases[DeliveredMessage] = Leases(client)
        self._lock = threading.Condition()
        self._confirms: LaterConfirms[DeliveredMessage] = LaterConfirms(client, self._confirmed, self._reject)
        self._interrupt = Interrupt()
        self._is_stopping = False
        self._loop: HandlerLoop | None = None
        self._work_to_do: SimpleQueue[DeliveredMessage | None] = SimpleQueue()
        self.counts = {"done": 0, "failed": 0, "rejected": 0, "lost": 0}

    # -- life --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until `stop`, SIGTERM or SIGINT; at the second signal it ends at once.

        Signals are only looked at where this is the main thread. Raises RefusedError when the node will not have this
        client, or there can be no such queue: it would not help to try again.
        """
        if self._is_stopping:
            raise RuntimeError("this worker was stopped: make another")
        is_main = threading.current_thread() is threading.main_thread()
        before = [(one, signal.signal(one, self._signalled)) for one in (signal.SIGTERM, signal.SIGINT) if is_main]
        try:
            self._work()
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def stop(self) -> None:
        """Take no more messages; what is in work may end within `grace`. Any thread may call it."""
        with self._lock:
            self._is_stopping = True
            self._lock.notify_all()
        self._interrupt.set()

    def _signalled(self, number: int, frame: object) -> None:
        if self._is_stopping:
            self._grace_s = 0.0
        self._is_stopping = True  # no lock: the thread that holds it may be the one that is interrupted
        self._interrupt.set()

    def _prepare(self) -> None:
        """Say what it works on, and give its queues dead letter queues."""
        queues, (host, port) = list(self._turns.queues), self._client.address
        log.info("works on %s with %d hands, node %s:%d", ", ".join(queues), self._concurrency, host, port)
        brief = self._client.within(PREPARE_S)
        for queue in queues if self._terms.dead_letters else ():
            try:
                have_dead_letters(brief, queue, DEAD)
            except NotAllowedError as refused:
                log.warning(
                    "%s gets no dead letter queue from this worker: what is rejected is copied to %s, if that is "
                    "allowed (%s)", queue, dead_letters_of(queue, DEAD), refused.reason
                )  # fmt: skip
            except QuorateError as error:
                log.warning("dead letter queues are given when they are needed: %s", error)
                return

    def _work(self) -> None:
        self._prepare()
        hands: list[threading.Thread] = []
        if is_async(self._handler):
            self._loop = HandlerLoop()
        else:  # daemons: a handler that never ends does not keep the process
            hands += [
                threading.Thread(target=self._keep_handling, name=f"quorate-hand-{n}", daemon=True)
                for n in range(self._concurrency)
            ]
        for hand in hands:
            hand.start()
        try:
            while not self._is_stopping:
                self._take_some()
        finally:
            self._end(hands)

    def _end(self, hands: list[threading.Thread]) -> None:
        begun = time.monotonic()
        with self._lock:
            while len(self._leases) and time.monotonic() < begun + self._grace_s:
                self._lock.wait(0.1)
        left = [message for message in self._leases.drop_all() if message.retry]
        if left:
            log.warning("%d messages are given back, whose handlers did not end in time", len(left))
        settling = threading.Thread(target=self._settle, args=(left,), name="quorate-settling", daemon=True)
        settling.start()
        begun = time.monotonic()
        while settling.is_alive() and (self._grace_s or time.monotonic() < begun + HURRY_S):
            settling.join(0.1)
        if self._loop is not None:
            self._loop.end()
        for _ in hands:
            self._work_to_do.put(None)
        for hand in hands:
            hand.join(0.0 if left else ENDED_S)

    def _settle(self, left: list[DeliveredMessage]) -> None:
        """Say all that is to be said, and no more after that."""
        if left:
            self._said("release", left, lambda: self._client.release(left))
        self._confirms.close(CONFIRM_S)
        self._leases.close()

    # -- taking ------------------------------------------------------------------------------------------------

    def _take_some(self) -> None:
        with self._lock:
            free = self._concurrency - len(self._leases)
            if free <= 0:
                self._lock.wait(NO_HANDS_S)
                return
        try:
            messages = self._client.consume_many(self._turns.asked, free, wait=WAIT_S, interrupt=self._interrupt)
        except QuorateError as error:
            if isinstance(error, RefusedError) and error.error in HOPELESS:
                raise
            log.warning("nothing can be taken, and is tried again: %s", error)
            with self._lock:
                if not self._is_stopping:
                    self._lock.wait(FAILED_PAUSE_S)
            return
        if not messages:
            return
        if self._is_stopping and (lasting := [message for message in messages if message.retry]):
            self._said("release", lasting, lambda: self._client.release(lasting))
            messages = [message for message in messages if not message.retry]
        if messages:
            self._turns.served(messages[0].queue)
        messages = [message for message in messages if not self._is_over(message)]
        self._leases.take(messages)
        for message in messages:
            object.__setattr__(message, "is_worked_on", True)
            if self._loop is not None:
                self._loop.run(self._handle_async(message))
            else:
                self._work_to_do.put(message)

    def _is_over(self, message: DeliveredMessage) -> bool:
        """Whether it was handed out in vain too often, and is rejected."""
        why = lapsed(message, self._terms.max_lapses)
        if why is None:
            return False
        log.error("message %d of %s is not worked on: %s", message.msg_id, message.queue, why)
        if self._terms.on_lapsed is not None:
            try:
                self._terms.on_lapsed(message, why)
            except Exception as error:
                log_error(log, error, "message %d of %s: what is told of its end failed", *_named(message))
        self._confirms.reject(message, why)
        return True

    def _reject(self, message: DeliveredMessage, reason: str) -> int:
        dead_letter = dead_letters_of(message.queue, DEAD) if self._terms.dead_letters else None
        there = reject(self._client, message, reason, dead_letter)
        self.counts["rejected"] += there
        return there

    # -- handling ----------------------------------------------------------------------------------------------

    def _keep_handling(self) -> None:
        while (message := self._work_to_do.get()) is not None:
            self._handle(message)

    def _handle(self, message: DeliveredMessage) -> None:
        error: BaseException | None = None
        try:
            with self._traced(message):
                result = self._handler(message)
                if inspect.isawaitable(result):  # a plain function around an async one
                    error = asyncio.run(raised_by(result))
        except BaseException as raised:  # whatever it is, the message must not be lost
            error = raised
        try:
            self._handled(message, error)
        except Exception as failed:
            log_error(log, failed, "message %d of %s comes again when its lease ends", *_named(message))
        finally:
            error = None  # or it would keep itself, and all that the handler had

    def _traced(self, message: DeliveredMessage) -> AbstractContextManager[None]:
        tracing = self._client.tracing
        return nullcontext() if tracing is None else tracing.processing(message)

    async def _handle_async(self, message: DeliveredMessage) -> None:
        error: BaseException | None = None
        try:
            with self._traced(message):
                await self._handler(message)
        except BaseException as raised:
            error = raised
        try:
            if error is None or not message.retry:
                self._handled(message, error)
            else:
                await asyncio.get_running_loop().run_in_executor(None, self._handled, message, error)
        except Exception as failed:
            log_error(log, failed, "message %d of %s comes again when its lease ends", *_named(message))
        finally:
            error = None

    def _handled(self, message: DeliveredMessage, error: BaseException | None) -> None:
        """Say what is said of a handler's message when it has ended, if it is still this worker's."""
        if not self._leases.drop(message):
            return  # it was given back meanwhile
        if error is None and message.retry and message.is_unsettled:
            error = NotSettledError("what the handler said of it was refused, and nothing else was said")
        with self._lock:
            if error is None or not message.retry:
                self.counts["done" if error is None else "failed"] += 1
            self._lock.notify_all()
        if error is None or not message.retry:
            if error is None and message.retry and not message.is_settled:
                self._confirms.confirm(message)
            if error is not None:
                log_error(log, error, "message %d of %s failed, and is gone", *_named(message))
        elif message.is_settled:
            log_error(log, error, "message %d of %s was settled, and its handler failed", *_named(message))
        elif isinstance(error, Reject):
            self._confirms.reject(message, error.reason or "it was rejected")
        elif isinstance(error, Retry):
            self.counts["failed"] += 1
            self._said("release", [message], lambda: self._client.release(message, delay=error.delay))
        else:
            self._failed(message, error)

    def _failed(self, message: DeliveredMessage, error: BaseException) -> None:
        self.counts["failed"] += 1
        rest_s = self._terms.backoff.rest_s(message.deliveries_here)
        log_error(log, error, "message %d of %s failed, and comes again in %.1f s", *_named(message), rest_s)
        self._said("release", [message], lambda: self._client.release(message, delay=rest_s))

    def _said(self, what: str, messages: Sequence[DeliveredMessage], say: Callable[[], int]) -> None:
        try:
            there = say()
        except NotInFlightError:
            there = 0
        except QuorateError as error:
            log.warning(
                "%s of %d messages failed, they come again when their leases end: %s", what, len(messages), error
            )
            return
        if there < len(messages):
            self._lost(messages, what, len(messages) - there)

    def _lost(self, messages: Sequence[DeliveredMessage], what: str, count: int = 1) -> None:
        self.counts["lost"] += count
        ids = ", ".join(str(message.msg_id) for message in messages[:5])
        log.warning("%s: %d of %d messages were not this worker's any more (%s ...)", what, count, len(messages), ids)

    def _confirmed(self, messages: Sequence[DeliveredMessage], there: int | Exception) -> None:
        if isinstance(there, Exception):
            log.warning("%d messages could not be settled, and come again: %s", len(messages), there)
        elif there < len(messages):
            self._lost(messages, "settle", len(messages) - there)


def _named(message: DeliveredMessage) -> tuple[int, str]:
    return message.msg_id, message.queue
