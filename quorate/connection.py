"""One connection of the client library: a request out, a reply in, and what is certain when it breaks."""

import selectors
import socket
import ssl
import struct
import time
from typing import Any, Final

import msgspec

from quorate.credentials import NO_TLS, NOTHING, Credentials
from quorate.errors import ConnectionFailedError, ProtocolViolationError
from quorate.interrupt import Interrupt
from quorate.keep_alive import keep_alive
from quorate.lost import Lost
from quorate.nodes import Address
from quorate.payload import encode
from quorate.protocol import Action
from quorate.trying import token_refused

REPLY_BYTES_MAX: Final = 64 << 20
LAST_WORDS_S: Final = 2.0
"""For so long a node that closes the connection is given to say why."""

NOT_HEARD: Final = " and had said nothing: does it want TLS, or not believe this client's certificate?"

PROBE_S: Final = 1.0
BLANK: Final = b"\r\n\r\n"
"""What ends the head of an HTTP request."""

CANCEL: Final = int(Action.CANCEL)


class Connection:
    """Open to one node. Used by one thread at a time."""

    def __init__(self, address: Address, timeout_s: float, credentials: Credentials = NOTHING) -> None:
        """Connect, and show the token if there is one.

        Raises `Lost`, `RefusedError` for a token that is none, `ConnectionFailedError` for a node whose certificate is
        not to be believed.
        """
        self.address = address
        until = time.monotonic() + timeout_s
        try:
            self._socket = socket.create_connection(address, timeout=timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(self._socket)
        except (OSError, UnicodeError) as error:  # the latter is what a name is told that can't be one
            why = getattr(error, "strerror", None) or error
            raise Lost(f"{address[0]}:{address[1]}: {why}", was_sent=False) from error
        self._seq = 0
        self._buffer = bytearray()
        self._has_heard = False
        self._is_refused = False
        self._is_plain = credentials.context is None and socket.socket.__module__ == "socket"
        self._limit_s = 0.0
        if self._is_plain:
            self._socket.setblocking(True)
        try:
            self._begin(credentials, until)
        except BaseException:
            self._socket.close()
            raise

    def _begin(self, credentials: Credentials, until: float) -> None:
        host, port = self.address
        context = credentials.context
        if context is not None:
            try:
                self._socket.settimeout(max(until - time.monotonic(), 0.001))
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            except ssl.SSLCertVerificationError as error:
                why = f"{host}:{port}: its certificate is not to be believed: {error.verify_message}"
                raise ConnectionFailedError(why) from error
            except ssl.SSLError as error:
                if error.reason in NO_TLS:
                    raise ConnectionFailedError(f"{host}:{port}: it does not speak TLS") from error
                raise Lost(f"{host}:{port}: by TLS: {error}", was_sent=False) from error
            except OSError as error:
                raise Lost(f"{host}:{port}: by TLS: {error}", was_sent=False) from error
        asked = credentials.greeting
        if asked is None:
            return
        try:
            reply = self.exchange(asked, max(until - time.monotonic(), 0.001))
        except Lost as lost:
            raise Lost(str(lost), was_sent=False) from lost
        refusal = None if credentials.token is None else token_refused(reply, self.address)
        if refusal is not None:
            raise refusal

    @property
    def is_stale(self) -> bool:
        """Whether the node has closed it, or said something, while nothing was expected.

        Another one asks for the first time then; what was said (that it was idle for too long) answers no request. One
        whose client was refused as a whole is closed by the node, too.
        """
        if self._buffer or self._is_refused:
            return True
        try:
            if self._is_plain:
                self._socket.recv(1, socket.MSG_DONTWAIT)
                return True
            self._socket.setblocking(False)
            self._socket.recv(1)  # TLS can't be peeked into; what is there makes it stale anyway
            return True
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True

    def exchange(self, body: dict[str, Any], timeout_s: float, interrupt: Interrupt | None = None) -> dict[str, Any]:
        """Send a request and return its reply. Raises `Lost`, `ProtocolViolationError`.

        When `interrupt` is set the node is told to end the wait, and its reply comes soon.

        It gets a number of its own (`seq`), and what comes back must have it: a reply to another request, or of
        another process, is never taken for this one's. Only a refusal of the whole client, or of what could not be
        read, has none.
        """
        self._seq = seq = self._seq + 1
        until = time.monotonic() + timeout_s
        reply = self._send(encode({**body, "seq": seq}) + b"\n", timeout_s)
        if reply is None:
            reply = self._answer(until) if interrupt is None else self._interruptible(until, interrupt)
        got = reply.pop("seq", None)
        if got is None and reply.get("code") != 0:
            self._is_refused = True
        if got != seq and (got is not None or reply.get("code") == 0):
            raise ProtocolViolationError(f"a reply to another request: {str(reply)[:100]}")
        if "seq" in body:
            reply["seq"] = body["seq"]
        return reply

    def _interruptible(self, until: float, interrupt: Interrupt) -> dict[str, Any]:
        """Return the answer to a wait that may be ended: then the node answers that, and what it was told."""
        if not self._is_interrupted(until, interrupt):
            return self._answer(until)
        self._send(encode({"action": CANCEL, "seq": self._seq}) + b"\n", LAST_WORDS_S)
        until = min(until, time.monotonic() + LAST_WORDS_S)
        reply = self._answer(until)
        try:
            self._read_reply(until)  # to the cancel: it comes behind that answer
        except (OSError, ProtocolViolationError):
            self._buffer += b"?"  # it is stale from now on
        return reply

    def _is_interrupted(self, until: float, interrupt: Interrupt) -> bool:
        """Read until a whole line has come, or time is over; True if it was interrupted before."""
        if not self._is_plain:
            self._socket.setblocking(False)
        flags = socket.MSG_DONTWAIT if self._is_plain else 0
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(interrupt, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                try:
                    part = self._socket.recv(1 << 16, flags)
                except (BlockingIOError, ssl.SSLWantReadError):  # TLS may have said something of its own
                    left_s = until - time.monotonic()
                    found = selector.select(left_s) if left_s > 0 else []
                    if any(key.fileobj is interrupt for key, _ in found):
                        return True
                    if not found:
                        return False
                    continue
                except OSError as error:
                    raise Lost(self._said(error), was_sent=True) from error
                if not part:
                    return False
                self._has_heard = True
                self._buffer += part
        return False

    def _limit(self, timeout_s: float) -> None:
        """Limit what is sent or received from now on to about so long, up to an eighth longer: then it raises.

        The system keeps the time of a plain socket, so that a request asks it for nothing but to send and to receive;
        Python's own time-outs ask four times as often. TLS has to look at the clock itself, and so have the sockets
        that gevent and eventlet put in the place of the system's.
        """
        if not self._is_plain:
            self._socket.settimeout(timeout_s)
        elif not timeout_s * 0.99 <= self._limit_s <= timeout_s * 1.125:
            self._limit_s = timeout_s
            limit = struct.pack("@ll", int(timeout_s), int(timeout_s % 1 * 1e6) or 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def _send(self, data: bytes, timeout_s: float) -> dict[str, Any] | None:
        """Send; returns what the node said if it has broken the connection. Raises `Lost`."""
        self._limit(timeout_s)
        try:
            self._socket.sendall(data)
        except OSError as error:
            reply = self._last_words()
            if reply is not None:
                return reply
            raise Lost(self._said(error), was_sent=True) from error
        return None

    def _answer(self, until: float) -> dict[str, Any]:
        try:
            return self._read_reply(until) if self._has_heard else self._first_reply(until)
        except OSError as error:
            raise Lost(self._said(error), was_sent=True) from error

    def _first_reply(self, until: float) -> dict[str, Any]:
        """Read the first reply of all. Shortly before its time is over a blank line is sent: a node passes it over, but
        a server of HTTP has waited for that, and what it answers is no reply.
        """
        left_s = max(until - time.monotonic(), 0.0)
        try:
            return self._read_reply(until - min(PROBE_S, left_s / 4))
        except (TimeoutError, BlockingIOError):
            self._socket.sendall(BLANK)
        return self._read_reply(until)

    def _said(self, error: OSError) -> str:
        what = "no answer in time" if isinstance(error, TimeoutError | BlockingIOError) else str(error)
        return f"{self.address[0]}:{self.address[1]}: {what}"

    def _last_words(self) -> dict[str, Any] | None:
        """Return the reply that came before the connection broke: a request that is too large is refused so."""
        try:
            return self._read_reply(time.monotonic() + LAST_WORDS_S)
        except (OSError, ProtocolViolationError):
            return None

    def _read_reply(self, until: float) -> dict[str, Any]:
        line = self._read_line(until)
        try:
            reply = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProtocolViolationError(f"not a reply ({error}): {line[:100]!r}") from error
        if not isinstance(reply, dict):
            raise ProtocolViolationError(f"not a reply: {line[:100]!r}")
        if "bytes" in reply:
            reply["entries"] = self._read_bytes(int(reply["bytes"]), until)
        return reply

    def _read_line(self, until: float) -> bytes:
        buffer = self._buffer
        searched = 0
        while (end := buffer.find(b"\n", searched)) < 0:
            searched = len(buffer)
            self._limit(max(until - time.monotonic(), 0.001))
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionResetError(f"the node closed the connection{'' if self._has_heard else NOT_HEARD}")
            self._has_heard = True
            if not searched and part.find(b"\n") == len(part) - 1:
                return part  # nearly always
            buffer += part
            if len(buffer) > REPLY_BYTES_MAX:
                raise ProtocolViolationError(f"a reply of more than {REPLY_BYTES_MAX} bytes")
        line = bytes(buffer[:end])
        del buffer[: end + 1]
        return line

    def _read_bytes(self, size: int, until: float) -> bytes:
        """Read what follows a reply that says its size."""
        if not 0 <= size <= REPLY_BYTES_MAX:
            raise ProtocolViolationError(f"a reply is followed by {size} bytes")
        found = bytearray(size)
        ready = min(len(self._buffer), size)
        found[:ready] = self._buffer[:ready]
        del self._buffer[:ready]
        view = memoryview(found)
        while ready < size:
            self._limit(max(until - time.monotonic(), 0.001))
            got = self._socket.recv_into(view[ready:])
            if not got:
                raise ConnectionResetError("the node closed the connection")
            ready += got
        return bytes(found)

    def close(self) -> None:
        """Give it back."""
        self._socket.close()
