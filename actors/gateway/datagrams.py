"""Datagrams: what those who send them may ask for, and make a worker hold. A part of the Listener.

A sender may be anybody: it asks about queues alone, and few of them may wait.
"""

from actors.gateway.listener_limits import DatagramWaits, ListenerLimits, ReachedLimits
from actors.messages.call import Call
from net.clients.held_bytes import Account
from net.clients.udp import DatagramClient
from net.protocols.session import LARGE_BYTES
from quorate.actions import NOT_BY_DATAGRAM, WAITS
from quorate.protocol import ErrorWord, Reply, Request, refusal


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
