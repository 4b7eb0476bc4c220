"""What another worker's session of Disque's protocol needs to go on: a file of its own, since it is not compiled."""

from typing import Final

import msgspec


class Remembered(msgspec.Struct, array_like=True):
    """See `DisqueClient`."""

    proto: int
    name: str | None
    debug: bool
    silence: int = 0


remember: Final = msgspec.msgpack.Encoder().encode
recall: Final = msgspec.msgpack.Decoder(Remembered).decode
