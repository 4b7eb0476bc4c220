"""A node that links are kept to, as the Peers know it."""

from typing import Final

from net.peers.messages import Hello
from net.peers.post import Addressee

BACKOFF_MIN_S: Final = 0.05
"""Before a node that could not be reached is dialled again, the first time."""


ANSWER_BYTES_MAX: Final = 8 << 20
"""What may wait for a link to a node; beyond it who asked is told that the outcome is unknown, in time."""


class PeerNode(Addressee):
    """A node that links are kept to, at one of its `addresses`: the next is tried when one fails.

    `said` is the hello that the node has of this one.
    """

    def __init__(self, node_id: int, addresses: list[tuple[str, int]]) -> None:
        super().__init__(node_id, ANSWER_BYTES_MAX)
        self.node_id = node_id
        self.addresses = addresses
        self.at = 0
        self.is_dialling = False
        self.backoff_s = BACKOFF_MIN_S
        self.last_fault = ""
        self.said: Hello | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it is dialled now."""
        return self.addresses[self.at % len(self.addresses)]

    def move_to(self, addresses: list[tuple[str, int]]) -> None:
        """The log says another address: an open link that is to one of those that hold is as good as a new one."""
        is_elsewhere = self.address not in addresses
        self.addresses = addresses
        self.at = 0
        if is_elsewhere and self.link is not None:
            self.link.close("it has moved")


def shown_address(host: str, port: int) -> str:
    """HOST:PORT for people, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
