"""Connections that move between a node's workers: a worker sends another one the socket itself (SCM_RIGHTS).

The sockets' folder is the workers' own (`net.peers.workers`), so nobody else can send one. What a client sends
meanwhile stays in the system until its new worker reads it, and it notices nothing.
"""

import asyncio
import contextlib
import os
import socket
import struct
from array import array
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

WORDS_BYTES: Final = 1024
FD_BYTES: Final = array("i").itemsize


class MovedClient(msgspec.Struct, array_like=True):
    """What goes with a connection: its protocol, how often it has moved, who it is, and by what that was known.

    `state`: what its protocol needs to go on.
    """

    protocol: str
    moves: int
    principal: str = ""
    proof: str = ""
    state: bytes = b""


class MovedIn(NamedTuple):
    """A connection that another worker has sent."""

    sock: socket.socket
    luggage: MovedClient


def move_out(path: str, transport: Any, luggage: MovedClient) -> bool:
    """Send a connection, which must have nothing unread and nothing unsent, to the worker that listens at `path`.

    Whether it is that worker's now. If so the transport is closed here, without the client noticing. One with TLS
    stays: what its two ends have agreed on is in this process.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("ssl_object") is not None:
        return False
    words = msgspec.msgpack.encode(luggage)
    if len(words) > WORDS_BYTES:
        return False  # what its protocol remembers is too much to go along
    descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", sock.fileno()))]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as via:
            via.setblocking(False)
            via.sendmsg([words], descriptors, 0, path)
    except OSError:
        return False  # nobody is there, or too many wait there: it stays
    transport.abort()
    return True


class MovingIn:
    """Takes in what other workers send to `path`, as long as it is open and `has_room`. Raises OSError.

    When there is no room any more it closes: nobody can send then, and the clients stay where they are.
    """

    def __init__(self, path: str, taken: Callable[[MovedIn], None], has_room: Callable[[], bool]) -> None:
        self._path = path
        self._taken = taken
        self._has_room = has_room
        self._sock: socket.socket | None = None
        self.open()

    def open(self) -> None:
        """Let them send, if there is room for it. Raises OSError, and is closed then."""
        if self._sock is not None or not self._has_room():
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            sock.bind(self._path)
            os.chmod(self._path, 0o600)
        except OSError:
            sock.close()
            raise
        self._sock = sock
        asyncio.get_running_loop().add_reader(sock.fileno(), self._readable)

    def close(self) -> None:
        """Take nothing more than what was sent already."""
        sock, self._sock = self._sock, None
        if sock is None:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        asyncio.get_running_loop().remove_reader(sock.fileno())
        while self._take_one(sock):
            pass
        sock.close()

    def _readable(self) -> None:
        while self._sock is not None and self._take_one(self._sock):
            if not self._has_room():
                self.close()

    def _take_one(self, sock: socket.socket) -> bool:
        """Take one client in; whether there was one."""
        try:
            words, ancillary, _, _ = sock.recvmsg(WORDS_BYTES, socket.CMSG_SPACE(FD_BYTES))
        except OSError:  # nothing more waits
            return False
        for level, kind, data in ancillary:
            if (level, kind, len(data)) == (socket.SOL_SOCKET, socket.SCM_RIGHTS, FD_BYTES):
                self._take(socket.socket(fileno=struct.unpack("i", data)[0]), words)
        return True

    def _take(self, sock: socket.socket, words: bytes) -> None:
        try:
            moved = MovedIn(sock, msgspec.msgpack.decode(words, type=MovedClient))
        except msgspec.DecodeError:
            sock.close()
            return
        sock.setblocking(False)
        self._taken(moved)
