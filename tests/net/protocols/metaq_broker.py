"""A broker of MetaQ's without a node: its sessions beside a shard of ours, for tests."""

import struct
import zlib
from typing import Any

import msgspec

from actors.messages.call import Call
from net.node_facts import ListenerFacts, NodeFacts
from net.protocols.json_session import encode_reply
from net.protocols.metaq_session import MetaqSession
from net.protocols.session import Ask, Close, RequestLimits, Say
from quorate.protocol import Action, ErrorWord, Reply, Request, done, refusal
from quorate.stream_replies import RawReadReplyWithFrames
from tests.actors.queues.shard import NOBODY, Shard


class Broker(Shard):
    """A shard with a topic `t` of two partitions, asked by sessions."""

    def __init__(self, *, shards: int = 1, shard: int = 0, auto_create: bool = False, **limits: Any) -> None:
        super().__init__(**limits)
        self.raw: dict[int, Reply] = {}
        self.passed_s = 0.0
        self.may_operate = True
        self.facts = NodeFacts(1, 7, shards)
        self.listener = ListenerFacts(
            port=8123,
            shard=shard,
            monotonic=lambda: self.passed_s,
            auto_create=auto_create,
            auto_create_partitions=3,
        )
        self.broker.context.view.leader_node_id = self.broker.context.view.node_id
        self.ask(Action.TOPIC, command="create", topic="t", partitions=2)
        self.session = self.client()

    def client(self, bytes_max: int = 4 << 20) -> "Client":
        return Client(self, MetaqSession(RequestLimits(bytes_max), self.facts, listener=self.listener))

    def say(self, data: bytes | str) -> str:
        return self.session.say(data)

    def do(self, request: Request) -> Reply:
        if request.action == Action.NODE_CONFIG:  # the Listener's, which knows who may
            return done(request, Reply) if self.may_operate else refusal(request, ErrorWord.NOT_ALLOWED, "it may not")
        self._calls += 1
        order = self._calls
        self.execute([Call(request, self, order, NOBODY)])
        self.settle()
        return self.raw.pop(order)

    def _take_answers(self) -> None:
        for call, reply in self.broker.ledger.take_answers():
            self.raw[call.order] = reply
            if not isinstance(reply, RawReadReplyWithFrames):
                self.replies[call.order] = msgspec.json.decode(encode_reply(reply))


class Client:
    """One client's session; what it asks is done at once, one after the other."""

    def __init__(self, broker: Broker, session: MetaqSession) -> None:
        self.broker = broker
        self.session = session
        self.is_closed = False

    def say(self, data: bytes | str) -> str:
        return self.heard(data).decode("latin-1")

    def heard(self, data: bytes | str) -> bytes:
        """What comes back; `closed` at its end, where the connection ends."""
        heard = b""
        found = self.session.receive(data.encode() if isinstance(data, str) else data)
        while self.session.has_more:
            found += self.session.receive(b"")
        for one in found:
            if isinstance(one, Close):
                self.session.discard()
                return heard + b"closed"
            heard += one.data if isinstance(one, Say) else self._answer(one)
        return heard

    def pipelined(self, data: str) -> list[int]:
        """The codes of what comes back when all is received before anything of it is done, in the order of answers:
        what a step asks next is done behind what was asked before."""
        found = self.session.receive(data.encode())
        codes = [int(one.data.split()[1]) for one in found if isinstance(one, Say)]
        asked = [one for one in found if isinstance(one, Ask)]
        while asked:
            one = asked.pop(0)
            made = self.session.answered(one.request, self.broker.do(one.request), one.note)
            if isinstance(made, bytes):
                codes.append(int(made.split()[1]))
            else:
                assert isinstance(made, Ask)
                asked.append(made)
        return codes

    def _answer(self, made: Any) -> bytes:
        while not isinstance(made, bytes):
            made = self.session.answered(made.request, self.broker.do(made.request), made.note)
        return made


def result(code: int, text: str, opaque: int = 1) -> str:
    return f"result {code} {len(text.encode())} {opaque}\r\n{text}"


def frame(msg_id: int, payload: bytes, flag: int = 0) -> bytes:
    return struct.pack(">iIqi", len(payload), zlib.crc32(payload) & 0x7FFFFFFF, msg_id, flag) + payload
