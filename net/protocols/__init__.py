"""Sessions: a client's bytes to requests and back, without a socket. One module a protocol; this is their table."""

from typing import Final

from net.protocols.json_session import JsonSession
from net.protocols.session import MakeSession

PROTOCOLS: Final[dict[str, MakeSession]] = {"json": JsonSession}
"""What `listeners` may name."""

DATAGRAM_PROTOCOLS: Final = frozenset({"json"})
"""Those whose requests may come as datagrams, too."""
