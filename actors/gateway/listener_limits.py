"""How much clients may make a Listener hold, which limits were reached lately, and how a client leaves."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from actors.messages.client_counts import ClientCounts
from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.udp import DatagramClient

CALM_SWEEPS: Final = 60
"""A limit that was not reached for so many sweeps is logged again when it is."""

NAMES_MAX: Final = 100

Move = Callable[[Connection, int], bool]
"""Gives a quiet connection to the worker of a shard; whether it is gone."""


@dataclass(frozen=True, kw_only=True)
class ListenerLimits:
    """Counts and bytes; `connection` holds those of one client.

    `held_bytes_max`: all that clients make this worker hold: see `net.clients.held_bytes`.
    `datagram_waits_max`: consumers that wait for a datagram's reply; `datagram_waits_each`: of one address.
    """

    connections_max: int = 10_000
    requests_max: int = 100_000
    held_bytes_max: int = 512 << 20
    datagram_waits_max: int = 1000
    datagram_waits_each: int = 64
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)


class ReachedLimits:
    """Of one Listener, which says them to `log`, and to others in its `counts`."""

    def __init__(self, log: logging.Logger, counts: ClientCounts) -> None:
        self._log = log
        self._counts = counts
        self._quiet_sweeps: dict[str, int] = {}

    def note(self, limit: str, what: str, kind: str | None = None) -> None:
        """Refuse, since a limit is reached: `what` says so. It is counted as `kind`, where what it is called may name
        a client's queue."""
        known, counted = self._quiet_sweeps, self._counts.refused_by_limit
        counted[kind or limit] = counted.get(kind or limit, 0) + 1
        if limit not in known and len(known) < NAMES_MAX:
            self._log.warning(
                "a limit is reached: %s; more is refused (logged once, until it was not for a minute)", what
            )
        known[limit] = 0
        self._counts.limits_reached = sorted(known)

    def sweep(self) -> None:
        """Time has passed."""
        known = self._quiet_sweeps
        self._quiet_sweeps = {limit: quiet + 1 for limit, quiet in known.items() if quiet < CALM_SWEEPS}
        self._counts.limits_reached = sorted(self._quiet_sweeps)


class DatagramWaits:
    """Consumers that wait for a datagram's reply, in all and by address: anybody may send one, so there are few."""

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
        """Note that it is answered."""
        host = client.address[0]
        del self._clients[client]
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
