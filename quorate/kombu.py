"""A kombu transport: Celery on Quorate by its broker's URL, `quorate://127.0.0.1:1111`.

`import quorate.kombu` makes the scheme known to kombu; `broker_transport = "quorate.kombu:Transport"` does without. The
`celery` command knows it by itself, where this package's extra is installed.

A queue of Celery's is a queue of the node, with a `prefix` if there is one. What a worker holds is kept in flight by a
thread, whatever its pool, and comes again one `lease` after that worker died. A task's eta is the message's `delay`:
the node holds it. Priorities from 0 to 9, higher first as in AMQP. Fanout, topic and direct exchanges work between
processes: what is bound to which is kept in the node (`kombu_bindings`).
"""

import logging
import socket
import threading
import time
from collections import deque
from typing import Any, Final

from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.url import parse_url

from quorate.after_fork import forget_after_fork
from quorate.checking import check_seconds
from quorate.client import Client
from quorate.confirms import LaterConfirms
from quorate.dead_letters import LAPSES_MAX, check_lapses, dead_letters_of, reject
from quorate.delivered import DeliveredMessage
from quorate.errors import ConnectionFailedError, ProtocolViolationError, UnavailableError
from quorate.interrupt import Interrupt
from quorate.kombu_channel import CLOSE_S, EVENT_S, LEASE_S, Channel
from quorate.leases import Leases
from quorate.protocol import Action

log = logging.getLogger("quorate.kombu")

TIMEOUT_S: Final = 10.0
CONNECT_S: Final = 5.0
SCHEME: Final = "quorate"
TRANSPORT_ALIASES[SCHEME] = "quorate.kombu:Transport"


class Transport(virtual.Transport):
    """Talks to the node of its URL, and to those of the other URLs when that one is away.

    `transport_options`: `lease` (s), `max_lapses`, `native_eta`, `invert_priority`, `prefix` (or the path of the URL
    and a dot), `timeout` (s, of each request), `ca`, `cert`, `key` (files, for TLS; `ssl` true or these switch it on,
    or `ssl_ca=` and so on in the URL: kombu takes no other names there). The URL's password is the token.
    """

    Channel = Channel
    default_port = 1111
    driver_type = SCHEME
    driver_name = SCHEME
    polling_interval = None
    connection_errors = (
        *virtual.Transport.connection_errors,
        ConnectionFailedError,
        UnavailableError,
        ProtocolViolationError,
    )
    channel_errors = virtual.Transport.channel_errors
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = channel_errors
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset({"direct", "topic", "fanout"})
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.is_closed = False
        self._broker: Client | None = None
        self.prefix = ""
        self.own_queues: set[str] = set()
        """Those that this connection has bound to exchanges of their own names."""
        self._arrived = threading.Condition()
        self._bell = Interrupt()
        self._begin()
        forget_after_fork(self)

    def _begin(self) -> None:
        self._waiting: deque[tuple[Any, DeliveredMessage]] = deque()
        self._error: Exception | None = None
        self._loop: Any = None

    def after_fork(self) -> None:
        """In a child: the connection, what it holds and its loop are its parent's."""
        self._arrived = threading.Condition()
        self._begin()
        self.is_closed = True

    # -- the connection ----------------------------------------------------------------------------------------

    @property
    def broker(self) -> Client:
        """The node, or the cluster."""
        assert self._broker is not None, "connections are established first"
        return self._broker

    def establish_connection(self) -> "Transport":
        """Connect. Raises `ConnectionFailedError`, and `RefusedError` for a token that is none."""
        here = (self.client.hostname or "127.0.0.1", int(self.client.port or self.default_port))
        options = self._options()
        timeout_s = float(self.client.connect_timeout or CONNECT_S)
        with Client(nodes=[here], timeout=timeout_s, retry_connect=False, **options) as first:
            first.request(Action.LEADER)
        self._check(self.client.transport_options)
        path = (self.client.virtual_host or "").strip("/")
        self.prefix = self.client.transport_options.get("prefix") or (f"{path}." if path else "")
        nodes = [here, *(one for one in self._others() if one != here)]
        timeout_s = float(self.client.transport_options.get("timeout", TIMEOUT_S))
        self._broker = Client(nodes=nodes, timeout=timeout_s, consumer=socket.gethostname(), **options)
        self.brief = self._broker.within(CLOSE_S)
        self.event = self._broker.within(EVENT_S, retry_connect=False)
        self.taking = self._broker.within(timeout_s, retry_connect=False)
        self.leases: Leases[DeliveredMessage] = Leases(self.brief)
        self.confirms: LaterConfirms[DeliveredMessage] = LaterConfirms(self.brief, _told, self._reject)
        self.is_closed = False
        self._begin()
        super().establish_connection()
        return self

    @staticmethod
    def _check(options: dict[str, Any]) -> None:
        """Raise TypeError, ValueError for an option that is none."""
        check_seconds("lease", options.get("lease", LEASE_S))
        check_seconds("timeout", options.get("timeout", TIMEOUT_S))
        check_lapses(options.get("max_lapses", LAPSES_MAX))
        if not isinstance(options.get("prefix") or "", str):
            raise TypeError(f"prefix is {options['prefix']!r}, and a text is wanted")

    def _options(self) -> dict[str, Any]:
        given, ssl = self.client.transport_options, self.client.ssl
        files = {**given, **(ssl if isinstance(ssl, dict) else {})}
        given_as = {"ca": ("ca", "ca_certs"), "cert": ("cert", "certfile"), "key": ("key", "keyfile")}
        names = {name: (*known, *(f"ssl_{one}" for one in known)) for name, known in given_as.items()}
        found = {name: next((files[one] for one in known if files.get(one)), None) for name, known in names.items()}
        password = self.client.password
        token = password() if callable(password) else password
        return {"token": token or None, "tls": bool(ssl) or bool(given.get("tls")), **found}

    def _others(self) -> list[tuple[str, int]]:
        """Read the other URLs that kombu was given: nodes of the same cluster."""
        parsed = [parse_url(url) for url in self.client.alt or () if "://" in url]
        return [(one["hostname"] or "127.0.0.1", int(one["port"] or self.default_port)) for one in parsed]

    def verify_connection(self, connection: Any) -> bool:
        """Whether it is open; what a node that is away costs is found by requests."""
        return not self.is_closed and self._broker is not None

    def close_connection(self, connection: Any) -> None:
        """Give back what is held, and confirm what is done."""
        super().close_connection(connection)
        self.is_closed = True
        self._leave_loop()
        if self._broker is not None:
            self.confirms.close(CLOSE_S)
            self.leases.close()
            self._broker.close_idle()  # what is still worked on is confirmed later

    def _collect(self, connection: Any) -> None:
        """As kombu asks when a connection is lost, or is not this process's: nothing is said."""
        self.is_closed = True
        self._leave_loop()
        for channel in [*self._avail_channels, *self.channels]:
            channel.forget()
        self._avail_channels.clear()
        self.channels.clear()
        with self._arrived:
            self._waiting.clear()
        if self._broker is not None:
            self.leases.end()
            self.confirms.end()
            self._broker.close_idle()  # what is still worked on is confirmed later

    def _reject(self, message: DeliveredMessage, reason: str) -> int:
        return reject(self.brief, message, reason, dead_letters_of(message.queue))

    # -- what has come -----------------------------------------------------------------------------------------

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Have the loop hand over what comes from now on."""
        self._loop = loop
        loop.add_reader(self._bell.fileno(), self._hand_over)

    def arrived(self, channel: Any, messages: list[DeliveredMessage]) -> None:
        """In a taker's thread."""
        with self._arrived:
            self._waiting.extend((channel, message) for message in messages)
            self._tell()

    def failed(self, error: Exception) -> None:
        """In a taker's thread: whoever drives this connection is told."""
        with self._arrived:
            if self.is_closed:
                return
            self._error = error
            self._tell()

    def _tell(self) -> None:
        """With the lock: whoever waits, or the loop, has something to do."""
        self._arrived.notify_all()
        if not self._bell.is_set:
            self._bell.set()

    def waiting_for(self, channel: Any) -> int:
        """How many messages have come for the channel and are not handed over."""
        with self._arrived:
            return sum(1 for one, _ in self._waiting if one is channel)

    def take_back(self, channel: Any, queue: str) -> list[DeliveredMessage]:
        """Those of them that are of the queue, which nobody gets now."""
        with self._arrived:
            found = [message for one, message in self._waiting if one is channel and message.queue == queue]
            gone = {message.msg_id for message in found}
            self._waiting = deque(pair for pair in self._waiting if pair[1].msg_id not in gone)
        return found

    def _next(self) -> tuple[Any, DeliveredMessage] | None:
        """Return the next that waits, with its channel. Raises what a taker met."""
        with self._arrived:
            error, self._error = self._error, None
            if error is not None:
                raise error
            if not self._waiting:
                self._bell.clear()
                return None
            return self._waiting.popleft()

    def _hand_over(self) -> bool:
        """One that has come; whether there was one. Raises what a taker met.

        In the loop once a turn: between two messages it runs what the first left to be done, as to acknowledge it.
        """
        found = self._next()
        if found is None:
            return False
        channel, message = found
        channel.hand_over(message)
        channel._taker.has_room()
        return True

    def _hand_over_all(self) -> int:
        count = 0
        while self._hand_over():
            count += 1
        return count

    def _leave_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.remove_reader(self._bell.fileno())

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hand over what has come, at least one message. Raises `TimeoutError` after `timeout` seconds without."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._hand_over_all():
            with self._arrived:
                if self._waiting or self._error is not None:
                    continue
                left_s = None if until is None else until - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise TimeoutError
                self._arrived.wait(left_s)


def _told(messages: Any, there: int | Exception) -> None:
    if isinstance(there, Exception):
        log.warning("%d messages could not be settled, and come again: %s", len(messages), there)
    elif there < len(messages):
        log.warning("%d of %d settled messages were others' by then", len(messages) - there, len(messages))
