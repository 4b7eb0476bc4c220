"""The channel between supervisor and worker: msgpack values, one after the other, on a socket pair.

Supervisor to worker: {"config": {...}, "shard": 0} first, later {"faults": {...}}, why the workers of some shards do
not run, {"reload": {...}, "serial": 1} and {"stop": true}. Worker to supervisor: {"ready": "..."}, {"reloaded": 1,
"faults": [...]} when it goes by that reload but for its faults, {"trouble": "..."} before it ends and should be started
again, or {"failed": "..."} when it can't start and starting it again would not help. Either end closes the channel; a
worker whose supervisor is gone stops in order.
"""

import select
import socket
from typing import Any, Final

import msgpack

EXIT_UNUSABLE: Final = 65
"""A worker ends so when it can't start, and starting it again would not help."""


FULL_S: Final = 1.0
"""One look at whether a full channel has room again."""


class Control:
    """One end of the channel."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._unpacker = msgpack.Unpacker(max_buffer_size=64 << 20, strict_map_key=False)

    def send(self, message: dict[str, Any]) -> None:
        """Send all of it, also where the socket does not block; a gone other end is noticed when reading, not here."""
        left = memoryview(msgpack.packb(message))
        while left:
            try:
                left = left[self.sock.send(left) :]
            except BlockingIOError:
                select.select([], [self.sock], [], FULL_S)
            except OSError:
                return

    def receive(self) -> list[dict[str, Any]] | None:
        """Read what has come, blocking if the socket does; None when the other end is gone."""
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            return None
        if not data:
            return None
        self._unpacker.feed(data)
        return list(self._unpacker)
