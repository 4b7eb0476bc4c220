"""A dramatiq broker: `dramatiq.set_broker(QuorateBroker("quorate://127.0.0.1:1111"))`.

Delays, priorities, redelivery and dead letters are the node's. A delayed message waits there, not in a worker; what a
worker holds, also in its own queue, is kept in flight by a thread and comes again when that worker dies; what is
rejected goes to the dead letter queue. A queue NAME is `{NAMESPACE.NAME}`, its dead letters are in
`{NAMESPACE.NAME}.XQ`: the braces keep both in one shard.
"""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from dramatiq import Broker, Consumer, Message, MessageProxy, Middleware
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

from quorate.client import Client
from quorate.confirms import Confirms
from quorate.dead_letters import LAPSES_MAX, check_lapses, dead_letters_of, lapsed, reject, rest
from quorate.delivered import DeliveredMessage
from quorate.errors import (
    HOPELESS,
    ConnectionFailedError,
    DuplicateKeyError,
    NotInFlightError,
    RefusedError,
    TooLargeError,
    UnavailableError,
)
from quorate.interrupt import Interrupt
from quorate.leases import Leases
from quorate.messages import random_key
from quorate.packing import packed, unpacked
from quorate.protocol import BATCH_MAX, PRIORITY_MAX, ErrorWord
from quorate.texts import log_error, said_by

log = logging.getLogger("quorate.dramatiq")

LEASE_S: Final = 60.0
BRIEF_S: Final = 3.0
"""What a worker says of a message has so long, and is tried again: a worker that stops may wait for two of these."""

JOIN_INTERVAL_MS: Final = 20


class QuorateBroker(Broker):
    """Talks to the node or cluster at `url`, or by `client`; further `options` are those of `Client`.

    `lease`: seconds after which the messages of a worker that is not heard of any more begin again. Without
    `broker_priority` among a message's options the actor's `priority` orders the whole queue, lower first, not only
    what a worker has fetched. `max_lapses`: of so many deliveries that lapsed a message is dead (None: never by that).
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        client: Client | None = None,
        namespace: str = "dramatiq",
        lease: float = LEASE_S,
        max_lapses: int | None = LAPSES_MAX,
        middleware: list[Middleware] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(middleware=middleware)
        if client is not None and (url is not None or options):
            raise ValueError("a client is given, and what it is to be made of as well: one of them is wanted")
        self.client = client or Client(url, **options)
        self._owns_client = client is None
        self.namespace = namespace
        self.lease_s = lease
        self.max_lapses = check_lapses(max_lapses)
        self.brief = self.client.within(BRIEF_S)
        self.leases: Leases[DeliveredMessage] = Leases(self.brief)
        self.confirms = Confirms(self.brief)
        self.queues: dict[str, None] = {}
        self.is_away = False
        self._following = _Following()

    def close(self) -> None:
        """Give its connections back. What is held comes again when its lease ends."""
        self.leases.close()
        if self._owns_client:
            self.client.close()
        else:
            self.client.close_idle()

    def queue_of(self, queue_name: str) -> str:
        """Make the node's name of a queue."""
        return f"{{{self.namespace}.{queue_name}}}"

    def dead_letters_of(self, queue_name: str) -> str:
        """Make the node's name of the queue's dead letter queue."""
        return dead_letters_of(self.queue_of(queue_name))

    def emit_before(self, signal: str, *args: Any, **kwargs: Any) -> None:
        """Tell the middleware. A worker that stops waits for no node, and a signal that fails holds nothing."""
        if signal == "worker_shutdown":
            for thread in list(args[0].consumers.values()):
                if isinstance(thread.consumer, QuorateConsumer):
                    thread.consumer.stop()
        try:
            super().emit_before(signal, *args, **kwargs)
        except BaseException:
            if signal in ("ack", "nack") and isinstance(args[0], QuorateMessage):
                args[0].let_go()
            raise

    def emit_after(self, signal: str, *args: Any, **kwargs: Any) -> None:
        """Tell the middleware; and note in the message why what follows a task could not be stored, where that is so.

        Retries, pipelines and callbacks are middleware that enqueues when a task has ended. dramatiq logs what they
        raise, and acknowledges the task all the same.
        """
        if signal != "process_message":
            super().emit_after(signal, *args, **kwargs)
            return
        message, failed = args[0], kwargs.get("exception") is not None
        raised: list[BaseException] = []
        delivered = message.delivered.msg_id if isinstance(message, QuorateMessage) else random_key()
        not_stored = self._following.begin(f"{delivered}.{failed}")
        try:
            for middleware in reversed(self.middleware):
                try:
                    middleware.after_process_message(self, *args, **kwargs)
                except Exception as error:
                    log_error(self.logger, error, "Unexpected failure in after_%s of %r.", signal, middleware)
                    raised.append(error)
        except BaseException as error:  # it would end this thread, and what that works on next would be held for ever
            log_error(self.logger, error, "A middleware wants to end the process in after_%s.", signal)
            raised.append(error)
        finally:
            self._following.errors = None
            if failed and not message.failed and not self._following.asked:
                not_stored += raised  # whatever that was: there is no retry, and it is no dead letter
            if not_stored and isinstance(message, QuorateMessage):
                message.not_followed = not_stored[0]

    def declare_queue(self, queue_name: str) -> None:
        """Workers listen to it from now on. The node learns of it with its first message or worker."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        """All declared queues."""
        return set(self.queues)

    def get_declared_delay_queues(self) -> set[str]:
        """None: the node delays."""
        return set()

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Put the message into its queue, due after `delay` ms; returns when it is on disk.

        Raises dramatiq's `ConnectionClosed` when no node can be reached; RefusedError when the node refuses.
        """
        try:
            self.declare_queue(message.queue_name)
            self.emit_before("enqueue", message, delay)
            with _told_as_dramatiq_does():
                self.client.produce(
                    self.queue_of(message.queue_name),
                    packed(message.encode()),
                    delay=None if not delay or delay < 0 else delay / 1000,
                    retry=self.lease_s,
                    priority=self._priority_of(message),
                    key=self._following.key(message),
                )
        except DuplicateKeyError as error:
            log.info("what follows a task is in its queue already: %s", error)  # it was run again for that
        except BaseException as error:
            if self._following.errors is not None:
                self._following.errors.append(error)
            raise
        self.emit_after("enqueue", message, delay)
        return message

    def _priority_of(self, message: Message[Any]) -> int | None:
        priority = message.options.get("broker_priority")
        if priority is None:
            actor = self.actors.get(message.actor_name)
            priority = 0 if actor is None else -actor.priority
        return max(-PRIORITY_MAX, min(int(priority), PRIORITY_MAX)) or None

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """Messages of the queue, `prefetch` at most that are not acknowledged; `timeout`: ms without one."""
        consumer = QuorateConsumer(self, queue_name, prefetch, timeout / 1000)
        try:
            with _told_as_dramatiq_does():
                self.set_dead_letters(queue_name)
        except RefusedError as error:
            log.warning("%s: its dead letters are copied, not moved: %s", queue_name, error.reason)
        return consumer

    def set_dead_letters(self, queue_name: str) -> None:
        """Let what is rejected from now on go to the dead letter queue. Raises `QuorateError`."""
        queue, dead_letter = self.queue_of(queue_name), self.dead_letters_of(queue_name)
        try:
            if self.brief.settings(queue).dead_letter == dead_letter:
                return
        except UnavailableError:
            raise
        except RefusedError:
            pass  # it is not there yet, or may not be looked at
        self.brief.configure(queue, dead_letter=dead_letter)

    def flush(self, queue_name: str) -> None:
        """Drop all messages of the queue, delayed and dead ones, too."""
        for name in (self.queue_of(queue_name), self.dead_letters_of(queue_name)):
            try:
                self.client.clear(name)
            except RefusedError as error:
                if error.error != ErrorWord.NO_SUCH_QUEUE:
                    raise

    def flush_all(self) -> None:
        """Drop all messages of all declared queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(
        self,
        queue_name: str,
        *,
        interval: int = JOIN_INTERVAL_MS,
        timeout: int | None = None,
        min_successes: int | None = None,
        idle_time: int | None = None,
    ) -> None:
        """Return when no message of the queue is left, delayed and in work ones included.

        `interval` and `timeout` are ms. The last two are taken for the sake of who comes from RabbitMQ, and mean
        nothing here: the node counts exactly. Raises `QueueJoinTimeout`; `QueueNotFound` for one not declared.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        until = None if timeout is None else time.monotonic() + timeout / 1000
        while self._counts_of(self.queue_of(queue_name))["size"]:
            if until is not None and time.monotonic() >= until:
                raise QueueJoinTimeout(queue_name)
            time.sleep(interval / 1000)

    def get_queue_message_counts(self, queue_name: str) -> tuple[int, int, int]:
        """How many messages of the queue are due or in work, how many are delayed, and how many are dead."""
        waiting = self._counts_of(self.queue_of(queue_name))
        dead = self._counts_of(self.dead_letters_of(queue_name))
        return waiting["size"] - waiting["delayed"], waiting["delayed"], dead["size"]

    def _counts_of(self, queue: str) -> dict[str, int]:
        try:
            counts = self.client.monitor(queue)
            return {"size": counts["size"], "delayed": counts["delayed"]}
        except RefusedError as error:
            if error.error == ErrorWord.NO_SUCH_QUEUE:
                return {"size": 0, "delayed": 0}
            raise


class _Following(threading.local):
    """What a thread enqueues behind a task: behind which message, and why it could not be stored.

    `errors` None: what it enqueues now is of no such kind.
    """

    errors: list[BaseException] | None = None
    asked = 0

    def begin(self, task: str) -> list[BaseException]:
        """Note which task it is, and how it has ended; returns the list of what could not be stored."""
        self._task, self.asked, self.errors = task, 0, []
        return self.errors

    def key(self, message: Message[Any]) -> str:
        """Choose its key. Behind a task it is the same when that is run again: as long as it lives it stands once."""
        if self.errors is None:
            return random_key()
        self.asked += 1
        which = f"{message.actor_name}.{message.options.get('retries', 0)}"
        return hashlib.blake2b(f"{self._task}.{which}.{self.asked}".encode(), digest_size=16).hexdigest()


class QuorateMessage(MessageProxy):
    """A message with the delivery by which the node knows it.

    `not_followed`: why what follows the task could not be stored. `until`: so long it is tried to say what becomes of
    it (monotonic s), once that no node has answered.
    """

    not_followed: BaseException | None = None
    until: float | None = None

    def __init__(self, message: Message[Any], delivered: DeliveredMessage, consumer: "QuorateConsumer") -> None:
        super().__init__(message)
        self.delivered = delivered
        self.consumer = consumer

    def let_go(self) -> None:
        """Hold it no more: it comes again when its lease ends."""
        self.consumer._drop(self.delivered)


class QuorateConsumer(Consumer):
    """Takes as many messages as may be held. `ack` and `nack` may be called from any thread; dramatiq's workers do."""

    def __init__(self, broker: QuorateBroker, queue_name: str, prefetch: int, timeout_s: float) -> None:
        self._broker = broker
        self._name = queue_name
        self._queue = broker.queue_of(queue_name)
        self._prefetch = min(prefetch, BATCH_MAX)
        self._timeout_s = timeout_s
        self._lock = threading.Condition()
        self._held: dict[int, DeliveredMessage] = {}
        self._fetched: deque[DeliveredMessage] = deque()
        self._interrupt = Interrupt()

    def stop(self) -> None:
        """Fetch nothing more, and try once at most to say what becomes of a message."""
        self._interrupt.set()

    def __next__(self) -> QuorateMessage | None:
        """Return the next message; None after the time-out, or for one that could not be read and is dead by now."""
        if not self._fetched:
            self._fetch()
        if not self._fetched:
            return None
        delivered = self._fetched.popleft()
        why = lapsed(delivered, self._broker.max_lapses)
        if why is None:
            try:
                return QuorateMessage(self._checked(Message.decode(unpacked(delivered.data))), delivered, self)
            except Exception as error:  # whatever an encoder raises
                why = f"it can't be decoded: {said_by(error)}"
        log.error("message %d of %s goes to the dead letters: %s", delivered.msg_id, self._queue, why)
        self._drop(delivered)
        with _told_as_dramatiq_does():
            self._reject(delivered, why)
        return None

    def _checked(self, message: Message[Any]) -> Message[Any]:
        """Check a message. Raises ValueError for one that would end the threads that work on it."""
        if message.queue_name != self._name:
            raise ValueError(f"it is of queue {message.queue_name!r}")
        if not isinstance(message.options, dict) or not isinstance(message.actor_name, str):
            raise ValueError("its options or its actor are none")
        return message

    def _fetch(self) -> None:
        with self._lock:
            is_stopping = self._interrupt.is_set
            if len(self._held) >= self._prefetch or is_stopping:
                self._lock.wait(self._timeout_s)
            room = self._prefetch - len(self._held)
        if room <= 0 or is_stopping:
            return
        with _told_as_dramatiq_does():
            messages = self._broker.brief.consume_many(
                self._queue, room, wait=self._timeout_s, interrupt=self._interrupt
            )
        self._broker.leases.take(messages)
        with self._lock:
            self._held.update((message.msg_id, message) for message in messages)
        self._fetched.extend(messages)

    def _drop(self, delivered: DeliveredMessage) -> None:
        """Hold it no more."""
        self._broker.leases.drop(delivered)
        with self._lock:
            held = self._held.get(delivered.msg_id)
            if held is not None and held.deliveries == delivered.deliveries:
                del self._held[delivered.msg_id]
            self._lock.notify_all()

    def ack(self, message: MessageProxy) -> None:
        """Confirm that it is done. One that is another's by now, or gone, is left alone."""
        if not self._is_followed(message):
            self._settle(message, self._broker.confirms.confirm)

    def nack(self, message: MessageProxy) -> None:
        """To the dead letter queue, with the exception as the reason."""
        error = getattr(message, "_exception", None)  # a message that is none of a consumer's has none
        reason = "it was rejected" if error is None else said_by(error)
        if not self._is_followed(message):
            self._settle(message, lambda delivered: self._reject(delivered, reason))

    def _is_followed(self, message: MessageProxy) -> bool:
        """Whether what follows the task could not be stored, so that the task is not done with: that is seen to here.

        It is given back where that may be stored later, and is a dead letter where it never can be.
        """
        error = message.not_followed if isinstance(message, QuorateMessage) else None
        if error is None:
            return False
        why = f"what follows it could not be stored: {said_by(error)}"
        is_for_ever = not isinstance(error, ConnectionClosed | RefusedError) or (
            isinstance(error, RefusedError) and (error.error in HOPELESS or isinstance(error, TooLargeError))
        )
        if is_for_ever and isinstance(error, Exception):
            self._settle(message, lambda delivered: self._reject(delivered, why))
        else:
            nack = None if isinstance(error, ConnectionClosed) else False  # what is full may be so for ever
            self._settle(message, lambda delivered: rest(self._broker.brief, delivered, why, nack=nack))
        return True

    def _settle(self, message: MessageProxy, say: Callable[[DeliveredMessage], None]) -> None:
        """Say it and let go of the message. Where it can't be said now, dramatiq calls again: for as long as its lease
        may last, and no more when its worker stops."""
        if not isinstance(message, QuorateMessage):
            return  # it came from another broker, and means nothing here
        delivered = message.delivered
        try:
            if delivered.retry:
                with _told_as_dramatiq_does():
                    say(delivered)
        except ConnectionClosed as error:
            now = time.monotonic()
            message.until = message.until or now + delivered.retry
            if now < message.until and not self._interrupt.is_set:
                raise
            log.warning("message %d of %s comes again: %s", delivered.msg_id, self._queue, error)
        except BaseException:
            self._drop(delivered)  # it comes again when its lease ends
            raise
        self._drop(delivered)

    def _reject(self, delivered: DeliveredMessage, reason: str) -> None:
        reject(self._broker.brief, delivered, reason, self._broker.dead_letters_of(self._name))

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """They come again at once, to whichever worker."""
        self._release([message.delivered for message in messages if isinstance(message, QuorateMessage)])

    def close(self) -> None:
        """Give back what was fetched and not handed out. It may be called again."""
        fetched = list(self._fetched)
        self._fetched.clear()
        try:
            self._release(fetched)
        except ConnectionClosed as error:
            log.warning("%d messages come again when their leases end: %s", len(fetched), error)

    def _release(self, messages: list[DeliveredMessage]) -> None:
        for message in messages:
            self._drop(message)
        lasting = [message for message in messages if message.retry]
        if not lasting or (self._interrupt.is_set and self._broker.is_away):
            return
        with _told_as_dramatiq_does(), suppress(NotInFlightError):  # their leases were over, or somebody has them
            try:
                self._broker.brief.release(lasting)
            except ConnectionFailedError:
                self._broker.is_away = True  # a worker that stops asks once, not for each of its queues
                raise
        self._broker.is_away = False


@contextmanager
def _told_as_dramatiq_does() -> Iterator[None]:
    """Raise what may be done later as an error of the connection, after which dramatiq tries again."""
    try:
        yield
    except (ConnectionFailedError, UnavailableError) as error:
        raise ConnectionClosed(error) from error
