"""Clients of other nodes, whose requests those forward: each done once, none late, if this node's own table lets it.
Machines.

A request may lie in a stream between two nodes for as long as nobody notices that they are cut off; its client has
given up by then, and may have asked for something else since. So the leader of what sets or clears something asks the
node that forwarded it whether its client is still there, and does it only if the answer comes within `ANSWER_S` by its
own clock (`LateRequests`).
"""

from collections import Counter
from typing import Final, NamedTuple

from actors.gateway.access import AccessTable
from actors.messages.call import REPLY_BYTES_MAX, Call, Client, Receiver
from actors.messages.rights import ITSELF, not_allowed
from net.peers.forwarding import PackedReply, packed_reply, unpacked_request
from net.peers.messages import Forward, ForwardedCall
from quorate.actions import UNLESS_GONE
from quorate.protocol import Reply, Request

ANSWER_S: Final = 1.0
"""So late at most is done what was asked for: less than any client's patience."""

Asker = tuple[int, int]
"""A node (or worker) and its session."""


class RemoteClient:
    """A client of another node, whose calls that node forwards, in one `session` of it."""

    def __init__(self, node_id: int, session: int = 0) -> None:
        self.node_id = node_id
        self.session = session
        self.principal = ITSELF
        self.has_left = self.is_gone = False
        self.has_ended = False  # its node is asked about that: `StillThere`

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Answers go back by the Router."""
        raise AssertionError("a forwarded call is answered by the Router")


class Served(NamedTuple):
    """What is to be done with forwarded calls: `calls` by the owner; `refused` lack the right beside them."""

    calls: list[Call]
    refused: list[tuple[Call, str]]

    @property
    def refusals(self) -> list[tuple[int, PackedReply]]:
        """What is answered to those that are refused."""
        return [(call.order, packed_reply(not_allowed(call.request, right))) for call, right in self.refused]


class RemoteClients:
    """Those of one Router. `access`: who may do what, as this node knows it; see `changed`."""

    def __init__(self, access: AccessTable) -> None:
        self._access = access
        self._clients: dict[int, dict[int, RemoteClient]] = {}
        self._heard: dict[int, tuple[int, int]] = {}

    def changed(self, access: AccessTable) -> list[RemoteClient]:
        """Who may do what is another from now on: returns the clients for whom that is so."""
        self._access = access
        found: list[RemoteClient] = []
        for client in (one for clients in self._clients.values() for one in clients.values()):
            now = access.forwarded(client.principal.name)
            if now != client.principal:
                client.principal = now
                found.append(client)
        return found

    @property
    def nodes(self) -> list[int]:
        """Whose clients there are."""
        return list(self._clients)

    def forget(self, node_id: int) -> list[RemoteClient]:
        """Do nothing any more for the clients of that node."""
        clients = list(self._clients.pop(node_id, {}).values())
        for client in clients:
            client.has_left = client.is_gone = True
        return clients

    def left(self, node_id: int, number: int) -> RemoteClient | None:
        """Do nothing any more for a client of that node, which is gone."""
        client = self._clients.get(node_id, {}).pop(number, None)
        if client is not None:
            client.has_left = client.is_gone = True
        return client

    def half_closed(self, node_id: int, number: int) -> RemoteClient | None:
        """Note that a client of that node asks nothing more, and may still read."""
        client = self._clients.get(node_id, {}).get(number)
        if client is not None:
            client.has_left = True
        return client

    def is_new(self, node_id: int, session: int) -> bool:
        """Whether that node has begun a new session, in which its numbers begin anew."""
        return self._heard.get(node_id, (0, 0))[0] != session

    def fresh(self, node_id: int, message: Forward) -> list[ForwardedCall]:
        """Leave out the calls that were heard before."""
        session, heard = self._heard.get(node_id, (0, 0))
        if session != message.session:
            heard = 0
        fresh = [one for one in message.calls if one.serial > heard]
        if fresh:
            self._heard[node_id] = (message.session, fresh[-1].serial)
        return fresh

    def serve(self, node_id: int, session: int, fresh: list[ForwardedCall], reply_to: Receiver) -> Served | None:
        """Find out what of them may be done. None: that node forwards what no client can have sent."""
        served = Served([], [])
        clients = self._clients.setdefault(node_id, {})
        for one in fresh:
            request = unpacked_request(one)
            if request is None:
                return None
            principal = self._access.forwarded(one.principal)
            client = clients.get(one.client) or RemoteClient(node_id, session)
            reply_bytes_max = min(one.reply_bytes_max, REPLY_BYTES_MAX)
            call = Call(request, client, one.serial, reply_to, reply_bytes_max, principal=principal)
            missing = principal.rights.missing(request)
            if missing is not None:
                served.refused.append((call, missing))
                continue
            client.principal = principal
            if one.client:
                clients[one.client] = client
            served.calls.append(call)
        return served


class LateRequests:
    """One Router's. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._asked: dict[Asker, dict[int, tuple[Call, float]]] = {}
        self._clients: Counter[Client] = Counter()

    def wanted(self, calls: list[Call]) -> list[Call]:
        """Those of the calls to ask for: what sets or clears something, and what its client asked behind that."""
        found: list[Call] = []
        clients: set[Client] = set()
        for call in calls:
            if call.request.action in UNLESS_GONE or call.client in self._clients or call.client in clients:
                found.append(call)
                clients.add(call.client)
        return found

    def ask(self, now: float, asker: Asker, calls: list[Call]) -> list[int]:
        """Let these calls wait; the serial numbers by which their node is asked for them."""
        waiting = self._asked.setdefault(asker, {})
        for call in calls:
            waiting[call.order] = (call, now)
            self._clients[call.client] += 1
        return [call.order for call in calls]

    def confirmed(self, now: float, asker: Asker, serials: list[int]) -> tuple[list[Call], list[int]]:
        """Their clients are there: the calls that may be done, and those for which that comes too late."""
        waiting = self._asked.get(asker, {})
        found = [(serial, *self._take(waiting, serial)) for serial in serials if serial in waiting]
        if not waiting:
            self._asked.pop(asker, None)
        return (
            [call for _, call, asked_at in found if now <= asked_at + ANSWER_S],
            [serial for serial, _, asked_at in found if now > asked_at + ANSWER_S],
        )

    def expired(self, now: float) -> list[tuple[Asker, list[int]]]:
        """Those that nobody has spoken for in time: they are not done."""
        late: list[tuple[Asker, list[int]]] = []
        for asker, waiting in list(self._asked.items()):
            serials = [serial for serial, (_, asked_at) in waiting.items() if now > asked_at + ANSWER_S]
            for serial in serials:
                self._take(waiting, serial)
            if serials:
                late.append((asker, serials))
            if not waiting:
                del self._asked[asker]
        return late

    def forget(self, node_id: int) -> None:
        """Forget what that node forwarded: it is not done any more."""
        for asker in [asker for asker in self._asked if asker[0] == node_id]:
            waiting = self._asked.pop(asker)
            for serial in list(waiting):
                self._take(waiting, serial)

    def _take(self, waiting: dict[int, tuple[Call, float]], serial: int) -> tuple[Call, float]:
        call, asked_at = waiting.pop(serial)
        self._clients[call.client] -= 1
        if not self._clients[call.client]:
            del self._clients[call.client]
        return call, asked_at
