"""A listener before a real broker: clients with tokens, requests as bytes, replies as they get them."""

from typing import Any

import msgspec

from actors.gateway.access import AccessTable, Entry, TokenHash
from actors.gateway.listener import Listener
from actors.gateway.listener_limits import ListenerLimits
from actors.gateway.virtual_queues import VirtualQueues
from actors.messages.answering import send_answers
from actors.messages.calls import Answered, Audit, ClientGone, Execute, RightsChanged
from actors.messages.lifecycle import AccessChanged
from actors.messages.rights import Rights
from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.udp import DatagramClient
from net.protocols.json_session import JsonSession
from net.protocols.session import RequestLimits
from quorate.protocol import Action, Request
from tests.actors.cranked import CrankedRuntime, Probe, ref
from tests.actors.gateway.test_listener import Datagrams, End
from tests.actors.queues.shard import Shard


class Answering(Shard):
    """Answers go to whoever asked."""

    def _take_answers(self) -> None:
        send_answers(self.broker.ledger.take_answers())


class ListenerFixture:
    """`allow`: for each principal its rights as the access file has them; None: there is no file."""

    def __init__(
        self, allow: dict[str, Rights] | None, anonymous: Rights | None = None, virtual: Any = None, **limits: Any
    ) -> None:
        self.runtime, self.router, self.auditor = CrankedRuntime(), Probe(), Probe()
        self.virtual = VirtualQueues(virtual or {})
        self.shard = Answering()
        self.anonymous = anonymous or Rights({})
        self.hashes: dict[str, TokenHash] = {}
        self.tokens = {name: f"{name}.{name * 10}" for name in allow or {}}
        table = AccessTable() if allow is None else self.table(allow)
        self.listener = Listener(
            self.runtime, ref(self.router), ListenerLimits(**limits), access=table, auditor=ref(self.auditor)
        )
        self.listener.begin()
        self.crank()

    def table(self, allow: dict[str, Rights]) -> AccessTable:
        for name, token in self.tokens.items():
            self.hashes.setdefault(name, TokenHash.of(token))
        entries = {name: Entry(rights, (self.hashes[name],)) for name, rights in allow.items()}
        return AccessTable(entries, self.anonymous)

    def change(self, table: AccessTable) -> None:
        """The access file was read again."""
        self.listener.actor_ref.tell(AccessChanged(table))
        self.crank()

    def crank(self, seconds: float = 0.0) -> None:
        """Until nothing is open."""
        self.runtime.crank(seconds)
        for gone in self.router.take(ClientGone):
            self.shard.broker.forget(gone.client)
            self.shard.settle()
        for other in self.router.take(RightsChanged):
            self.shard.broker.rejudge(other.client, other.principal)
            self.shard.settle()
        self.runtime.crank()
        while calls := [call for message in self.router.take(Execute) for call in message.calls]:
            calls, refused = self.virtual.split(calls, ref(self.router))
            send_answers(refused)
            self.shard.execute(calls)
            self.shard.settle()
            for message in self.router.take(Answered):  # copies of a produce to a virtual queue
                for call, reply in message.answers:
                    call.client.answer(call.order, call.request, reply)
                    gather: Any = call.client
                    if gather.is_complete:
                        send_answers([(gather.call, gather.reply())])
            self.runtime.crank()

    def waiting_timers(self) -> int:
        """Count the timers that are to ring."""
        return self.runtime.waiting_timers

    def client(self, name: str | None = None, host: str = "192.0.2.7") -> "Guest":
        guest = Guest(self, host)
        if name is not None:
            assert guest.ask(Action.AUTHENTICATE, token=self.tokens[name])["code"] == 0
        return guest

    def datagram(self, host: str, reply_bytes_max: int = 1000, **fields: Any) -> list[dict[str, Any]]:
        """What a datagram from there is answered."""
        socket: Any = Datagrams()
        session = JsonSession(RequestLimits())
        client = DatagramClient(socket, (host, 5), session.answered, reply_bytes_max)
        [request] = session.receive(msgspec.json.encode(fields))
        assert isinstance(request, Request)
        self.listener.received_datagram(client, request)
        self.crank()
        return [msgspec.json.decode(data) for data in socket.sent]

    def audited(self) -> list[dict[str, Any]]:
        return [line for message in self.auditor.take(Audit) for line in message.lines]


class Guest:
    """A client's connection; `names`: of its certificate."""

    def __init__(self, fixture: ListenerFixture, host: str, names: tuple[str, ...] = ()) -> None:
        self.fixture = fixture
        self.end = End()
        self.connection = Connection(self.end, fixture.listener, JsonSession(RequestLimits()), ConnectionLimits())
        self.refused = fixture.listener.admit(self.connection, (host, 5), names)

    def send(self, *requests: dict[str, Any]) -> None:
        self.connection.receive(b"".join(map(msgspec.json.encode, requests)))
        self.fixture.crank()

    def replies(self) -> list[dict[str, Any]]:
        lines, self.end.sent = self.end.sent.splitlines(), b""
        return [msgspec.json.decode(line) for line in lines]

    def ask(self, action: int, **fields: Any) -> dict[str, Any]:
        self.send({"action": action, **fields})
        [reply] = self.replies()
        return reply
