"""How much clients may make a Listener hold, and how one of them leaves for another worker."""

from collections.abc import Callable
from dataclasses import dataclass, field

from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits

Move = Callable[[Connection, int], bool]
"""Gives a quiet connection to the worker of a shard; whether it is gone."""


@dataclass
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
