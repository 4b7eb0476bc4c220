"""A broker driven by hand: requests in, replies out, with a clock and commits that the test controls."""

from typing import Any

import msgspec

from actors.messages.call import Call
from actors.queues.consuming import Consuming
from actors.queues.delivery import Delivery
from actors.queues.queries import Queries
from actors.shard.broker import Broker
from actors.shard.machine import ShardContext
from actors.shard.node_view import Limits, NodeView
from actors.streams.machines import shard_machines
from net.protocols.json_session import encode_reply
from net.protocols.session import RequestLimits
from quorate.protocol import Reply, Request
from storage import entry_codec
from storage.records import Record
from storage.state import ShardState
from tests.net.protocols.decoding import decoded

LIMITS = Limits()


def broker_of(state: ShardState, limits: Limits = LIMITS, *, leases_are_committed: bool = False) -> Broker:
    """Make one with the queues' machines."""
    return Broker(ShardContext(state, limits, NodeView(), leases_are_committed=leases_are_committed), shard_machines)


def delivery_of(broker: Broker) -> Delivery:
    """Find the machine that hands out."""
    [found] = [machine for machine in broker.machines if isinstance(machine, Consuming)]
    return found.delivery


def queries_of(broker: Broker) -> Queries:
    """Find the machine that looks."""
    [found] = [machine for machine in broker.machines if isinstance(machine, Queries)]
    return found


def execute(broker: Broker, now: float, calls: list[Call]) -> None:
    """Do all of the calls, as a host does that is not late."""
    broker.begin(now)
    for call in calls:
        broker.execute(call)


class Shard:
    """One broker at `now` (Unix seconds). `commits` False: nothing is durable before `commit` is called."""

    has_left = is_gone = False

    has_ended = False

    def __init__(self, *, lease_committed: bool = False, **limits: Any) -> None:
        self.now = 1_800_000_000.0
        self.state = ShardState()
        self.broker = broker_of(self.state, Limits(**limits), leases_are_committed=lease_committed)
        self.commits = True
        self.log: list[Record] = []
        self.replies: dict[int, dict[str, Any]] = {}
        self._calls = 0

    def send(self, action: int, client: Any = None, **fields: Any) -> int:
        """Send a request; its reply, once there, is in `replies` under the number returned."""
        call = self.call(action, client, **fields)
        self.execute([call])
        self.settle()
        return call.order

    def call(self, action: int, client: Any = None, **fields: Any) -> Call:
        """Make a call of what a client says; it is not done."""
        request = decoded(msgspec.json.encode({"action": action, **fields}), RequestLimits())
        assert isinstance(request, Request)
        self._calls += 1
        return Call(request, client or self, self._calls, NOBODY)

    def execute(self, calls: list[Call]) -> None:
        """Do what came in one turn; not `settle`."""
        execute(self.broker, self.now, calls)

    def ask(self, action: int, **fields: Any) -> dict[str, Any]:
        """Send a request and return its reply."""
        return self.replies[self.send(action, **fields)]

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """As a client."""
        raise AssertionError("answers are taken from the ledger")

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with everything that is due on the way happening when it is due."""
        until = self.now + seconds
        while (at := self.broker.next_event_at) <= until:
            self.now = max(self.now, at)
            self.broker.pass_time(self.now)
            self.settle()
        self.now = until

    def settle(self) -> None:
        """Do what goes on by itself, take answers, and commit unless the test does that."""
        while True:
            if self.commits:
                self.commit()
            self._take_answers()
            if not self.broker.has_more:
                break
            self.broker.go_on(self.now)
        if self.commits:
            self.commit()
            self._take_answers()

    def commit(self) -> None:
        """Everything is durable. Records go through the codec, so that the log holds what the disk would."""
        ledger = self.broker.ledger
        while not ledger.is_settled or ledger.records:
            records, _ = ledger.take_records()
            if records:
                first = self.state.trans_id - len(records) + 1
                self.log += entry_codec.decode(entry_codec.encode(1, first, self.now, records), "test").records
            self.broker.commit(self.now, self.state.trans_id)
        self._take_answers()

    def _take_answers(self) -> None:
        for call, reply in self.broker.ledger.take_answers():
            assert call.order not in self.replies, "a request is answered once"
            self.replies[call.order] = msgspec.json.decode(encode_reply(reply).split(b"\n", 1)[0])

    def replayed(self) -> ShardState:
        """The state that the log describes."""
        state = ShardState()
        state.loading = True
        for trans_id, record in enumerate(self.log, 1):
            state.apply(trans_id, record)
        state.finish_loading(self.now)
        return state


class _Nobody:
    def tell(self, message: Any) -> None:
        raise AssertionError("answers are taken from the ledger")


NOBODY = _Nobody()
