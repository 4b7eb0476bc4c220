"""Consumers that wait for a datagram's reply: anybody may send one, so there are few, and few of one address."""

from net.clients.udp import DatagramClient


class DatagramWaits:
    """Who waits, in all and by address."""

    def __init__(self) -> None:
        self._clients: dict[DatagramClient, None] = {}
        self._by_host: dict[str, int] = {}

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._clients)

    @property
    def clients(self) -> list[DatagramClient]:
        """Those who wait."""
        return list(self._clients)

    def add(self, client: DatagramClient, most: int, each: int) -> str | None:
        """Count one more; why it may not: `most` may wait in all, `each` of one address."""
        host = client.address[0]
        mine = self._by_host.get(host, 0)
        if len(self._clients) >= most:
            return f"{most} consumers wait for datagrams already: wait over TCP"
        if mine >= each:
            return f"{each} consumers of {host} wait for datagrams already: wait over TCP"
        self._clients[client] = None
        self._by_host[host] = mine + 1
        return None

    def remove(self, client: DatagramClient) -> None:
        """It is answered."""
        host = client.address[0]
        del self._clients[client]
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
