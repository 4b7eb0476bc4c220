"""Which node a client asks: the one that is asked now, until it fails or says who leads. A class without I/O."""

import threading
from collections.abc import Sequence

from quorate.after_fork import forget_after_fork

Address = tuple[str, int]


class Nodes:
    """The nodes that a client was told of, one of which is asked. Any thread may use it."""

    def __init__(self, nodes: Sequence[Address]) -> None:
        self._nodes = list(nodes)
        self._lock = threading.Lock()
        self.address = self._nodes[0]
        forget_after_fork(self)

    def after_fork(self) -> None:
        """In a child: the lock may have been a thread's that is not here."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._nodes)

    def ask_elsewhere(self, failed: Address, address: Address | None = None) -> None:
        """Ask another node from now on: the one at `address`, or the next."""
        with self._lock:
            if address is not None:
                self.address = address
            elif failed == self.address:
                at = self._nodes.index(failed) if failed in self._nodes else -1
                self.address = self._nodes[(at + 1) % len(self._nodes)]


def node_address(node: Address | str, default_port: int | None = None) -> Address:
    """Make the pair that `node` names: a pair, or "host:port" with an IPv6 address in brackets.

    Raises TypeError, ValueError.
    """
    if not isinstance(node, str):
        host, port = node
        if not isinstance(host, str) or isinstance(port, bool) or not isinstance(port, int):
            raise TypeError(f"{node!r}: a host and a port are wanted")
        if not 0 < port < 65536:
            raise ValueError(f"{node!r}: a port is from 1 to 65535")
        return host, port
    host, colon, text = node.rpartition(":")
    if default_port is not None and (not colon or node.endswith("]") or (node.count(":") > 1 and node[0] != "[")):
        host, text = node, str(default_port)
    if not host or not text.isdigit() or not 0 < int(text) < 65536:
        raise ValueError(f"{node!r}: HOST:PORT is wanted")
    return host.strip("[]"), int(text)
