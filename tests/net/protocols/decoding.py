"""One request in JSON, as a session reads it: from the framer, whatever its size."""

from net.protocols.json_framing import ObjectFramer
from net.protocols.json_transactions import decode
from net.protocols.session import Ask, Fault, RequestLimits
from quorate.protocol import Request


def decoded(body: bytes, limits: RequestLimits) -> Request | Ask | Fault:
    """The request that `body` holds, or what is wrong with it."""
    framer = ObjectFramer(limits.request_bytes_max, limits.depth_max)
    [whole] = framer.feed(body)
    return whole if isinstance(whole, Fault) else decode(whole, limits, framer.seen[0])
