"""What comes before every page: whose Host it names, whether another site sent it, how much at a time, and headers.

The rules are the browser's own words (`Sec-Fetch-Site`, `Origin`, `Host`), not tokens in forms: what they say can't be
forged by a page of another origin. A foreign Host is how DNS rebinding looks from here.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("quorate.console")

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
AT_ONCE: Final = 16
"""Requests that are answered at a time; more wait, and no longer than `WAIT_S`."""

WAIT_S: Final = 10.0
ANSWER_S: Final = 30.0
"""So long an answer may take, until it is read."""

BODY_BYTES_MAX: Final = 64 << 10
BODY_S: Final = 10.0
"""So long the body of a request may take."""

APART: Final = ("/healthz", "/readyz", "/login", "/logout", "/favicon.ico")
"""What is not among the requests at a time: probes are asked always, and log-ins have a line of their own."""

FILES: Final = "/static/"
"""Nor are files, which take no node."""

METHODS: Final = ("GET", "HEAD", "POST")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NO_STORE: Final = (b"cache-control", b"no-store")


def is_loopback(host: str) -> bool:
    """Whether that is an address, or a name, of this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(header: str) -> str:
    """Read the name in a Host header, without its port, in lower case."""
    host, colon, port = header.strip().rpartition(":")
    return (host if colon and port.isdigit() else header.strip()).lower()


class Guard:
    """Around `app`. `hosts`: names by which it may be asked."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._room = asyncio.Semaphore(AT_ONCE)

    def fault(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is refused, with the status; None if it is not."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if host_of(host) not in self._hosts:
            return 421, "this console is not called so: see hosts in docs/console.md"
        if scope["method"] not in METHODS:
            return 405, "GET and POST are what there is here"
        if scope["method"] == "POST":
            site, origin = headers.get("sec-fetch-site"), headers.get("origin")
            own = f"{scope['scheme']}://{host}"
            says = origin in (None, "null") or urlsplit(origin or "").netloc == host  # before a proxy it may be by TLS
            is_own = origin == own if site is None else site == "same-origin" and says
            if not is_own:  # "null": what a browser says of a page that may not say where it came from
                return 403, "another site's page has sent this: nothing was done"
            if int(headers.get("content-length") or 0) > BODY_BYTES_MAX:
                return 413, f"a form has {BODY_BYTES_MAX} bytes at most"
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                more = [*HEADERS, *([] if b"cache-control" in there else [NO_STORE])]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            fault = self.fault(scope)
        except ValueError:
            fault = 400, "a header is not what it should be"
        if fault is not None:
            status, reason = fault
            await PlainTextResponse(f"{reason}\n", status)(scope, receive, send_guarded)
            return
        room = None if scope["path"] in APART or scope["path"].startswith(FILES) else self._room
        if scope["method"] == "POST":  # whoever is slow to send it takes no room
            body = await body_of(receive)
            if body is None:
                reason = "the form is too long, or came too slowly"
                await PlainTextResponse(f"{reason}\n", 413)(scope, receive, send_guarded)
                return
            receive = again(body, receive)
        if room is not None:
            try:
                await asyncio.wait_for(room.acquire(), WAIT_S)
            except TimeoutError:
                await PlainTextResponse("too many requests at a time\n", 503)(scope, receive, send_guarded)
                return
        holds = [room] if room is not None else []

        async def send_and_leave(message: Message) -> None:
            if holds and message["type"] == "http.response.body" and not message.get("more_body"):
                holds.pop().release()  # it is made; how slowly it is read is the connection's
            await send_guarded(message)

        try:
            async with asyncio.timeout(ANSWER_S):
                await self._app(scope, receive, send_and_leave)
        except TimeoutError:
            log.debug("%s took longer than %d s", scope["path"], ANSWER_S)  # the connection is cut off
        finally:
            if holds:
                holds.pop().release()


def again(body: bytes, receive: Receive) -> Receive:
    """Give a request's body, which was read before; then whatever comes."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def told() -> Message:
        return parts.pop() if parts else await receive()

    return told


async def body_of(receive: Receive) -> bytes | None:
    """Read a request's body; None: it is too long, or too slow, or its client has gone."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                body.extend(message.get("body", b""))
                if len(body) > BODY_BYTES_MAX:
                    return None
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        return None
