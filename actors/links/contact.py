"""A worker that links are kept to, known by its key (`actors.messages.peers`).

| kind | who | reached | wanted |
|---|---|---|---|
| mate | the worker of the own shard on another node; its key is that node's number | at the nodes' port | always |
| near | the worker of another shard on this node | over a Unix socket in the data folder | always |
| far | the worker of another shard on another node | at that node's port for the shard | while it leads, or asks |
"""

from typing import Final

from actors.messages.peers import node_of, shard_of
from net.peers.link import PeerLink
from net.peers.messages import Hello
from net.peers.post import Addressee

BACKOFF_MIN_S: Final = 0.05
"""Before a node that could not be reached is dialled again, the first time; it doubles each time."""

BACKOFF_MAX_S: Final = 1.0
WORKER_BACKOFF_MIN_S: Final = 0.02
"""The same for the worker of another shard, which many requests may wait for."""

WORKER_BACKOFF_MAX_S: Final = 0.5

ANSWER_BYTES_MAX: Final = 8 << 20
"""What may wait for a link to a node; beyond it who asked is told that the outcome is unknown, in time."""

WORKER_ANSWER_BYTES_MAX: Final = 64 << 20
"""The same for the worker of another shard."""


BEHIND_BYTES: Final = 8 << 20
"""With more of clients' answers waiting for a node, nothing is done for it that has a long one."""

WORKER_BEHIND_BYTES: Final = 32 << 20
"""The same for the worker of another shard."""


class Contact(Addressee):
    """One of them, dialled at one of `addresses`, the next when one fails; it says itself that it is at `said_at`.

    `said` is the hello that it has of this one. `is_up`: it is told to be there. Of a mate `guest` is the link by which
    it has come, if this node's log does not name it. Of others `incoming` is the link that it asks over: kept answers
    are for nobody when that is closed. A far one's is `pending` until it could be dialled: what is asked over it before
    could not be answered.
    """

    def __init__(self, key: int, own_shard: int) -> None:
        self.is_mate = key > 0
        kept = ANSWER_BYTES_MAX if self.is_mate else WORKER_ANSWER_BYTES_MAX
        super().__init__(key, kept, BEHIND_BYTES if self.is_mate else WORKER_BEHIND_BYTES)
        self.node_id = node_of(key)
        self.shard = own_shard if self.is_mate else shard_of(key)
        self.addresses: list[tuple[str, int]] = []
        self.said_at = ("", 0)
        self.said: Hello | None = None
        self.is_dialling = False
        self.is_up = False
        self.guest: PeerLink | None = None
        self.incoming: PeerLink | None = None
        self.pending: PeerLink | None = None
        self.last_fault = ""
        self._at = 0
        self._backoff_s = BACKOFF_MIN_S if self.is_mate else WORKER_BACKOFF_MIN_S
        self._backoff_max_s = BACKOFF_MAX_S if self.is_mate else WORKER_BACKOFF_MAX_S

    @property
    def is_near(self) -> bool:
        """Whether it is of this node."""
        return self.node_id == 0

    @property
    def is_linked(self) -> bool:
        """Whether what is said to it now leaves."""
        return self.link is not None and self.link.is_open

    @property
    def is_heard(self) -> bool:
        """Whether an answer is worth keeping until there is a link to it. A mate's are dropped when it is not heard."""
        return self.is_mate or self.incoming is not None

    @property
    def asks(self) -> bool:
        """Whether there is a link of its own, over which it has said who it is."""
        return self.incoming is not None or (self.pending is not None and not self.pending.is_closed)

    @property
    def address(self) -> tuple[str, int]:
        """Where it is dialled now."""
        return self.addresses[self._at % len(self.addresses)]

    def failed(self, random: float) -> float:
        """Decide when it is to be dialled again (s), at its next address: it could not be reached, or not any more.

        The time doubles, and is drawn at random within half of it, so that nodes do not all come at once.
        """
        self._at += 1
        delay_s = self._backoff_s * (0.5 + random)
        self._backoff_s = min(self._backoff_s * 2, self._backoff_max_s)
        return delay_s

    def is_there(self) -> None:
        """Dial it the next time without a long wait, since it was heard of."""
        self._backoff_s = BACKOFF_MIN_S if self.is_mate else WORKER_BACKOFF_MIN_S

    def move_to(self, addresses: list[tuple[str, int]]) -> None:
        """Give it other addresses: an open link that is to one of those that hold is as good as a new one."""
        is_elsewhere = self.address not in addresses
        self.addresses = addresses
        self._at = 0
        if is_elsewhere and self.link is not None:
            self.link.close("it has moved")

    def close(self, reason: str) -> None:
        """All links with it."""
        for link in (self.link, self.incoming, self.pending):
            if link is not None:
                link.close(reason)


def shown_address(host: str, port: int) -> str:
    """HOST:PORT for people, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
