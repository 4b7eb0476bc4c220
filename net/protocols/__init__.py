"""Codecs: a client's bytes to requests and back, without a socket. One module a protocol; this is their table."""

from typing import Final

from net.protocols.codec import MakeCodec
from net.protocols.json_codec import JsonCodec

PROTOCOLS: Final[dict[str, MakeCodec]] = {"json": JsonCodec}
"""What `listeners` may name."""

DATAGRAM_PROTOCOLS: Final = frozenset({"json"})
"""Those whose requests may come as datagrams, too."""
