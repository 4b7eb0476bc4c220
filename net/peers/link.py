"""One link to another node: bytes to messages and back, after both sides have introduced themselves. No socket here.

A link carries messages one way, from the node that dialled; what the other has to say goes over the link that it
dialled itself. It begins with both openings (`net.peers.proof`); then come frames: 4 bytes big-endian length, a msgpack
message, and its seal, where both have the cluster's secret. The first is the dialler's hello, which the other side
answers with its own or with why it refuses. What is not sealed right, can't be decoded, or is larger than the limit,
cuts the link: a node that sends garbage is not obeyed.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from net.peers.messages import Hello, PeerMessage, Refused
from net.peers.proof import (
    MAGIC,
    OPENING_BYTES,
    PROOF_BYTES,
    SEAL_BYTES,
    Key,
    Keyring,
    Session,
    has_keys,
    shared_key,
)

_LENGTH: Final = struct.Struct(">I")
FRAME_BYTES_MAX: Final = 32 << 20
"""A push or a pull's answer has at most 8 MiB and one entry more, which has at most 8 MiB and one request more."""

STREAM_BYTES_MAX: Final = 64 << 20
"""What may wait unsent in a stream: far more than the windows of pushes and pulls allow, and than is handed to it of
clients' requests at a time. A node that takes nothing is cut off, and dialled again."""

HELLO_BYTES_MAX: Final = 4096

CLOSED: Final = "the link is closed"

INTRODUCTIONS: Final = (Hello, Refused)

encoded = msgspec.msgpack.Encoder().encode
"""A message as bytes; `PeerLink.send` makes frames of them."""

_decode = msgspec.msgpack.Decoder(PeerMessage).decode


class PeerTransport(Protocol):
    """The link's end of a stream."""

    def write(self, data: bytes) -> None:
        """Send, now or when there is room."""

    def get_write_buffer_size(self) -> int:
        """How much waits to be sent (bytes)."""

    def close(self) -> None:
        """Close when all that was written has left."""

    def abort(self) -> None:
        """Close at once."""


@dataclass(frozen=True)
class Origin:
    """What the stream itself tells of its other end: the `address`, for people, and what vouches for it.

    `certified`: the node_ids that its certificate names, None: there is none. `is_trusted`: nobody but the node's own
    user can be there. `proved` is called when it has proved to be what it says.
    """

    address: str = ""
    certified: frozenset[int] | None = None
    is_trusted: bool = False
    proved: Callable[[], None] = lambda: None


NOTHING_TO_PROVE: Final = Keyring()


@dataclass(frozen=True)
class LinkTerms:
    """What holds for all links of a worker: by which secrets it proves itself, and how large a frame may be (bytes)."""

    keyring: Keyring = NOTHING_TO_PROVE
    frame_bytes_max: int = FRAME_BYTES_MAX

    def is_met_by(self, link: "PeerLink") -> bool:
        """Whether a link that is open may stay so."""
        if link.origin.is_trusted:
            return True
        return not self.keyring.is_required if link.key is None else self.keyring.named(link.key.name) is not None


class LinkSink(Protocol):
    """Where what happens on links goes."""

    def link_hello(self, link: "PeerLink", hello: Hello) -> None:
        """Hear the other side introduce itself; answer by `accept` or `refuse` if it dialled."""

    def link_said(self, link: "PeerLink", message: PeerMessage) -> None:
        """Handle a message that came over an open link."""

    def link_renewed(self, link: "PeerLink", hello: Hello) -> None:
        """Hear the other side introduce itself anew over an open link: `link.peer` is the new hello."""

    def link_receiving(self, link: "PeerLink") -> None:
        """Note that a part of a message has come over an open link."""

    def link_drained(self, link: "PeerLink") -> None:
        """Note that what was sent has left, after the link was full."""

    def link_closed(self, link: "PeerLink", reason: str) -> None:
        """Forget a link that is closed."""


class PeerLink:
    """One link. `is_dialler`: this side opened it. `peer` is the other's hello once it came.

    `is_full`: so much waits to be sent that what can wait should. `is_removed`: the other side has refused this node,
    since it was removed from the cluster.
    """

    def __init__(
        self,
        transport: PeerTransport,
        sink: LinkSink,
        terms: LinkTerms,
        *,
        is_dialler: bool,
        origin: Origin,
    ) -> None:
        self._frame_bytes_max = terms.frame_bytes_max
        self.is_dialler = is_dialler
        self.origin = origin
        self.peer: Hello | None = None
        self.is_open = False
        self.is_removed = False
        self._transport = transport
        self._sink = sink
        self._keyring = NOTHING_TO_PROVE if origin.is_trusted else terms.keyring
        self._buffer = bytearray()
        self._is_closed = False
        self.is_full = False
        self._opening = b""
        self._is_opened = False
        self._hello = b""
        self._session: Session | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing comes or goes any more."""
        return self._is_closed

    @property
    def key(self) -> Key | None:
        """The secret that both sides have proved to each other."""
        return None if self._session is None else self._session.key

    @property
    def is_proven(self) -> bool:
        """Whether more than its own word says that the other side belongs to the cluster, once `peer` is there."""
        return self._session is not None or self.origin.certified is not None or self.origin.is_trusted

    # -- saying ------------------------------------------------------------------------------------------------

    def introduce(self, hello: Hello) -> None:
        """Say hello, as soon as the other side has proved that it lives."""
        self._hello = encoded(hello)
        self._opening = self._keyring.opening()
        self._transport.write(self._opening)

    def accept(self, hello: Hello) -> None:
        """Answer the other side's hello, which is fine, with our own."""
        self.is_open = True
        self._write_proved(encoded(hello))
        if not self.is_proven:
            self.origin.proved()  # nothing more is asked for

    def refuse(self, reason: str, *, is_removed: bool = False) -> None:
        """Say why the other side is not accepted, and close. `is_removed`: it was removed from the cluster."""
        self._write_proved(encoded(Refused(reason, is_removed)))
        self.close(reason)

    def _write_proved(self, message: bytes) -> None:
        """Make the one frame by which a side proves that it has the secret, if both have one."""
        proof = b"" if self._session is None else self._session.proof(message)
        self._transport.write(_LENGTH.pack(len(message)) + message + proof)

    def send(self, messages: list[bytes]) -> None:
        """Send messages made by `encoded`, in one piece."""
        if not self.is_open:
            return
        session = self._session
        parts: list[bytes] = []
        for message in messages:
            parts.append(_LENGTH.pack(len(message)))
            parts.append(message)
            if session is not None:
                parts.append(session.seal(message))
        self._transport.write(b"".join(parts))
        if self.is_full and self._transport.get_write_buffer_size() > STREAM_BYTES_MAX:
            self.cut(f"{STREAM_BYTES_MAX} bytes wait for it")

    def renew(self, hello: Hello) -> None:
        """Say hello again: something in it has changed."""
        self.send([encoded(hello)])

    # -- hearing -----------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Bytes from the other side."""
        if self._is_closed:
            return
        buffer = self._buffer
        if not self._is_opened:
            buffer += data
            begun = bytes(buffer[: len(MAGIC)])
            if not MAGIC.startswith(begun):
                self.cut("it does not speak the peers' protocol")
                return
            if len(buffer) < OPENING_BYTES:
                return
            data = bytes(buffer[OPENING_BYTES:])
            opening = bytes(buffer[:OPENING_BYTES])
            buffer.clear()
            if not self._opened(opening):
                return
        if buffer:
            buffer += data
            del buffer[: self._take_frames(buffer)]
        elif (taken := self._take_frames(data)) < len(data) and not self._is_closed:
            buffer += data[taken:]
        if buffer and self.is_open and not self._is_closed:
            self._sink.link_receiving(self)

    def _opened(self, its: bytes) -> bool:
        """Find out from the other side's opening whether both have one secret. Whether the link goes on."""
        self._is_opened = True
        keyring = self._keyring
        if not self.is_dialler:
            self._opening = keyring.opening()
            self._transport.write(self._opening)
        key = shared_key(keyring, self._opening, its, is_dialler=self.is_dialler)
        if key is None and keyring.is_required:
            has = "has another cluster secret than this one" if has_keys(its) else "has no cluster secret"
            self.close(f"the node there {has}")
            return False
        if key is not None:
            dialler, listener = (self._opening, its) if self.is_dialler else (its, self._opening)
            self._session = Session(key, dialler, listener, is_dialler=self.is_dialler)
        if self.is_dialler:
            self._write_proved(self._hello)
        return True

    def _take_frames(self, data: bytes | bytearray) -> int:
        """Take the frames that are whole; how many bytes those had."""
        at, size = 0, len(data)
        while size - at >= _LENGTH.size and not self._is_closed:
            (length,) = _LENGTH.unpack_from(data, at)
            start = at + _LENGTH.size
            if length > (self._frame_bytes_max if self.peer is not None else HELLO_BYTES_MAX):
                self.cut(f"a frame of {length} bytes")
                break
            seal_bytes = 0 if self._session is None else PROOF_BYTES if self.peer is None else SEAL_BYTES
            end = start + length
            if size < end + seal_bytes:
                break
            at = end + seal_bytes
            frame = data[start:end]
            if self._session is not None and not self._is_genuine(self._session, frame, data[end:at]):
                break
            try:
                message = _decode(frame)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self.cut(f"a frame that is no message: {error}")
                break
            self._take(message)
        return at

    def _is_genuine(self, session: Session, frame: bytes | bytearray, seal: bytes | bytearray) -> bool:
        if self.peer is not None:
            is_genuine = session.is_sealed(frame, seal)
        else:
            is_genuine = session.is_proved(frame, seal, answers=self._hello if self.is_dialler else b"")
        if not is_genuine:
            self.cut("a frame that does not prove the cluster's secret")
        return is_genuine

    def _take(self, message: PeerMessage) -> None:
        if self.peer is not None and not self.is_dialler and not isinstance(message, INTRODUCTIONS):
            if self.is_open:
                self._sink.link_said(self, message)
            else:
                self.cut("a message before it was accepted")
        elif self.peer is None:
            if isinstance(message, Hello):
                self._introduced(message)
            elif isinstance(message, Refused):
                self.is_removed = message.is_removed
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

    def _introduced(self, hello: Hello) -> None:
        certified = self.origin.certified
        if certified is not None and hello.node_id not in certified:
            names = ", ".join(map(str, sorted(certified))) or "none"
            self.cut(f"it says that it is node {hello.node_id}, and its certificate is for node {names}")
            return
        self.peer = hello
        if self.is_proven and not self.is_dialler:
            self.origin.proved()
        self._sink.link_hello(self, hello)

    def fill(self, is_full: bool) -> None:
        """Note that the stream takes no more for now, or does again."""
        self.is_full = is_full
        if not is_full and not self._is_closed:
            self._sink.link_drained(self)

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
        """Note that the stream is closed."""
        if not self._is_closed:
            if self.is_dialler and self.peer is None and reason == CLOSED:
                reason = (
                    f"{CLOSED} before the node there had proved anything: its log may say why (secret, certificate?)"
                )
            self._is_closed = True
            self.is_open = False
            self._buffer.clear()
            self._sink.link_closed(self, reason)


Connected = Callable[[PeerTransport, Origin], PeerLink]
"""Told of a stream that is open: makes its link."""


class PeerNetwork(Protocol):
    """Where links come from."""

    def dial(self, host: str, port: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """Open a stream; call one of the two. What it receives, and its end, go to the link."""
