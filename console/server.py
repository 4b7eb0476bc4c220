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

from console.guard import LOOPBACK_NAMES, Guard, is_loopback
from console.logins import Logins
from console.metrics import Metrics
from console.pages import Pages
from console.views import Views
from quorate.credentials import Credentials
from quorate.json_lines import JsonLines
from quorate.nodes import Address

log = logging.getLogger("quorate.console")

SERVES: Final = ("console", "metrics", "health")
PORT: Final = 1180
CONNECTIONS_MAX: Final = 64
HEAD_BYTES_MAX: Final = 16 << 10
HEAD_S: Final = 10.0
"""So long a request may take to come: from its first byte on, the first one of a connection from that on."""

ROOM: Final = 16
"""So many connections more may be there for a moment, until those that were to make room are gone."""

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
    serves: frozenset[str] = field(default_factory=lambda: frozenset(SERVES))
    hosts: tuple[str, ...] = ()
    cert: str | None = None
    key: str | None = None
    is_insecure: bool = False

    def check(self) -> None:
        """Raises `ListenerError`."""
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
    """A connection is kept for its next request, and closed where that does not come whole in time.

    Beyond `CONNECTIONS_MAX` the one that has asked nothing for longest makes room.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at = self.loop.time()
        self._see()
        if len(self.connections) > CONNECTIONS_MAX:
            others = [one for one in self.connections if isinstance(one, _Protocol) and one.rests]
            if others:
                min(others, key=lambda one: one._asked_at).transport.abort()

    @property
    def rests(self) -> bool:
        """Whether nothing is being answered."""
        cycle = vars(self)["cycle"]
        return (cycle is None or cycle.response_complete) and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._see()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        super().connection_lost(exc)

    def _see(self) -> None:
        """Something has come: it is whole, or has `HEAD_S` from its first byte on to become so."""
        if not self.rests:
            self._asked_at = self.loop.time()
            self._let_go()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_S, self._too_slow)

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.rests:
            self.transport.close()


class _Server(uvicorn.Server):
    """Signals are the whole process's."""

    def install_signal_handlers(self) -> None:
        """None of its own."""

    def capture_signals(self) -> Any:
        """None of its own."""
        return contextlib.nullcontext()


def app_of(listener: HttpListener, port: int, views: Views, logins: Logins, queues_max: int) -> ASGIApp:
    """What answers there, at that port."""
    routes: list[BaseRoute] = [*Metrics(views, logins, queues_max).routes(listener.serves)]
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
    views, logins = Views(nodes, shown), Logins()
    servers: list[tuple[_Server, list[Any]]] = []
    for listener, sock in zip(listeners, [bound(one) for one in listeners], strict=True):
        port = sock.getsockname()[1]
        config = uvicorn.Config(
            app_of(listener, port, views, logins, queues_max),
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
    """A socket that listens there. Raises OSError."""
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
    """Serve what the argument says: see `actors.node.console_process`. Ends with the node's supervisor."""
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
