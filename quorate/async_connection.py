"""One connection of the async client: many requests under way, each known by its number; one write a turn.

A machine around an asyncio transport: nothing here tries again, and nothing decides where to ask.
"""

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from quorate.connection import BLANK
from quorate.credentials import NO_TLS, Credentials
from quorate.errors import ConnectionFailedError, ProtocolViolationError, QuorateError
from quorate.keep_alive import keep_alive, peer_has_ended
from quorate.lost import Lost, NotLetInError
from quorate.nodes import Address
from quorate.payload import encode
from quorate.protocol import Action
from quorate.trying import token_refused

REPLY_BYTES_MAX: Final = 64 << 20
SWEEP_S: Final = 0.25
"""So often it is looked whether an answer is missing."""

_decode: Final = msgspec.json.Decoder().decode

_CANCEL: Final = int(Action.CANCEL)

Reply = dict[str, Any]


PROBE_S: Final = 1.0
"""Where a node has said nothing for so long since it was connected, a blank line is sent: a server of HTTP answers."""


class Pending:
    """A request that is not answered yet, until `deadline` (loop time). `late` gets a reply that nobody waits for.

    `ended` is told when it is answered, or is not going to be. `waits`: the node may be told to end it.
    """

    __slots__ = ("deadline", "ended", "future", "late", "waits", "was_flushed")

    def __init__(
        self,
        future: "asyncio.Future[Reply]",
        deadline: float,
        late: Callable[[Reply], None] | None,
        ended: Callable[[], None] | None,
        waits: bool,
    ) -> None:
        self.future = future
        self.deadline = deadline
        self.late = late
        self.ended = ended
        self.waits = waits
        self.was_flushed = False


class AsyncConnection(asyncio.Protocol):
    """Open to the node at `address`; `open` requests are under way on it. Of one loop.

    A connection on which nothing is heard for `silent_s` while an answer is overdue `is_silent`: it gets no new
    requests, and is closed when the last one was sent that long ago.
    """

    def __init__(self, address: Address, silent_s: float) -> None:
        self.address = address
        self.is_closed = False
        self.is_silent = False
        self._silent_s = silent_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._seq = 0
        self._out: list[bytes] = []
        self._pending: dict[int, Pending] = {}
        self._buffer = bytearray()
        self._raw: tuple[Reply, int] | None = None
        self._heard_at = self._asked_at = self._loop.time()
        self._sweep: asyncio.TimerHandle | None = None
        self._probes_at = self._heard_at + PROBE_S

    @classmethod
    async def connect(
        cls, address: Address, timeout_s: float, credentials: Credentials, silent_s: float
    ) -> "AsyncConnection":
        """Open one, and show its token. Raises `Lost`, `NotLetInError`."""
        loop = asyncio.get_running_loop()
        host, port = address
        named = f"{host}:{port}"
        try:
            context = credentials.context
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: cls(address, silent_s),
                    host,
                    port,
                    ssl=context,
                    server_hostname=host if context is not None else None,
                )
                if (asked := credentials.greeting) is not None:
                    await connection._greet(asked, timeout_s, has_token=credentials.token is not None)
        except QuorateError as error:
            raise NotLetInError(error) from error
        except Lost as lost:
            raise Lost(str(lost), was_sent=False) from lost
        except TimeoutError as error:
            raise Lost(f"{named}: not connected in time", was_sent=False) from error
        except ssl.SSLCertVerificationError as error:
            failed = ConnectionFailedError(f"{named}: its certificate is not to be believed: {error.verify_message}")
            raise NotLetInError(failed) from error
        except (OSError, UnicodeError) as error:  # TLS errors are the former, names that can't be the latter
            if isinstance(error, ssl.SSLError) and error.reason in NO_TLS:
                raise NotLetInError(ConnectionFailedError(f"{named}: it does not speak TLS")) from error
            raise Lost(f"{named}: {error}", was_sent=False) from error
        return connection

    async def _greet(self, asked: dict[str, Any], timeout_s: float, *, has_token: bool) -> None:
        try:
            reply = await self.ask(encode(asked), timeout_s)
            if has_token and (why := token_refused(reply, self.address)) is not None:
                raise why
        except BaseException:
            self.close()
            raise

    # -- requests ----------------------------------------------------------------------------------------------

    @property
    def open(self) -> int:
        """How many requests are not answered."""
        return len(self._pending)

    def ask(
        self,
        body: bytes,
        timeout_s: float,
        *,
        late: Callable[[Reply], None] | None = None,
        ended: Callable[[], None] | None = None,
        waits: bool = False,
    ) -> "asyncio.Future[Reply]":
        """Send a request, a JSON object without a number; the future holds its reply, or raises `Lost`.

        When who waits is cancelled, the request is left to end: its reply goes to `late`.
        """
        future: asyncio.Future[Reply] = self._loop.create_future()
        if not self._pending and self._has_hung_up():
            self.close()
        if self.is_closed:
            future.set_exception(Lost(f"{self._named}: the connection is closed", was_sent=False))
            if ended is not None:
                ended()
            return future
        self._seq = seq = self._seq + 1
        self._asked_at = now = self._loop.time()
        if not self._pending:
            self._heard_at = now  # from now on something is to be heard
        self._pending[seq] = Pending(future, now + timeout_s, late, ended, waits)
        self._say(b'{"seq":%d,' % seq + body[1:])
        if self._sweep is None:
            self._sweep = self._loop.call_later(SWEEP_S, self._swept)
        return future

    def _say(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _has_hung_up(self) -> bool:
        """Whether the node has closed its end, which this loop may not have been told yet."""
        return self._transport is not None and peer_has_ended(self._transport.get_extra_info("socket"))

    def cancel(self, future: "asyncio.Future[Reply]") -> None:
        """Let what waits with that future wait no more; its reply comes, and goes to `late` if nobody wants it."""
        for seq, pending in self._pending.items():
            if pending.future is future:
                self._cancel(seq, pending)
                return

    def cancel_waits(self) -> None:
        """So is all that waits."""
        for seq, pending in list(self._pending.items()):
            if pending.waits:
                self._cancel(seq, pending)

    def _cancel(self, seq: int, pending: Pending) -> None:
        pending.waits = False
        pending.deadline = min(pending.deadline, self._loop.time() + self._silent_s)
        if not self.is_closed:
            self._say(encode({"action": _CANCEL, "seq": seq}))

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(b"\n".join([*out, b""]))
            for pending in reversed(self._pending.values()):
                if pending.was_flushed:
                    break
                pending.was_flushed = True

    def _swept(self) -> None:
        """Give up what is answered too late; where nothing is heard at all, the connection, too.

        What was asked lately has its time: a node that goes on after a pause answers it in a moment.
        """
        self._sweep = None
        now = self._loop.time()
        if self._probes_at <= now and self._pending:
            self._probes_at = math.inf
            self._say(BLANK)
        overdue = [one for one in self._pending.values() if one.deadline <= now]
        for one in overdue:
            if not one.future.done():
                one.future.set_exception(Lost(f"{self._named}: no answer in time", was_sent=True))
        if overdue and self._heard_at <= now - self._silent_s:
            self.is_silent = True
        if self.is_silent and self._asked_at <= now - self._silent_s:
            self.close()
        elif self._pending or self.is_silent:
            self._sweep = self._loop.call_later(SWEEP_S, self._swept)

    # -- the transport -----------------------------------------------------------------------------------------

    @property
    def _named(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As a protocol."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by their class
        sock = transport.get_extra_info("socket")
        if sock is not None:
            keep_alive(sock)

    def data_received(self, data: bytes) -> None:
        """As a protocol."""
        self._heard_at = self._loop.time()
        self._probes_at = math.inf
        if self._buffer:
            self._buffer += data
            wanted = self._raw[1] if self._raw is not None else 0
            if (len(self._buffer) < wanted) if wanted else (b"\n" not in data):
                if len(self._buffer) > REPLY_BYTES_MAX:
                    self._fail(ProtocolViolationError(f"a reply of more than {REPLY_BYTES_MAX} bytes"))
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        start = self._read(data)
        if start < len(data) and not self.is_closed:
            self._buffer += memoryview(data)[start:]

    def _read(self, data: bytes) -> int:
        """Hand what is whole of it to who waits; returns where the rest begins."""
        start = 0
        while not self.is_closed:
            if self._raw is not None:
                reply, size = self._raw
                if len(data) - start < size:
                    break
                reply["entries"] = data[start : start + size]
                start += size
                self._raw = None
                self._replied(reply)
                continue
            end = data.find(b"\n", start)
            if end < 0:
                break
            line = data[start:end]
            start = end + 1
            try:
                reply = _decode(line)
                if not isinstance(reply, dict):
                    raise ValueError("no object")
                size = int(reply["bytes"]) if "bytes" in reply else 0
                if not 0 <= size <= REPLY_BYTES_MAX:
                    raise ValueError(f"followed by {size} bytes")
            except (msgspec.DecodeError, UnicodeDecodeError, TypeError, ValueError) as error:
                self._fail(ProtocolViolationError(f"not a reply ({error}): {line[:100]!r}"))
                break
            if "bytes" in reply:
                self._raw = (reply, size)
            else:
                self._replied(reply)
        return start

    def _replied(self, reply: Reply) -> None:
        seq = reply.pop("seq", None)
        if seq is None and reply.get("code") != 0:
            self._refused(reply)
            return
        if reply.get("action") == _CANCEL:
            return  # what it ended was answered before
        pending = self._pending.pop(seq, None) if isinstance(seq, int) else None
        if pending is None:
            self._fail(ProtocolViolationError(f"a reply to another request: {str(reply)[:100]}"))
            return
        if not pending.future.done():
            pending.future.set_result(reply)
        elif pending.late is not None:
            pending.late(reply)
        if pending.ended is not None:
            pending.ended()

    def _refused(self, reply: Reply) -> None:
        """Close: the node refuses this client, or could not read what it sent, and nothing more is answered here."""
        waiting = [one for one in self._pending.values() if not one.future.done()]
        if len(waiting) == 1:
            waiting[0].future.set_result(reply)
        self._end(f"{self._named}: {reply.get('error')}: {reply.get('reason')}")
        self.close()

    def _fail(self, error: Exception) -> None:
        for one in self._pending.values():
            if not one.future.done():
                one.future.set_exception(error)
        self._end("")
        self.close()

    def _end(self, why: str) -> None:
        """Nothing of what is open is answered."""
        pending, self._pending = self._pending, {}
        for one in pending.values():
            if not one.future.done():
                one.future.set_exception(Lost(why, was_sent=one.was_flushed))
            if one.ended is not None:
                one.ended()

    def connection_lost(self, exc: Exception | None) -> None:
        """As a protocol."""
        self.is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._end(f"{self._named}: {exc or 'the node closed the connection'}")

    def close(self) -> None:
        """Give it back. What is open is lost."""
        self.is_closed = True
        self._end(f"{self._named}: the connection was closed")
        if self._transport is not None:
            self._transport.abort()
