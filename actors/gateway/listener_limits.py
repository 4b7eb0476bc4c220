"""How much clients may make a Listener hold: parts of it.

The limits and which of them were reached lately; `Room`, what all clients of a worker make it hold, and who is cut off
when that is too much; `Datagrams`, what their senders, who may be anybody, may ask for; `TurnedAway`, clients that
found no place, which are told to the log, and not so often that telling it is the harm.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from actors.messages.call import Call
from actors.messages.measures import ClientCounts
from actors.runtime.contract import Runtime, Timer
from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.held_bytes import Account, HeldBytes
from net.clients.udp import DatagramClient
from net.protocols.session import LARGE_BYTES
from net.refusals import Refusals
from quorate.actions import NOT_BY_DATAGRAM, WAITS
from quorate.protocol import ErrorWord, Reply, Request, refusal

CALM_SWEEPS: Final = 60
"""A limit that was not reached for so many sweeps is logged again when it is."""

NAMES_MAX: Final = 100

Move = Callable[[Connection, int], bool]
"""Gives a quiet connection to the worker of a shard; whether it is gone."""

log = logging.getLogger("quorate.clients")

REFUSED_S: Final = 3.0
"""A client that found no place has so long to read that."""

REFUSED_MAX: Final = 100
"""So many of them at once; others are closed without a word."""

BROKEN: Final = "what it sent, or was to be answered, broke the protocol: {!r}"


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


class Room:
    """For `connections`, up to `bytes_max`. `held`: the ledger of it all; `reached`: told of limits."""

    def __init__(self, bytes_max: int, connections: Mapping[Connection, None], reached: ReachedLimits) -> None:
        self.held = HeldBytes(bytes_max)
        self._connections = connections
        self.reached = reached
        self._is_making = False

    def account(self) -> Account:
        """Open a new client's."""
        return Account(self.held)

    def overdrawn(self, connection: Connection, wanted: int) -> None:
        """Cut off whoever holds most for nothing, until all is within its limit: strangers before all others.

        So it is also where a client that is no stranger would take `wanted` bytes more.
        """
        if self._is_making:
            return  # what refuses a client may itself be held back
        self._is_making = True
        self._make(connection, wanted)
        self._is_making = False

    def _make(self, connection: Connection, wanted: int) -> None:
        held = self.held
        while held.is_full or held.are_strangers_full or (connection.account.is_known and not self._fits(wanted)):
            strangers = [one for one in self._connections if not one.account.is_known and one.account.yielding]
            may_be_known = held.is_full and not strangers
            others = [one for one in self._connections if one.account.yielding] if may_be_known else strangers
            if not others:
                return  # what is left is being done, and goes when it is answered
            self._cut_off(max(others, key=lambda one: one.account.yielding))

    def _fits(self, wanted: int) -> bool:
        return self.held.used + wanted <= self.held.bytes_max

    def _cut_off(self, connection: Connection) -> None:
        held = self.held
        self.reached.note("max_held_bytes", f"clients' requests and replies take {held.used} bytes; some are cut off")
        if connection.account.partial * 2 > connection.account.yielding:
            reason = f"the requests and replies of all clients take more than {held.bytes_max} bytes"
            connection.refuse_all(ErrorWord.OVERLOADED, reason)
        if connection.account.yielding:
            connection.abort()


class Datagrams:
    """Of one worker. `account`: what all their requests take; `reached`: told of limits."""

    def __init__(self, account: Account, reached: ReachedLimits) -> None:
        self._account = account
        self._reached = reached
        self._waits = DatagramWaits()

    @property
    def waiting(self) -> list[DatagramClient]:
        """Those who wait for a message."""
        return self._waits.clients

    def refused(self, client: DatagramClient, request: Request, limits: ListenerLimits) -> Reply | None:
        """Why a request can't be done; None: it can, and is counted until it is `answered`."""
        if request.action in NOT_BY_DATAGRAM:
            reason = "a datagram may come from anybody, so it asks about queues alone: ask over TCP"
            return refusal(request, ErrorWord.NOT_SUPPORTED, reason)
        is_large = client.size > LARGE_BYTES
        if is_large and not self._account.may_open(client.size):
            reason = "requests and replies of all clients take as much as they may: ask again later"
            return refusal(request, ErrorWord.OVERLOADED, reason)
        if request.wait and request.action in WAITS:
            full = self._waits.add(client, limits.datagram_waits_max, limits.datagram_waits_each)
            if full is not None:
                if self._waits.count >= limits.datagram_waits_max:
                    self._reached.note("max_datagram_waiters", full)
                return refusal(request, ErrorWord.OVERLOADED, full)
        if is_large:
            self._account.take(client.size)
        return None

    def answered(self, client: DatagramClient, call: Call) -> None:
        """Forget what it holds."""
        request = call.request
        if client.size > LARGE_BYTES:
            self._account.take(-client.size)
        if call.is_single and request.wait and request.action in WAITS:
            self._waits.remove(client)


class TurnedAway:
    """Of one worker."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._refusals = Refusals(log, "the clients' ports")
        self._without_place: dict[Connection, Timer] = {}

    def no_place(self, connection: Connection) -> None:
        """Tell it why, and close it: nobody sweeps it."""
        if len(self._without_place) >= REFUSED_MAX:
            connection.abort()
        else:
            self._without_place[connection] = self._runtime.call_later(REFUSED_S, connection.abort)

    def closed(self, connection: Connection) -> None:
        """Forget a client that is gone."""
        timer = self._without_place.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def broke(self, who: str, error: Exception) -> None:
        """Let whoever made its session raise pay, and nobody else."""
        self.note(who, BROKEN.format(error))

    def note(self, address: str, why: str) -> None:
        """Somebody at that address was turned away."""
        self._refusals.log(self._runtime.monotonic(), address, why)
