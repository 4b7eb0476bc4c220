"""What waits to be sent over one link: what the cluster itself says goes before clients' requests. A machine.

Clients' frames are handed to the stream a few at a time, and none while it is full: what the cluster has to say never
waits behind more than `BULK_BYTES` of them. What a link takes of clients' requests, who forwards them bounds by credit.
"""

from collections import deque
from typing import Final

BULK_BYTES: Final = 256 << 10
"""Of clients' frames so much at most, or one, goes to the stream at a time."""


class Outbox:
    """Of one link at a time. `serial`: the last forwarded call that was handed to the stream, since the beginning."""

    def __init__(self) -> None:
        self.serial = 0
        self.bulk_bytes = 0
        self._urgent: list[bytes] = []
        self._bulk: deque[tuple[bytes, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._bulk)

    def has_ready(self, *, is_full: bool) -> bool:
        """Whether `take` gives anything now."""
        return bool(self._urgent) or (bool(self._bulk) and not is_full)

    def add(self, frame: bytes) -> None:
        """Put in what the cluster says: it is next."""
        self._urgent.append(frame)

    def add_bulk(self, frame: bytes, serial: int = 0) -> None:
        """Clients' requests, up to call number `serial`, or what they are answered."""
        self._bulk.append((frame, serial))
        self.bulk_bytes += len(frame)

    def take(self, *, is_full: bool) -> list[bytes]:
        """Take what is to be sent now, on a link that `is_full` or not."""
        frames, self._urgent = self._urgent, []
        room = BULK_BYTES
        while self._bulk and room > 0 and not is_full:
            frame, serial = self._bulk.popleft()
            self.bulk_bytes -= len(frame)
            room -= len(frame)
            self.serial = max(self.serial, serial)
            frames.append(frame)
        return frames

    def clear(self) -> None:
        """Forget what waited: the link is gone; `serial` says what had left."""
        self._urgent = []
        self._bulk.clear()
        self.bulk_bytes = 0
