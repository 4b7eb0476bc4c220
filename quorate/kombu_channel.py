"""A channel of the kombu transport: its consumers, what they hold, and what is published by it."""

import logging
import threading
import time
from datetime import UTC, datetime
from functools import partial
from queue import Empty
from typing import Any, Final

import msgspec
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.json import dumps, loads

from quorate.after_fork import forget_after_fork
from quorate.dead_letters import LAPSES_MAX, lapsed
from quorate.delivered import DeliveredMessage
from quorate.errors import (
    ConnectionFailedError,
    DuplicateKeyError,
    NotInFlightError,
    RefusedError,
    UnavailableError,
)
from quorate.kombu_bindings import Bindings, Row
from quorate.messages import NEVER, random_key
from quorate.protocol import ErrorWord
from quorate.results import configure_system
from quorate.taking import Taker
from quorate.texts import said_by

log = logging.getLogger("quorate.kombu")

LEASE_S: Final = 60.0
UNLIMITED: Final = 64
"""So many messages wait to be handed over at most, where no prefetch count limits them."""

UNUSED_S: Final = 300.0
"""A queue that is to be deleted with its last consumer goes after so long without one."""

CLOSE_S: Final = 2.0
"""So long closing waits for what is under way."""

EVENT_S: Final = 1.0
"""An event that is for whoever listens now is not insisted upon for longer."""

TRANSIENT: Final = 1
"""AMQP's delivery mode of what need not be kept."""

KEY: Final = "quorate_key"
"""The property that has one publish's key from one of its tries to the next. It is not sent."""

WHOLE: Final = "kombu"
"""The only name in a message that plain JSON can't hold: it has all of it, as the text that kombu makes."""


class QoS(virtual.QoS):
    """Which messages are not acknowledged; tells the channel what became of each."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        """Confirm that it is done."""
        super().ack(delivery_tag)
        self.channel.acked(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Let it go back into its queue, or to the dead letters."""
        super().ack(delivery_tag)
        self.channel.rejected(delivery_tag, requeue)


class Channel(virtual.Channel):
    """One of a transport's channels: its consumers, and what they hold."""

    QoS = QoS
    supports_fanout = True
    do_restore = False
    body_encoding = "base64"
    from_transport_options = (
        *virtual.Channel.from_transport_options,
        "native_eta",
        "invert_priority",
        "lease",
        "max_lapses",
        "event_exchange",
    )

    native_eta = True
    """The node holds a message until its task's eta; else the worker does."""

    invert_priority = False
    """0 is first, as kombu's Redis transport has it."""

    lease: float = LEASE_S
    max_lapses: int | None = LAPSES_MAX
    """A message of which so many deliveries have lapsed goes to the dead letters; None: never by that."""

    event_exchange = "celeryev"
    """Where Celery's events go, as its setting of that name says."""

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self.transport = connection
        self._lock = threading.Lock()
        self._held: dict[str, DeliveredMessage] = {}
        self._unacknowledged: set[str] = set()
        self.bindings = Bindings(connection.broker, connection.prefix)
        self._ttls_ms: dict[str, int] = {}
        self._passing: dict[str, float] = {}
        self._bound: set[tuple[str, Row]] = set()
        self._taker = Taker(connection.taking, self._room, self._arrived, connection.failed, self._keep)
        forget_after_fork(self)

    def after_fork(self) -> None:
        """In a child: what is held is its parent's."""
        self.closed = True
        self._lock = threading.Lock()
        self._held = {}

    # -- consuming ---------------------------------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **options: Any) -> None:
        """Its messages go to `callback` from now on; with `no_ack` each is done with that."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        if no_ack:
            self._unacknowledged.add(queue)
        self._taker.set_queues([self._named(one) for one in self._active_queues])
        if queue in self._passing:
            self._taker.keep_now()

    def basic_cancel(self, consumer_tag: str) -> None:
        """No more to that consumer; what had come for it and was not handed over is released."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if self.transport.is_closed:
            return
        if queue is not None and queue not in self._active_queues:
            self._unacknowledged.discard(queue)
            self._taker.set_queues([self._named(one) for one in self._active_queues])
            self._release(self.transport.take_back(self, self._named(queue)))

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """So many messages may be held."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self._taker.has_room()

    def _room(self) -> int:
        if self.closed or self.transport.is_closed:
            return 0
        prefetch = self.qos.prefetch_count
        with self._lock:
            return prefetch - len(self._held) if prefetch else UNLIMITED - self.transport.waiting_for(self)

    def _arrived(self, messages: list[DeliveredMessage]) -> None:
        """In the taker's thread."""
        self._hold(messages)
        if self.closed or self._unnamed(messages[0].queue) not in self._active_queues:
            self._release(messages)
        else:
            self.transport.arrived(self, messages)

    def _hold(self, messages: list[DeliveredMessage]) -> None:
        self.transport.leases.take(messages)
        with self._lock:
            self._held.update((_tag(message), message) for message in messages)

    def hand_over(self, message: DeliveredMessage) -> None:
        """To its consumer, in the thread of whom kombu calls."""
        queue = self._unnamed(message.queue)
        if self.closed or queue not in self._active_queues:
            self._release([message])
            return
        no_ack = queue in self._unacknowledged
        raw = self._read(message, queue)
        if raw is None:
            return
        self.transport._deliver(raw, queue)
        if no_ack:
            self.acked(_tag(message))

    def _read(self, message: DeliveredMessage, queue: str) -> dict[str, Any] | None:
        """Give it as kombu has it. None: it can't be worked on, and is a dead letter with the reason."""
        why = lapsed(message, self.max_lapses)
        if why is None:
            try:
                raw = self._raw(message, queue)
                self.Message(dict(raw), channel=self)  # what another client has sent may be anything
            except Exception as error:
                why = f"it can't be read: {said_by(error)}"
            else:
                return raw
        log.error("message %d of %s is rejected: %s", message.msg_id, message.queue, why)
        self._drop(_tag(message))
        if message.retry:
            self.transport.confirms.reject(message, why)
        return None

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        while True:
            message = self.transport.broker.consume(self._named(queue))
            if message is None:
                raise Empty
            self._hold([message])
            raw = self._read(message, queue)
            if raw is not None:
                return raw

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> Any:
        """Return the next message, or None."""
        message = super().basic_get(queue, no_ack, **options)
        if message is not None and no_ack:
            self.acked(message.delivery_tag)
        return message

    @staticmethod
    def _raw(message: DeliveredMessage, queue: str) -> dict[str, Any]:
        """As kombu put it in; what another client has produced as if kombu had."""
        data = message.data
        if isinstance(data, dict) and list(data) == [WHOLE] and isinstance(data[WHOLE], str):
            whole = _loaded(data[WHOLE])
            data = whole if _is_kombus(whole) else data  # or another client means its own by that name
        if not _is_kombus(data):
            is_bytes = isinstance(data, bytes)
            data = {
                "body": data.decode("latin-1") if is_bytes else dumps(data),
                "content-type": "application/data" if is_bytes else "application/json",
                "content-encoding": "binary" if is_bytes else "utf-8",
                "headers": dict(message.headers),
                "properties": {"priority": 0},
            }
        properties = data["properties"]
        properties["delivery_tag"] = _tag(message)
        where = properties.setdefault("delivery_info", {"exchange": "", "routing_key": queue})
        if message.deliveries > 1:
            where["redelivered"] = True
        return data

    # -- what becomes of a message -----------------------------------------------------------------------------

    def acked(self, tag: str) -> None:
        """Confirm that it is done, soon, by a thread. Any thread may call it, also when the channel is closed."""
        message = self._drop(tag)
        if message is not None and message.retry:
            self.transport.confirms.confirm(message)

    def rejected(self, tag: str, requeue: bool) -> None:
        """Back into its queue at once, or to the dead letters.

        What is to be run again counts as a delivery that has lapsed: a task that ends its process is rejected so by
        `task_reject_on_worker_lost`, and would be for ever.
        """
        message = self._drop(tag)
        if message is None or not message.retry:
            return
        if requeue:
            self._release([message], nack=False)
        else:
            self.transport.confirms.reject(message, "it was rejected")

    def _drop(self, tag: str) -> DeliveredMessage | None:
        with self._lock:
            message = self._held.pop(tag, None)
        if message is not None:
            self.transport.leases.drop(message)
            self._taker.has_room()
        return message

    def _release(self, messages: list[DeliveredMessage], *, nack: bool | None = None) -> None:
        for message in messages:
            self._drop(_tag(message))
        lasting = [message for message in messages if message.retry]
        if not lasting:
            return
        try:
            self.transport.brief.release(lasting, nack=nack)
        except (NotInFlightError, ConnectionFailedError, UnavailableError) as error:
            log.debug("%d messages come again when their leases end: %s", len(lasting), error)

    def _restore(self, message: Any) -> None:
        self.rejected(message.delivery_tag, requeue=True)

    def forget(self) -> None:
        """Say nothing any more: the connection is gone, and what is held comes again when its lease ends."""
        self.closed = True
        self._taker.close(0)
        with self._lock:
            held = list(self._held.values())
        for message in held:  # what is being worked on may still be acknowledged, as long as nobody else has it
            self.transport.leases.drop(message)

    def close(self) -> None:
        """End its consumers, and give back what they hold."""
        if self.closed:
            return
        super().close()
        self._taker.close(CLOSE_S)
        with self._lock:
            held = list(self._held.values())
        self._release(held)

    # -- publishing --------------------------------------------------------------------------------------------

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Encode a text as it is, so that others can read it, and bytes by base64."""
        if isinstance(body, str):
            return body, None
        encoded: tuple[Any, str | None] = super().encode_body(body, encoding)
        return encoded

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make a message. All tries of one publish give the same `properties`, and get the same key by them."""
        properties = {} if properties is None else properties
        properties.setdefault(KEY, random_key())
        made: dict[str, Any] = super().prepare_message(
            body, priority, content_type, content_encoding, headers, properties
        )
        return made

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        properties, headers = dict(message["properties"]), message.get("headers") or {}
        key = properties.pop(KEY, None) or random_key()
        try:
            self._put_once(queue, {**message, "properties": properties}, properties, headers, key)
        except DuplicateKeyError:
            log.info("a try before has put the message into %s", queue)  # that one's answer was lost

    def _put_once(
        self, queue: str, message: dict[str, Any], properties: dict[str, Any], headers: dict[str, Any], key: str
    ) -> None:
        due_at = _eta_of(headers) if self.native_eta else None
        ttl_s = self._ttl_of(queue, properties, headers)
        if ttl_s is not None and due_at is not None:
            ttl_s = max(due_at - time.time(), 0.0) + ttl_s
        priority = self._get_message_priority(message)
        produce = partial(
            self.bindings.client.produce,
            self._named(queue),
            delay=due_at,
            ttl=NEVER if ttl_s is None else ttl_s,
            retry=self.lease,
            priority=(-priority if self.invert_priority else priority) or None,
            key=key,
            expire=None if ttl_s is None else "drop",
        )
        text = dumps(message)
        plain = _plain(text)
        if plain is not None:
            try:
                produce(plain)
            except (ValueError, OverflowError):  # it has more levels, or larger numbers, than the node takes
                plain = None
        if plain is None:
            produce({WHOLE: text})

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **options: Any) -> Any:
        """Publish a message. An event is not insisted upon: a worker would try for ever, and could not be stopped."""
        if exchange != self.event_exchange or message["properties"].get("delivery_mode") != TRANSIENT:
            return super().basic_publish(message, exchange, routing_key, **options)
        try:
            with self.bindings.asking(self.transport.event):
                return super().basic_publish(message, exchange, routing_key, **options)
        except (ConnectionFailedError, UnavailableError) as error:
            log.debug("an event for %s is not sent: %s", exchange, error)
            return None

    def _ttl_of(self, queue: str, properties: dict[str, Any], headers: dict[str, Any]) -> float | None:
        """Seconds; None: it does not expire. A task that says when it does goes to its worker, which revokes it."""
        ttl_ms = self._ttls_ms.get(queue, self.bindings.ttl_ms(queue))
        found = [] if ttl_ms is None else [ttl_ms]
        if properties.get("expiration") and not headers.get("expires"):
            found.append(int(properties["expiration"]))
        return max(min(found), 1) / 1000 if found else None

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **options: Any) -> None:
        self.bindings.forget(exchange)
        for queue in dict.fromkeys(queue for _, _, queue in self.get_table(exchange)):
            self._put(queue, message, **options)

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        own = [routing_key] if self._has_own(exchange, routing_key) else []
        bound = exchange and self.typeof(exchange).lookup(self.get_table(exchange), exchange, routing_key, default)
        if exchange and not bound and not own:
            self.bindings.forget(exchange)  # who wants it may have come just now
            own = [routing_key] if self._has_own(exchange, routing_key) else []
        found: list[str] = super()._lookup(exchange, routing_key, default) if not own or bound else []
        found = list(dict.fromkeys([*own, *found]))
        if exchange and self.typeof(exchange).type == "direct":  # a reply may come when nobody waits for it any more
            passing = self.bindings.table(exchange).passing
            return [queue for queue in found if queue not in passing or self._has_queue(queue)]
        return found

    # -- queues and exchanges ----------------------------------------------------------------------------------

    def prepare_queue_arguments(self, arguments: dict[str, Any] | None, **options: Any) -> dict[str, Any]:
        """Under RabbitMQ's names."""
        prepared: dict[str, Any] = to_rabbitmq_queue_arguments(arguments, **options)
        return prepared

    def _new_queue(self, queue: str, auto_delete: bool = False, **options: Any) -> None:
        arguments = options.get("arguments") or {}
        settings: dict[str, Any] = {}
        expires_ms = arguments.get("x-expires")
        if expires_ms or auto_delete:
            settings["expires_after"] = expires_ms / 1000 if expires_ms else UNUSED_S
        if arguments.get("x-max-length"):
            settings["max_size"] = arguments["x-max-length"]
        if arguments.get("x-message-ttl") is not None:
            self._ttls_ms[queue] = arguments["x-message-ttl"]
        if auto_delete:  # it is a process's own: a reply's, or an event's
            configure_system(self.transport.broker, self._named(queue), **settings)
        elif settings:
            self.transport.broker.configure(self._named(queue), **settings)
        if "expires_after" in settings:
            self._passing[queue] = settings["expires_after"]
            self._taker.keep_now()

    def _keep(self) -> float | None:
        """Queues that this channel consumes from do not go while it has no hands free; those that went come again."""
        mine = [queue for queue in self._passing if queue in self._active_queues]
        if not mine or self.closed:
            return None
        for queue in mine:
            if not self._has_queue(queue):  # this process was stopped for too long
                self.transport.broker.configure(self._named(queue), expires_after=self._passing[queue])
                for exchange, row in [one for one in self._bound if one[1][2] == queue]:
                    self.bindings.bind(exchange, row, self._ttls_ms.get(queue))
            elif self._room() <= 0:
                self.transport.broker.watch(self._named(queue))
        return min(self._passing[queue] for queue in mine) / 3

    def _has_queue(self, queue: str, **options: Any) -> bool:
        return self.bindings.counts(queue) is not None

    def _size(self, queue: str) -> int:
        counts = self.bindings.counts(queue)
        return 0 if counts is None else int(counts["ready"] + counts["delayed"])

    def _purge(self, queue: str) -> int:
        self.transport.confirms.flush(CLOSE_S)
        try:
            return self.transport.broker.clear(self._named(queue))
        except RefusedError as error:
            if error.error == ErrorWord.NO_SUCH_QUEUE:
                return 0
            raise

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any) -> None:
        """Remove the queue, with all in it and what binds it."""
        counts = self.bindings.counts(queue)
        if counts is None or (if_empty and counts["ready"] + counts["delayed"]):
            return
        if if_unused and counts["wait_status"]:
            return
        for binding in list(self.state.queue_bindings(queue)):
            self.queue_unbind(queue, binding.exchange, binding.routing_key, binding.arguments)
        self.state.queue_bindings_delete(queue)
        self._bound = {one for one in self._bound if one[1][2] != queue}
        self._ttls_ms.pop(queue, None)
        self._passing.pop(queue, None)
        self._delete(queue)

    def _delete(self, queue: str, *where: Any, **options: Any) -> None:
        try:
            self.transport.broker.remove(self._named(queue))
        except RefusedError as error:
            if error.error != ErrorWord.NO_SUCH_QUEUE:
                raise

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **options: Any
    ) -> None:
        """Of what goes to the exchange, what fits the key goes to the queue as well."""
        self.state.exchanges.setdefault(
            exchange or "amq.direct",
            {"type": "direct", "durable": True, "auto_delete": False, "arguments": {}, "table": []},
        )
        super().queue_bind(queue, exchange, routing_key, arguments, **options)

    def _is_own(self, exchange: str, routing_key: str, queue: str) -> bool:
        """Whether that is how Celery binds a queue that is only named: to an exchange of its own, by its name."""
        return exchange == routing_key == queue and self.typeof(exchange).type == "direct"

    def _has_own(self, exchange: str, routing_key: str) -> bool:
        """Whether a queue of that name is bound to the exchange of its name, by whichever process."""
        if not exchange or not self._is_own(exchange, routing_key, routing_key):
            return False
        return routing_key in self.transport.own_queues or self.bindings.has_own(routing_key)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        has_terms = queue in self._ttls_ms or queue in self._passing
        if self._is_own(exchange, routing_key, queue) and not has_terms:
            if queue not in self.transport.own_queues:
                self.bindings.bind_own(queue)
                self.transport.own_queues.add(queue)
            return
        self._bound.add((exchange, (routing_key, pattern, queue)))
        self.bindings.bind(exchange, (routing_key, pattern, queue), self._ttls_ms.get(queue))

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **options: Any
    ) -> None:
        """No more of the exchange goes to the queue."""
        exchange = exchange or "amq.direct"
        if self._is_own(exchange, routing_key, queue):
            self.transport.own_queues.discard(queue)
            self.bindings.unbind_own(queue)
        self.state.binding_delete(queue, exchange, routing_key)
        self.bindings.unbind(exchange, self.typeof(exchange).prepare_bind(queue, exchange, routing_key, arguments))

    def get_table(self, exchange: str) -> list[Row]:
        """Return what is bound to the exchange, by whichever process: routing key, pattern, queue."""
        return self.bindings.table(exchange).rows

    def _named(self, queue: str) -> str:
        return self.transport.prefix + queue

    def _unnamed(self, name: str) -> str:
        return name[len(self.transport.prefix) :]


def _is_kombus(data: Any) -> bool:
    """Whether it has the parts that kombu's messages have."""
    if not isinstance(data, dict) or not isinstance(data.get("body"), str):
        return False
    properties, headers = data.get("properties"), data.get("headers")
    return (
        isinstance(properties, dict)
        and (headers is None or isinstance(headers, dict))
        and isinstance(properties.get("delivery_info", {}), dict)
    )


def _loaded(text: str) -> Any:
    """Read a message that came as one text. None: kombu has not made it."""
    try:
        return loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


def _tag(message: DeliveredMessage) -> str:
    """Another one for each delivery."""
    return f"{message.msg_id}.{message.deliveries}"


def _plain(text: str) -> Any:
    """Make the JSON of a message that any client can read. None: plain JSON can't hold it.

    Dates, numbers and bytes that kombu wraps would be no such any more; halves of surrogate pairs, NaN and Infinity
    have no place in it.
    """
    if '"__type__"' in text:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _eta_of(headers: dict[str, Any]) -> float | None:
    """Unix seconds; None: at once. One without a time zone means the worker's, which knows it."""
    text = headers.get("eta")
    if not isinstance(text, str):
        return None
    try:
        eta = datetime.fromisoformat(text)
    except ValueError:
        return None
    if eta.tzinfo is None or eta <= datetime.now(UTC):
        return None
    return eta.timestamp()
