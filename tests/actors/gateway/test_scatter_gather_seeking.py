"""A consume over queues of several shards, against real brokers: one message at most, and none kept in vain."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.gateway.scatter_gather import ScatterGather, Seeking, Step
from actors.gateway.sharding import Sharding
from actors.messages.call import Call
from quorate.protocol import Action, Code, ErrorWord, Reply, Request, refusal
from quorate.shards import shard_of_queue
from storage.state import ShardState
from tests.actors.cranked import Probe, ref
from tests.actors.queues.shard import broker_of, delivery_of, execute
from tests.examples import examples

NOW = 1_800_000_000.0


class Asker:
    """The consumer's connection."""

    has_left = is_gone = False

    has_ended = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Replies are taken from the steps."""


class Shards:
    """Brokers, and the messages between them and a consume; a test says which arrives next."""

    def __init__(self, count: int) -> None:
        self.time = 0.0
        self.brokers = [broker_of(ShardState(shard)) for shard in range(count)]
        self.under_way: list[tuple[int, Any]] = []
        self.reply: Reply | None = None
        self.seeking: Seeking | None = None
        self.down: set[int] = set()

    def produce(self, shard: int) -> None:
        request = Request(Action.PRODUCE, queue=f"q{shard}", data=msgspec.Raw(b"1"), retry=1000.0)
        execute(self.brokers[shard], NOW + self.time, [Call(request, Asker(), 0, ref(Probe()))])
        self.settle(shard)

    def consume(self, groups: list[tuple[int, list[str]]], wait: float | None, action: Action = Action.CONSUME) -> None:
        names = [name for _, queues in groups for name in queues]
        request = Request(action, queues=names, wait=wait, seq=5)
        self.seeking = Seeking(Call(request, Asker(), 0, ref(Probe())), groups, self.time)
        self.take(self.seeking.begin(self.time))

    @property
    def client(self) -> Seeking:
        assert self.seeking is not None
        return self.seeking

    def take_reply(self) -> Reply:
        """The reply, once all that is under way has arrived; the next consume may begin."""
        self.settle_all()
        reply, self.reply = self.reply, None
        assert reply is not None
        return reply

    def take(self, step: Step) -> None:
        for order, part in step.asks:
            self.under_way.append((part.shard, Call(part.request, self.client, order, ref(Probe()))))
        self.under_way += [(shard, None) for shard in step.let_go]
        if step.reply is not None:
            assert self.reply is None, "one reply"
            self.reply = step.reply

    def arrive(self, at: int) -> None:
        """The first that is under way between the consume and one of the shards, the `at`-th; they keep their order."""
        shards = sorted({shard for shard, _ in self.under_way})
        shard = shards[at % len(shards)]
        index = next(index for index, (its, _) in enumerate(self.under_way) if its == shard)
        _, what = self.under_way.pop(index)
        broker = self.brokers[shard]
        if isinstance(what, tuple):
            self.take(self.client.answered(self.time, *what))
            return
        if what is None:
            broker.forget(self.client)
        elif shard in self.down:
            self.under_way.append((shard, (what.order, refusal(what.request, ErrorWord.NO_LEADER, "down"))))
            return
        else:
            execute(broker, NOW + self.time, [what])
        self.settle(shard)

    def settle(self, shard: int) -> None:
        broker = self.brokers[shard]
        ledger = broker.ledger
        while not ledger.is_settled or ledger.records:
            ledger.take_records()
            broker.commit(NOW + self.time, ledger.state.trans_id)
        for call, reply in ledger.take_answers():
            if call.client is self.seeking:
                self.under_way.append((shard, (call.order, reply)))

    def pass_time(self, seconds: float) -> None:
        self.time += seconds
        for shard, broker in enumerate(self.brokers):
            broker.pass_time(NOW + self.time)
            self.settle(shard)

    def settle_all(self) -> None:
        while self.under_way:
            self.arrive(0)

    @property
    def taken(self) -> int:
        return sum(m.deliveries for broker in self.brokers for m in broker.ledger.state.messages.values())

    @property
    def ready(self) -> int:
        return sum(len(q.ready) for broker in self.brokers for q in broker.ledger.state.queues.values())


GROUPS = [(0, ["q0"]), (1, ["q1"]), (2, ["q2"])]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 2)),
        st.tuples(st.just("produce"), st.integers(0, 2)),
        st.tuples(st.just("pass"), st.sampled_from([0, 1, 3])),
    ),
    max_size=40,
)


@settings(max_examples=examples(400), deadline=None)
@given(STEPS, st.sampled_from([None, 4.0]), st.booleans())
def test_it_never_takes_two_and_leaves_none_that_it_could_have(
    steps: list[tuple[str, int]], wait: float | None, leaves: bool
) -> None:
    shards = Shards(3)
    shards.consume(GROUPS, wait)
    for what, number in steps:
        if what == "arrive" and shards.under_way:
            shards.arrive(number)
        elif what == "produce":
            shards.produce(number)
        elif what == "pass":
            shards.pass_time(number)
        assert shards.taken <= 1
    if leaves:
        shards.take(shards.client.client_gone(shards.time))
    shards.settle_all()
    shards.pass_time(10)
    reply = shards.take_reply()
    assert shards.taken == (reply.msg_id is not None)
    assert reply.seq == 5
    for broker in shards.brokers:
        assert len(delivery_of(broker).lines) == 0, "nobody waits any more"
    if shards.ready:
        shards.consume(GROUPS, None)
        assert shards.take_reply().msg_id is not None, "what is there can be taken"


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=3), st.integers(0, 5))
def test_what_comes_while_it_waits_is_served_and_nothing_is_kept_from_others(coming: list[int], choice: int) -> None:
    shards = Shards(3)
    shards.consume(GROUPS, 60.0)
    shards.settle_all()
    for shard in coming:
        shards.produce(shard)
    while shards.under_way:
        shards.arrive(choice)
    assert shards.take_reply().msg_id is not None
    assert shards.taken == 1
    assert all(not delivery_of(broker).lines.has_told for broker in shards.brokers)


def test_of_several_that_have_a_message_the_preferred_one_is_taken() -> None:
    for preferred in range(3):
        shards = Shards(3)
        for shard in range(3):
            shards.produce(shard)
        shards.consume([*GROUPS[preferred:], *GROUPS[:preferred]], 5.0)
        assert shards.take_reply().queue == f"q{preferred}"


def test_a_shard_without_a_leader_is_passed_over_and_told() -> None:
    shards = Shards(3)
    shards.down = {0}
    shards.consume(GROUPS, None)
    reply = shards.take_reply()
    assert (reply.code, getattr(reply, "missing_shards", None)) == (Code.OK, [0])
    shards.produce(1)
    shards.consume(GROUPS, None)
    assert shards.take_reply().queue == "q1"
    shards.down = {0, 1, 2}
    shards.consume(GROUPS, None)
    assert shards.take_reply().error == ErrorWord.NO_LEADER


def test_a_refusal_of_the_request_itself_is_the_reply() -> None:
    shards = Shards(3)
    shards.consume(GROUPS, 1e7)
    assert shards.take_reply().error == ErrorWord.FIELD
    assert all(len(delivery_of(broker).lines) == 0 for broker in shards.brokers)


def test_a_watch_over_shards_is_told_once_and_takes_nothing() -> None:
    shards = Shards(3)
    shards.consume(GROUPS, 60.0, Action.WATCH)
    shards.settle_all()
    shards.produce(1)
    reply = shards.take_reply()
    assert (reply.action, reply.queue, reply.count) == (Action.WATCH, "q1", 1)
    shards.consume(GROUPS, 60.0, Action.WATCH)
    assert shards.take_reply().queue == "q1"
    shards.consume(GROUPS[:1], None, Action.WATCH)
    assert shards.take_reply().count is None
    assert shards.taken == 0
    assert all(len(delivery_of(broker).lines) == 0 for broker in shards.brokers)


def test_every_shard_that_was_asked_is_let_go() -> None:
    shards = Shards(3)
    shards.produce(0)
    shards.consume(GROUPS, None)
    step = Step([], [])
    while step.reply is None:
        index, (_, what) = 0, shards.under_way[0]
        if isinstance(what, tuple):
            shards.under_way.pop(index)
            step = shards.client.answered(0.0, *what)
            shards.take(step)
        else:
            shards.arrive(0)
    assert step.let_go == [0], "the others were not asked"


def test_what_is_held_of_one_that_is_done_is_wanted_by_nobody() -> None:
    """A watch that left later, for another node, was remembered for ever under a number of its own."""
    shards = Shards(3)
    shards.consume(GROUPS, 60.0)
    shards.settle_all()
    told = [(shards.client.has_left, shards.client.is_gone)]
    shards.produce(1)
    shards.take_reply()
    told.append((shards.client.has_left, shards.client.is_gone))
    assert told == [(False, False), (True, True)]


def test_a_shard_that_is_down_is_asked_once() -> None:
    shards = Shards(2)
    shards.down = {1}
    shards.consume([(0, ["a"]), (1, ["b"])] * 5, None)
    asked = 0
    while shards.under_way:
        asked += any(shard == 1 and isinstance(what, Call) for shard, what in shards.under_way)
        shards.arrive(0)
    assert asked == 1


def test_a_cancelled_search_ends_and_says_so_behind_its_answer() -> None:
    parts = ScatterGather(Sharding(2, 0), ref(Probe()))
    asker = Asker()
    names = next(
        [f"q{a}", f"q{b}"]
        for a in range(9)
        for b in range(9)
        if shard_of_queue(f"q{a}", 2) != shard_of_queue(f"q{b}", 2)
    )
    consume = Call(Request(Action.CONSUME, queues=names, wait=60.0, seq=5), asker, 0, ref(Probe()))
    cancel = Call(Request(Action.CANCEL, seq=5), asker, 1, ref(Probe()))
    begun = parts.scatter(0.0, consume)
    assert parts.cancel(0.1, Call(Request(Action.CANCEL, seq=6), asker, 1, ref(Probe()))) is None
    parted = parts.cancel(0.1, cancel)
    assert parted is not None
    assert parted.answers == [], "what is being asked for may still be a message"
    nothing = Reply(action=2, code=0, queue=names[0])
    parted = parts.answered(0.2, [(begun.asks[0][1], nothing)], is_stopping=False)
    assert [(call, reply.cancelled) for call, reply in parted.answers] == [(consume, None), (cancel, 1)]
    begun = parts.scatter(1.0, consume)
    parts.cancel(1.0, cancel)
    message = Reply(action=2, code=0, queue=names[0], msg_id=1024, data=msgspec.Raw(b"1"))
    parted = parts.answered(1.2, [(begun.asks[0][1], message)], is_stopping=False)
    assert [(call, reply.msg_id, reply.cancelled) for call, reply in parted.answers] == [
        (consume, 1024, None),
        (cancel, None, 0),
    ]
    assert parts.cancel(1.3, cancel) is None
