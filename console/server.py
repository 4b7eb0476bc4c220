"""Runs it: one process, one or several listeners, each of which serves pages, metrics or health."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from console.gmq_monitor import GmqMonitor
from console.guard import ANSWER_S, LOOPBACK_NAMES, Guard, is_loopback
from console.logins import Logins
from console.metrics import Metrics
from console.pages import Pages
from console.views import Views
from quorate.credentials import Credentials
from quorate.json_lines import JsonLines
from quorate.nodes import Address

log = logging.getLogger("quorate.console")

USUAL: Final = ("console", "metrics", "health")
SERVES: Final = (*USUAL, "gmq-monitor")
PORT: Final = 1180
CONNECTIONS_MAX: Final = 64
HEAD_BYTES_MAX: Final = 16 << 10
HEAD_S: Final = 10.0
"""So long a request may take to come: from its first byte on, the first one of a connection from that on."""

ROOM: Final = 16
"""So many connections more may be there for a moment, until those that were to make room are gone."""

LOOK_S: Final = 1.0
CLOSING_S: Final = 2.0
"""So long what was still to be read is kept of a connection that is closed."""

KEEP_S: Final = 30
PARENT_S: Final = 2.0
"""So often it is looked whether the supervisor is still there."""

QUEUES_MAX: Final = 1000


class ListenerError(ValueError):
    """A listener that may not be."""


@dataclass(frozen=True)
class HttpListener:
    """Where it listens, and for what. `hosts`: other names by which it may be asked.

    `is_insecure`: in the clear elsewhere than on loopback.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    serves: frozenset[str] = field(default=frozenset(USUAL))
    hosts: tuple[str, ...] = ()
    cert: str | None = None
    key: str | None = None
    is_insecure: bool = False

    def check(self) -> None:
        """Check what is asked for. Raises `ListenerError`."""
        unknown = sorted(self.serves - set(SERVES))
        if unknown or not self.serves:
            raise ListenerError(f"serves {', '.join(unknown) or 'nothing'}: some of {', '.join(SERVES)}")
        if not is_loopback(self.host) and self.cert is None and not self.is_insecure:
            reason = "without TLS (cert, key) tokens and messages would go in the clear, unless insecure_http says so"
            raise ListenerError(f"{self.host}: {reason}")

    @property
    def names(self) -> frozenset[str]:
        """What it may be called."""
        own = f"[{self.host}]" if ":" in self.host else self.host
        return frozenset({own, *self.hosts, *(LOOPBACK_NAMES if is_loopback(self.host) else ())})


class _Protocol(H11Protocol):
    """A connection is kept for its next request; cut off where that is not whole, or an answer unread, in time.

    Beyond `CONNECTIONS_MAX` the oldest makes room: of those that ask nothing, else of those that send or read slowly.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        now = self.loop.time()
        self._asked_at = self._moved_at = now
        self._begun_at: float | None = now
        self._timer = self.loop.call_later(LOOK_S, self._look)
        if len(self.connections) > CONNECTIONS_MAX:
            others = [one for one in self.connections if isinstance(one, _Protocol) and one is not self and one.is_slow]
            if others:
                min(others, key=lambda one: (not one.rests, one._asked_at)).transport.abort()

    @property
    def rests(self) -> bool:
        """Whether nothing is being answered, and all was read."""
        cycle = vars(self)["cycle"]
        is_answered = cycle is None or cycle.response_complete
        return is_answered and not self.transport.is_closing() and not self.transport.get_write_buffer_size()

    @property
    def is_slow(self) -> bool:
        """Whether it is not we who are waited for."""
        cycle = vars(self)["cycle"]
        is_sending = cycle is not None and cycle.more_body
        return self.rests or is_sending or self.transport.is_closing() or self.transport.get_write_buffer_size() > 0

    def data_received(self, data: bytes) -> None:
        now = self.loop.time()
        if self._begun_at is None and self.rests:
            self._begun_at = now  # of a request, which is to be whole in time
        super().data_received(data)
        if not self.rests:
            self._asked_at, self._begun_at = now, None

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        now = self.loop.time()
        if not self.transport.get_write_buffer_size():
            self._moved_at = now
        is_late = self._begun_at is not None and now - self._begun_at > HEAD_S and self.rests
        is_unread = now - self._moved_at > (CLOSING_S if self.transport.is_closing() else ANSWER_S)
        if is_late or is_unread:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(LOOK_S, self._look)


class _Server(uvicorn.Server):
    """Signals are the whole process's, and a TLS handshake takes no longer than a request may take to come."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        config, loop = self.config, asyncio.get_running_loop()

        def made() -> asyncio.Protocol:
            return _Protocol(config=config, server_state=self.server_state, app_state={})

        tls: dict[str, Any] = {"ssl": config.ssl, "ssl_handshake_timeout": HEAD_S} if config.ssl else {}
        self.servers = [
            await loop.create_server(made, sock=sock, backlog=CONNECTIONS_MAX, **tls) for sock in sockets or ()
        ]
        self.started = True

    def install_signal_handlers(self) -> None:
        """None of its own."""

    def capture_signals(self) -> Any:
        """None of its own."""
        return contextlib.nullcontext()


def is_news(record: logging.LogRecord) -> bool:
    """Whether uvicorn says more than that somebody sent garbage, or did not read what was answered."""
    return not str(record.msg).startswith(("Invalid HTTP request", "ASGI callable returned", "Exceeded concurrency"))


def app_of(
    listener: HttpListener, port: int, views: Views, logins: Logins, queues_max: int, console: int | None = None
) -> ASGIApp:
    """Make what answers there, at that port; `console` is that of the console, if there is one."""
    metrics = Metrics(views, logins, queues_max)
    routes: list[BaseRoute] = [*metrics.routes(listener.serves)]
    if "gmq-monitor" in listener.serves:
        routes += GmqMonitor(metrics.view_of, console).routes(has_console="console" in listener.serves)
    if "console" in listener.serves:
        routes += Pages(views, logins, port, is_secure=listener.cert is not None).routes()
    return Guard(Starlette(routes=routes), listener.names)


async def serve(
    nodes: list[Address],
    shown: Credentials,
    listeners: Sequence[HttpListener],
    said: Callable[[HttpListener, int], None] | None = None,
    parent: int | None = None,
    queues_max: int = QUEUES_MAX,
) -> None:
    """Serve until SIGTERM or SIGINT, or until the process `parent` is gone.

    `queues_max`: so many are told of by name in metrics. `said` is called with each listener and its port once all
    listen.

    Raises `ListenerError`, and OSError where it can't listen.
    """
    for listener in listeners:
        listener.check()
    logging.getLogger("uvicorn.error").addFilter(is_news)
    views, logins = Views(nodes, shown), Logins()
    servers: list[tuple[_Server, list[Any]]] = []
    sockets_of = [(one, bound(one)) for one in listeners]
    consoles = [sock.getsockname()[1] for one, sock in sockets_of if "console" in one.serves]
    for listener, sock in sockets_of:
        port = sock.getsockname()[1]
        config = uvicorn.Config(
            app_of(listener, port, views, logins, queues_max, consoles[0] if consoles else None),
            host=listener.host,
            port=port,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX + ROOM,
            timeout_keep_alive=KEEP_S,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_graceful_shutdown=2,
            ssl_certfile=listener.cert,
            ssl_keyfile=listener.key,
            proxy_headers=False,
        )
        config.load()  # raises OSError for a certificate that can't be read
        servers.append((_Server(config), [sock]))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await views.begin()
    running = [asyncio.create_task(server.serve(sockets=sockets)) for server, sockets in servers]
    if said is not None:
        for listener, (_, sockets) in zip(listeners, servers, strict=True):
            said(listener, sockets[0].getsockname()[1])
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), None if parent is None else PARENT_S)
        if (parent is not None and os.getppid() != parent) or any(task.done() for task in running):
            break
    for server, _ in servers:
        server.should_exit = True
    await asyncio.gather(*running, return_exceptions=True)
    await views.close()


def bound(listener: HttpListener) -> socket.socket:
    """Bind a socket that listens there. Raises OSError."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((listener.host, listener.port))
        sock.listen(CONNECTIONS_MAX)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise OSError(f"can't listen on {listener.host}:{listener.port}: {error.strerror or error}") from error
    return sock


def main() -> None:
    """Serve what the argument says: see `actors.node.processes`. Ends with the node's supervisor."""
    arguments = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if arguments["log_format"] == "json":
        logging.getLogger().handlers[0].setFormatter(JsonLines())
    parent = os.getppid()
    listeners = [
        HttpListener(
            one["host"],
            one["port"],
            frozenset(one["serves"]),
            tuple(one.get("hosts", ())),
            one.get("cert") or None,
            one.get("key") or None,
            bool(one.get("insecure_http")),
        )
        for one in arguments["listeners"]
    ]
    shown = Credentials(None, bool(arguments["tls"]), arguments["ca"])
    nodes = [(str(host), int(port)) for host, port in arguments["nodes"]]
    try:
        uvloop.run(serve(nodes, shown, listeners, parent=parent, queues_max=int(arguments["queues_max"])))
    except (ListenerError, OSError) as error:
        log.critical("the console can't be served: %s", error)
        sys.exit(1)
