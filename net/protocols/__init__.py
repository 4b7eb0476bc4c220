"""Sessions: a client's bytes to requests and back, without a socket. One module a protocol; this is their table."""

from collections.abc import Callable
from typing import Final

from net.node_facts import NodeFacts
from net.protocols.disque_session import DisqueSession
from net.protocols.gmq_session import GmqSession
from net.protocols.json_session import JsonSession
from net.protocols.session import MakeSession, RequestLimits, Session


def _json(limits: RequestLimits, facts: NodeFacts | None = None, *, debug: bool = False) -> Session:
    return JsonSession(limits)


PROTOCOLS: Final[dict[str, Callable[..., Session]]] = {"json": _json, "disque": DisqueSession, "gmq": GmqSession}
"""What `listeners` may name: each makes a session of limits, of what its node is, and of whether DEBUG is there."""

DATAGRAM_PROTOCOLS: Final = frozenset({"json"})
"""Those whose requests may come as datagrams, too."""

REDIRECTED: Final = frozenset({"", "json"})
"""Those whose clients know what a redirect is; for all others a node forwards whatever it is set to."""

PORTS: Final = {"json": 1111, "disque": 7711, "gmq": 9503}
"""Where clients of a protocol look first."""

__all__ = ["DATAGRAM_PROTOCOLS", "PORTS", "PROTOCOLS", "REDIRECTED", "MakeSession", "NodeFacts"]
