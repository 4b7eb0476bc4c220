"""What has come of a request that is not whole: kept in pieces, and put together once. For all protocols' readers."""

from typing import Final

PIECE_BYTES: Final = 4 << 10
"""A piece that is shorter is put together with others: each that is kept takes some memory of its own."""

GATHERED_BYTES: Final = 64 << 10
"""Short pieces are gathered up to so many bytes."""


class Pieces:
    """What has come of something that is not whole: put together when it is, and not moved with each piece that comes.

    `size`: its bytes.
    """

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []
        self._short = bytearray()

    def add(self, data: bytes) -> None:
        """More of it."""
        size = len(data)
        self.size += size
        if size < PIECE_BYTES:
            self._short += data
            if len(self._short) < GATHERED_BYTES:
                return
            data = b""
        if self._short:
            self._pieces.append(bytes(self._short))
            self._short = bytearray()
        if data:
            self._pieces.append(data)

    def take(self) -> bytes:
        """All of it; nothing is left."""
        if self._short:
            self._pieces.append(bytes(self._short))
        whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self.clear()
        return whole

    def clear(self) -> None:
        """Nothing is left."""
        self.size = 0
        self._pieces = []
        self._short = bytearray()
