"""Bytes as the other end of a link sends them, made by hand."""

from net.peers.link import LinkTerms, Origin, encoded
from net.peers.messages import PeerMessage
from net.peers.proof import Keyring

OPENING = Keyring().opening()
"""Of a node that has no secret."""

TERMS = LinkTerms()
TRUSTED = Origin(is_trusted=True)
"""A stream whose other end is known to belong here."""

UNKNOWN = Origin("192.0.2.1")


def framed(message: PeerMessage) -> bytes:
    """A message as a frame without a seal."""
    data = encoded(message)
    return len(data).to_bytes(4, "big") + data
