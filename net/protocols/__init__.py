"""Sessions: a client's bytes to requests and back, without a socket. One module a protocol; this is their table."""

from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

from net.node_facts import USUAL, ListenerFacts, NodeFacts

if TYPE_CHECKING:
    from net.protocols.session import RequestLimits, Session


class SessionOf(Protocol):
    """Makes a client's session of limits, and of what its node and its listener are."""

    def __call__(
        self, limits: "RequestLimits", facts: NodeFacts | None = None, *, listener: ListenerFacts = USUAL
    ) -> "Session":
        """Make it."""


class Spoken:
    """A protocol: `maker` in `module` is its `SessionOf`. The module is imported where a port speaks it.

    `port`: where clients look first. `is_by_shard`: each shard's worker has a port of its own, `port` + the shard.
    """

    def __init__(self, module: str, maker: str, port: int, *, is_by_shard: bool = False) -> None:
        self.port = port
        self.is_by_shard = is_by_shard
        self._module = module
        self._maker = maker

    def sessions(self) -> SessionOf:
        """Import what makes its sessions."""
        return cast("SessionOf", getattr(import_module(self._module), self._maker))


PROTOCOLS: Final = {
    "json": Spoken("net.protocols.json_session", "session", 1111),
    "disque": Spoken("net.protocols.disque_session", "DisqueSession", 7711),
    "gmq": Spoken("net.protocols.gmq_session", "GmqSession", 9503),
    "metaq": Spoken("net.protocols.metaq_session", "MetaqSession", 8123, is_by_shard=True),
}
"""What `listeners` may name."""

DATAGRAM_PROTOCOLS: Final = frozenset({"json"})
"""Those whose requests may come as datagrams, too."""

REDIRECTED: Final = frozenset({"", "json"})
"""Those whose clients know what a redirect is; for all others a node forwards whatever it is set to."""

BESIDE: Final = "-beside"
"""Ends the name of a protocol on a listener that is secured otherwise than the main port: with TLS where that has none,
or without. Redirects and maps name the main port; such clients can't go there, and are not told to."""


def spoken(name: str) -> str:
    """Give the protocol of a connection, wherever its listener is."""
    return name.removesuffix(BESIDE)


def is_told_addresses(client: object) -> bool:
    """Whether a client can go where a redirect, or the map of the shards, says."""
    return getattr(client, "protocol", "") in REDIRECTED


__all__ = [
    "BESIDE",
    "DATAGRAM_PROTOCOLS",
    "PROTOCOLS",
    "REDIRECTED",
    "ListenerFacts",
    "NodeFacts",
    "SessionOf",
    "Spoken",
    "is_told_addresses",
    "spoken",
]
