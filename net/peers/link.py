"""One link to another node: bytes to messages and back, after both sides have introduced themselves. No socket here.

A link carries messages one way, from the node that dialled; what the other has to say goes over the link that it
dialled itself. The stream begins with `MAGIC`; then frames: 4 bytes big-endian length, and a msgpack message. The
first is a hello, which the other side answers with its own or with why it refuses. What can't be decoded, or is larger
than the limit, cuts the link: a node that sends garbage is not obeyed.
"""

import struct
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from net.peers.messages import Hello, PeerMessage, Refused

MAGIC: Final = b"QPEER2\n"
_LENGTH: Final = struct.Struct(">I")
FRAME_BYTES_MAX: Final = 32 << 20
"""A push or a pull's answer has at most 8 MiB and one entry more, which has at most 8 MiB and one request more."""

HELLO_BYTES_MAX: Final = 4096

INTRODUCTIONS: Final = (Hello, Refused)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PeerMessage).decode


class PeerTransport(Protocol):
    """The link's end of a stream."""

    def write(self, data: bytes) -> None:
        """Send, now or when there is room."""

    def close(self) -> None:
        """Close when all that was written has left."""

    def abort(self) -> None:
        """Close at once."""


class LinkSink(Protocol):
    """Where what happens on links goes."""

    def link_hello(self, link: "PeerLink", hello: Hello) -> None:
        """The other side has introduced itself; answer by `accept` or `refuse` if it dialled."""

    def link_said(self, link: "PeerLink", message: PeerMessage) -> None:
        """A message came over an open link."""

    def link_renewed(self, link: "PeerLink", hello: Hello) -> None:
        """The other side has introduced itself anew over an open link: `link.peer` is the new hello."""

    def link_receiving(self, link: "PeerLink") -> None:
        """A part of a message has come over an open link."""

    def link_closed(self, link: "PeerLink", reason: str) -> None:
        """The link is closed."""


def encoded(message: PeerMessage) -> bytes:
    """A message as its frame."""
    payload = _encode(message)
    return _LENGTH.pack(len(payload)) + payload


class PeerLink:
    """One link. `is_dialler`: this side opened it. `peer` is the other's hello once it came."""

    def __init__(
        self, transport: PeerTransport, sink: LinkSink, *, is_dialler: bool, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self.is_dialler = is_dialler
        self.peer: Hello | None = None
        self.is_open = False
        self._transport = transport
        self._sink = sink
        self._buffer = bytearray()
        self._is_closed = False
        self._awaits_magic = not is_dialler

    @property
    def is_closed(self) -> bool:
        """Whether nothing comes or goes any more."""
        return self._is_closed

    def hand_to(self, sink: LinkSink) -> None:
        """What happens on the link from now on goes there."""
        self._sink = sink

    def introduce(self, hello: Hello) -> None:
        """Say hello, first of all."""
        self._transport.write(MAGIC + encoded(hello))

    def accept(self, hello: Hello) -> None:
        """The other side's hello is fine: answer with our own."""
        self.is_open = True
        self._transport.write(encoded(hello))

    def refuse(self, reason: str) -> None:
        """Say why the other side is not accepted, and close."""
        self._transport.write(encoded(Refused(reason)))
        self.close(reason)

    def send(self, frame: bytes) -> None:
        """Send a frame made by `encoded`."""
        if self.is_open:
            self._transport.write(frame)

    def renew(self, hello: Hello) -> None:
        """Say hello again: something in it has changed."""
        self.send(encoded(hello))

    def receive(self, data: bytes) -> None:
        """Bytes from the other side."""
        if self._is_closed:
            return
        buffer = self._buffer
        if self._awaits_magic:
            buffer += data
            if len(buffer) < len(MAGIC) and MAGIC.startswith(bytes(buffer)):
                return
            if not buffer.startswith(MAGIC):
                self.cut("it does not speak the peers' protocol")
                return
            data = bytes(buffer[len(MAGIC) :])
            buffer.clear()
            self._awaits_magic = False
        if buffer:
            buffer += data
            del buffer[: self._take_frames(buffer)]
        elif (taken := self._take_frames(data)) < len(data) and not self._is_closed:
            buffer += data[taken:]
        if buffer and self.is_open and not self._is_closed:
            self._sink.link_receiving(self)

    def _take_frames(self, data: bytes | bytearray) -> int:
        """Take the frames that are whole; how many bytes those had."""
        at, size = 0, len(data)
        while size - at >= _LENGTH.size and not self._is_closed:
            (length,) = _LENGTH.unpack_from(data, at)
            start = at + _LENGTH.size
            if length > (self._frame_bytes_max if self.peer is not None else HELLO_BYTES_MAX):
                self.cut(f"a frame of {length} bytes")
                break
            if size - start < length:
                break
            at = start + length
            try:
                message = _decode(data[start:at])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self.cut(f"a frame that is no message: {error}")
                break
            self._take(message)
        return at

    def _take(self, message: PeerMessage) -> None:
        if self.peer is not None and not self.is_dialler and not isinstance(message, INTRODUCTIONS):
            if self.is_open:
                self._sink.link_said(self, message)
            else:
                self.cut("a message before it was accepted")
        elif self.peer is None:
            if isinstance(message, Hello):
                self.peer = message
                self._sink.link_hello(self, message)
            elif isinstance(message, Refused):
                self.close(f"it refuses this node: {message.reason[:500]}")
            else:
                self.cut("a message before the hello")
        elif isinstance(message, Hello) and self.is_open:
            if (message.node_id, message.disk_id) != (self.peer.node_id, self.peer.disk_id):
                self.cut("a hello of another node than before")
            else:
                self.peer = message
                self._sink.link_renewed(self, message)
        elif isinstance(message, INTRODUCTIONS):
            self.cut("a second hello")
        else:
            self.cut("a message over a link that is for this node's own")

    def cut(self, reason: str) -> None:
        """Close at once."""
        if not self._is_closed:
            self._transport.abort()
            self.lost(reason)

    def close(self, reason: str) -> None:
        """Close when what was said has left."""
        if not self._is_closed:
            self._transport.close()
            self.lost(reason)

    def lost(self, reason: str) -> None:
        """The stream is closed."""
        if not self._is_closed:
            self._is_closed = True
            self.is_open = False
            self._buffer.clear()
            self._sink.link_closed(self, reason)


class PeerNetwork(Protocol):
    """Where links come from."""

    def dial(
        self, host: str, port: int, connected: Callable[[PeerTransport], PeerLink], failed: Callable[[str], None]
    ) -> None:
        """Open a stream; call one of the two. What it receives, and its end, go to the link."""
