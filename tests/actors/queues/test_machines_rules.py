"""The rules of delivery, each against a plain model: a list of messages and a loop over it."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from actors.messages.call import Call
from actors.queues.idle_queues import STALE_ALARMS_MAX
from actors.queues.listing import LIST_NAMES
from actors.queues.queue_admin import CLEAR_CHUNK
from actors.shard.replicated import REPLICATED_S
from quorate.protocol import TIME_MAX_S, Action, ProduceItem, Request
from storage.queue_state import ALL_READY
from storage.records import Clear, Place
from tests.actors.queues.shard import NOBODY, Shard, delivery_of
from tests.examples import examples

QUEUES = ["a", "b"]


@dataclass
class ModelMessage:
    """What a person would write down about a message.

    It was delivered `before` times until it came into its queue, `deliveries` times since, and is to last so long (s).
    """

    msg_id: int
    queue: str
    due: float
    expires: float
    retry: float
    priority: int
    key: str | None
    deliveries: int = 0
    flying_until: float | None = None
    is_given_back: bool = False
    drops: str | None = None
    keeps: bool = False
    nacks: int = 0
    lasts: float = 0.0
    before: int = 0
    dead: dict[str, Any] | None = None


@dataclass
class Model:
    """The rules of design.md, section 1, in the most obvious way."""

    messages: list[ModelMessage] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)
    takes_nothing: dict[str, float] = field(default_factory=dict)
    max_deliveries: dict[str, int] = field(default_factory=dict)
    dead_letter: dict[str, str] = field(default_factory=dict)
    max_size: dict[str, int] = field(default_factory=dict)

    def may_go_out(self, m: ModelMessage, now: float) -> bool:
        limit = self.max_deliveries.get(m.queue, 0)
        if m.deliveries == 0:
            return now < m.expires or not m.drops
        return now < m.expires and not 0 < limit <= m.deliveries

    def pass_time(self, now: float) -> None:
        """End what may not go out again: those in flight when their time is over, others when they expire."""
        for m in list(self.messages):
            if m.flying_until is not None and m.flying_until <= now:
                moment = m.flying_until
                m.flying_until, m.due = None, moment
                if not self.may_go_out(m, moment):
                    self.end(m, moment)
        for m in list(self.messages):
            if m.flying_until is None and m.is_given_back and m.due <= now:
                m.is_given_back = False  # released with a delay: it is judged again when it is due
                if not self.may_go_out(m, m.due):
                    self.end(m, m.due)
        for m in list(self.messages):
            if m.flying_until is None and (m.deliveries or m.drops) and m.expires <= now:
                self.end(m, m.expires)

    def end(self, m: ModelMessage, now: float) -> None:
        was_given = m.keeps and m.deliveries > 0
        if m.queue not in self.dead_letter or (m.drops == "drop" and m.expires <= now) or was_given:
            self.messages.remove(m)
        else:
            self.bury(m, now)

    def bury(self, m: ModelMessage, now: float, reason: str | None = None) -> None:
        m.dead = {"queue": m.queue, "at": now, "deliveries": m.deliveries}
        if reason is not None:
            m.dead["reason"] = reason
        m.before += m.deliveries
        m.queue, m.due, m.expires, m.deliveries, m.key = self.dead_letter[m.queue], now, TIME_MAX_S, 0, None
        m.flying_until, m.drops, m.nacks = None, None, 0

    def move(self, m: ModelMessage, to: str | None, now: float) -> bool:
        """Whether it moved: to where it came from, if `to` is not said."""
        target = to or (m.dead or {}).get("queue")
        if target is None or m.flying_until is not None or target == m.queue:
            return False
        there = [one for one in self.messages if one.queue == target]
        if m.key is not None and m.key in [one.key for one in there]:
            return False
        if 0 < self.max_size.get(target, 0) <= len(there):
            return False
        m.lasts = m.lasts if to is None else 3600
        m.before += m.deliveries
        m.queue, m.due, m.deliveries, m.dead, m.is_given_back = target, max(m.due, now), 0, None, False
        m.nacks = 0
        m.expires = m.due + m.lasts
        return True

    def is_held(self, m: ModelMessage) -> bool:
        since = self.takes_nothing.get(m.queue)
        return since is not None and m.due > since and m.retry > 0

    def is_over(self, m: ModelMessage) -> bool:
        return m.keeps and (m.flying_until is not None or m.due >= m.expires)

    def ready(self, queue: str, now: float) -> list[ModelMessage]:
        found = [m for m in self.messages if m.queue == queue and m.flying_until is None and m.due <= now]
        found = [m for m in found if not self.is_held(m)]
        return sorted(found, key=lambda m: (-m.priority, m.due, m.msg_id))

    def consume(self, queue: str, count: int, now: float) -> list[ModelMessage]:
        out: list[ModelMessage] = []
        if queue in self.paused:
            return out
        for m in self.ready(queue, now):
            if len(out) == count:
                break
            if not self.may_go_out(m, now):
                self.end(m, now)
                continue
            out.append(m)
            m.deliveries += 1
            if not m.retry and m.keeps:
                m.flying_until = max(m.expires, now)
            elif not m.retry:
                self.messages.remove(m)
            else:
                at = now + m.retry
                m.flying_until = m.expires if at >= m.expires > now else at
        return out


FENCES = st.sampled_from([None, None, 0, 1, -1])
"""Which delivery is meant: none is named, the newest, one that is to come, the one before."""

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("produce"),
            st.sampled_from(QUEUES),
            st.sampled_from([0, 0, 1, 5]),
            st.sampled_from([7, 20, 100]),
            st.sampled_from([0, 2, 6, 30]),
            st.integers(-1, 2),
            st.sampled_from([None, "k1", "k2"]),
            st.sampled_from([None, None, "drop", "bury"]),
            st.booleans(),
            st.sampled_from([None, None, "refuse", "keep", "replace"]),
        ),
        st.tuples(st.just("consume"), st.sampled_from(QUEUES), st.integers(1, 3)),
        st.tuples(st.just("confirm"), st.integers(0, 30), FENCES),
        st.tuples(st.just("release"), st.integers(0, 30), FENCES, st.sampled_from([0, 3]), st.booleans()),
        st.tuples(st.just("withhold"), st.integers(0, 30), st.sampled_from([None, 0, 4])),
        st.tuples(st.just("extend"), st.integers(0, 30), FENCES, st.sampled_from([4, 50])),
        st.tuples(st.just("bury"), st.integers(0, 30), FENCES, st.sampled_from([None, "no such user"])),
        st.tuples(st.just("move"), st.integers(0, 30), st.sampled_from(QUEUES), st.sampled_from([None, *QUEUES])),
        st.tuples(st.just("time"), st.sampled_from([0.5, 1.0, 3.0, 10.0, 40.0])),
        st.tuples(
            st.just("pause"), st.sampled_from(QUEUES), st.sampled_from([True, False, "in", "out", "all", "none"])
        ),
        st.tuples(st.just("size"), st.sampled_from(QUEUES), st.integers(0, 4)),
        st.tuples(st.just("limit"), st.sampled_from(QUEUES), st.integers(0, 2), st.booleans()),
    ),
    min_size=8,
    max_size=60,
)


FOUND: list[tuple[Any, ...]] = [
    *[("produce", "a", 0, 7, 0, 0, None, None, False, None)] * 2,
    ("produce", "b", 0, 7, 2, 0, None, None, False, None),
    ("consume", "b", 1),
    ("release", 2, None, 3, False),
    ("limit", "b", 1, False),
    *[("produce", "a", 0, 7, 0, 0, None, None, False, None)] * 3,
    ("time", 3.0),
]
"""A message that was given back with a delay may not go out any more when it is due: it ends then."""


@given(STEPS)
@example(FOUND)
@settings(max_examples=examples(600))
def test_a_shard_does_what_the_plain_model_does(steps: list[tuple[Any, ...]]) -> None:
    shard, model = Shard(settle_piece=1), Model()
    made: list[int] = []
    for step in steps:
        name, *values = step
        if name == "produce":
            queue, delay, ttl, retry, priority, key, drops, keeps, how = values
            how = None if key is None else how
            times = {"delay": delay, "ttl": delay + ttl, "retry": retry, "expire": drops, "keep": keeps}
            times["on_duplicate"] = how
            reply = shard.ask(
                Action.PRODUCE, queue=queue, data="x", priority=priority, key=key, headers={"a": "b"}, **times
            )
            holder = [m for m in model.messages if m.queue == queue and m.key is not None and m.key == key]
            if holder and how == "keep":
                assert (reply["msg_id"], reply["duplicate"]) == (holder[0].msg_id, True)
                continue
            if queue in model.takes_nothing:
                assert reply["error"] == "paused"
                continue
            if holder and how != "replace":
                assert (reply["error"], reply["msg_id"]) == ("duplicate_key", holder[0].msg_id)
                continue
            size = sum(m.queue == queue for m in model.messages)
            if 0 < model.max_size.get(queue, 0) <= size and not holder:
                assert reply["error"] == "queue_full"
                continue
            assert reply["code"] == 0
            for replaced in holder:
                model.messages.remove(replaced)
            now = shard.now
            made.append(reply["msg_id"])
            model.messages.append(
                ModelMessage(
                    *(reply["msg_id"], queue, now + delay, now + delay + ttl, retry, priority, key),
                    drops=drops,
                    keeps=keeps and not retry,
                    lasts=delay + ttl,
                )
            )
        elif name == "consume":
            reply = shard.ask(Action.CONSUME, queue=values[0], count=values[1])
            expected = model.consume(values[0], values[1], shard.now)
            got = [(m["msg_id"], m["deliveries"]) for m in reply.get("messages", ())]
            assert got == [(m.msg_id, m.before + m.deliveries) for m in expected]
        elif name == "move" and made:
            msg_id, queue, to = made[values[0] % len(made)], values[1], values[2]
            reply = shard.ask(Action.MOVE, queue=queue, to=to, msg_id=msg_id, create=True)
            if to == queue or queue not in shard.state.queues:
                assert reply["error"] == ("field_error" if to == queue else "no_such_queue")
                continue
            looked_at = [m for m in model.messages if m.msg_id == msg_id and m.queue == queue and not m.flying_until]
            moved = sum(model.move(m, to, shard.now) for m in looked_at)
            assert (reply["moved"], reply["stayed"]) == (moved, len(looked_at) - moved)
            assert ("reason" in reply) == (moved < len(looked_at))
        elif name == "withhold" and made:
            msg_id = made[values[0] % len(made)]
            m = next((m for m in model.messages if m.msg_id == msg_id), None)
            reply = shard.ask(Action.WITHHOLD, msg_id=msg_id, delay=values[1])
            is_there = m is not None and m in model.ready(m.queue, shard.now)
            assert reply.get("error") == (None if is_there else "not_ready" if m else "no_such_message")
            if m is not None and is_there:
                at = shard.now + (values[1] or m.retry)
                if m.keeps and not values[1]:
                    at = m.expires
                m.due = min(at, m.expires) if m.deliveries or m.drops else at
                m.is_given_back = True
                if not model.may_go_out(m, shard.now):
                    model.end(m, shard.now)
        elif name in ("confirm", "release", "extend", "bury") and made:
            msg_id = made[values[0] % len(made)]
            found = [m for m in model.messages if m.msg_id == msg_id]
            named: dict[str, Any] = {"msg_id": msg_id}
            meant = values[1]
            if meant is not None:
                meant = named["delivery"] = max(found[0].before + found[0].deliveries + meant, 0) if found else 1
                if len(steps) % 2:
                    named = {"msg_ids": [msg_id, msg_id], "delivery": [meant, 1000]}
            is_meant = meant is None or (bool(found) and meant == found[0].before + found[0].deliveries)
            flying = bool(found) and found[0].flying_until is not None and is_meant
            if name == "confirm":  # also of a delivery that is not known: then its record was lost
                found = [m for m in found if meant is None or m.before + m.deliveries <= meant]
                assert shard.ask(Action.CONFIRM, **named)["confirmed"] == len(found)
                model.messages = [m for m in model.messages if m not in found]
            elif name == "bury":
                if found and model.is_over(found[0]):
                    flying = False
                reply = shard.ask(Action.BURY, reason=values[2], **named)
                if flying and found[0].queue not in model.dead_letter:
                    assert reply["error"] == "field_error"
                else:
                    assert (reply["code"] == 0) == flying
                    if flying:
                        assert reply["buried"] == 1
                        model.bury(found[0], shard.now, values[2])
            elif name == "release":
                delayed = bool(found) and meant is None and found[0].flying_until is None
                delayed = delayed and (found[0].due > shard.now or model.is_held(found[0]))
                if found and model.is_over(found[0]):
                    flying = delayed = False
                reply = shard.ask(Action.RELEASE, delay=values[2], nack=values[3], **named)
                assert (reply["code"] == 0) == (flying or delayed)
                if flying or delayed:
                    m = found[0]
                    due = shard.now + values[2]
                    m.nacks += values[3]
                    m.flying_until, m.due = None, min(due, m.expires) if m.deliveries or m.drops else due
                    if m.due <= shard.now and m.queue in model.takes_nothing:
                        m.due = min(m.due, model.takes_nothing[m.queue])
                    if not model.may_go_out(m, shard.now):
                        model.end(m, shard.now)
                    elif m.due > shard.now:
                        m.is_given_back = True
            else:
                if found and model.is_over(found[0]):
                    flying = False
                reply = shard.ask(Action.EXTEND, retry=values[2], **named)
                assert (reply["code"] == 0) == flying
                if flying:
                    m = found[0]
                    assert m.flying_until is not None
                    m.flying_until = max(m.flying_until, shard.now + values[2])
                    if m.drops == "bury":
                        m.flying_until = min(m.flying_until, m.expires)
        elif name == "time":
            shard.pass_time(values[0])
        elif name == "pause":
            queue, paused = values
            word = shard.ask(Action.CONFIGURE, queue=queue, paused=paused)["paused"]
            if paused in (True, "out", "all"):
                model.paused.add(queue)
            else:
                model.paused.discard(queue)
            if paused in ("in", "all"):
                model.takes_nothing.setdefault(queue, shard.now)
            elif paused is not True:
                model.takes_nothing.pop(queue, None)
            held, shut = queue in model.paused, queue in model.takes_nothing
            assert word == (("all" if held else "in") if shut else held)
        elif name == "size":
            shard.ask(Action.CONFIGURE, queue=values[0], max_size=values[1])
            model.max_size[values[0]] = values[1]
        elif name == "limit":
            queue, limit, has_dead_letter = values
            shard.ask(
                Action.CONFIGURE, queue=queue, max_deliveries=limit, dead_letter="dead" if has_dead_letter else None
            )
            model.max_deliveries[queue] = limit
            model.dead_letter.pop(queue, None)
            if has_dead_letter:
                model.dead_letter[queue] = "dead"
        _check_same(shard, model)
    shard.state.check()


def _check_same(shard: Shard, model: Model) -> None:
    shard.broker.pass_time(shard.now)
    shard.settle()
    model.pass_time(shard.now)
    live = {m.msg_id: (m.queue, m.deliveries, m.flying_until is not None, m.dead) for m in model.messages}
    held = {
        m.msg_id: (m.queue, m.deliveries, m.place == Place.IN_FLIGHT, (m.marks or {}).get("dead"))
        for m in shard.state.messages.values()
    }
    assert held == live
    assert all((m.marks or {})["headers"] == {"a": "b"} for m in shard.state.messages.values())
    replayed = shard.replayed()
    assert {m.msg_id: (m.queue, m.deliveries, m.marks) for m in replayed.messages.values()} == {
        m.msg_id: (m.queue, m.deliveries, m.marks) for m in shard.state.messages.values()
    }
    assert replayed.data_bytes == shard.state.data_bytes
    for m in model.messages:
        message = shard.state.messages[m.msg_id]
        assert (message.marks or {}).get("nacks", 0) == m.nacks
        is_ready = message.place in ALL_READY
        assert is_ready == (m in model.ready(m.queue, shard.now)), (m, message.place)
    for name, queue in shard.state.queues.items():
        assert queue.in_flight == sum(m.flying_until is not None for m in model.messages if m.queue == name)


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 3)), min_size=1, max_size=30))
def test_delivery_order_is_priority_then_due_time_then_production(wanted: list[tuple[int, int]]) -> None:
    shard = Shard()
    produced = []
    for priority, delay in wanted:
        msg_id = shard.ask(Action.PRODUCE, queue="q", data="x", priority=priority, delay=delay)["msg_id"]
        produced.append((-priority, shard.now + delay, msg_id))
    shard.pass_time(10)
    got = [m["msg_id"] for m in shard.ask(Action.CONSUME, queue="q", count=100)["messages"]]
    assert got == [msg_id for _, _, msg_id in sorted(produced)]


@given(st.lists(st.floats(0, 5), min_size=1, max_size=20), st.floats(0.01, 6))
def test_a_delayed_message_is_never_delivered_early_and_not_late_to_who_waits(delays: list[float], wait: float) -> None:
    shard = Shard()
    due = {shard.ask(Action.PRODUCE, queue="q", data="x", delay=delay)["msg_id"]: shard.now + delay for delay in delays}
    begun = shard.now
    numbers = [shard.send(Action.CONSUME, queue="q", wait=wait) for _ in delays]
    seen: dict[int, float] = {}
    while shard.now < begun + wait:
        for number in numbers:
            if "msg_id" in shard.replies.get(number, {}):
                seen.setdefault(shard.replies[number]["msg_id"], shard.now)
        shard.pass_time(0.01)
    for msg_id, at in seen.items():
        assert due[msg_id] <= at <= due[msg_id] + 0.05
    assert set(seen) >= {msg_id for msg_id, at in due.items() if at < begun + wait - 0.05}


WAITS = st.lists(
    st.one_of(
        st.tuples(
            st.just("wait"), st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True), st.integers(1, 9)
        ),
        st.tuples(st.just("produce"), st.sampled_from("abc")),
        st.tuples(st.just("gone"), st.integers(0, 20)),
        st.tuples(st.just("time"), st.integers(1, 4)),
    ),
    max_size=40,
)


class Client:
    """One that stays."""

    has_left = is_gone = False

    has_ended = False


@given(WAITS)
@settings(max_examples=examples(300))
def test_consumers_that_wait_are_served_like_a_list_of_them_in_order(steps: list[tuple[Any, ...]]) -> None:
    shard = Shard()
    waiting: list[tuple[int, object, list[str], float]] = []
    clients: list[Any] = []
    stored: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for step in steps:
        if step[0] == "wait":
            clients.append(Client())
            number = shard.send(Action.CONSUME, client=clients[-1], queues=step[1], wait=step[2])
            queue = next((name for name in step[1] if stored[name]), None)
            if queue is None:
                waiting.append((number, clients[-1], step[1], shard.now + step[2]))
            else:
                assert shard.replies[number]["msg_id"] == stored[queue].pop(0)
        elif step[0] == "produce":
            msg_id = shard.ask(Action.PRODUCE, queue=step[1], data="x", retry=0)["msg_id"]
            first = next((one for one in waiting if step[1] in one[2]), None)
            if first is None:
                stored[step[1]].append(msg_id)
            else:
                waiting.remove(first)
                assert shard.replies[first[0]]["msg_id"] == msg_id
        elif step[0] == "gone" and clients:
            client = clients[step[1] % len(clients)]
            shard.broker.forget(client)
            shard.settle()
            waiting = [one for one in waiting if one[1] is not client]
        elif step[0] == "time":
            shard.pass_time(step[1])
            for one in [one for one in waiting if one[3] <= shard.now]:
                waiting.remove(one)
                assert "msg_id" not in shard.replies[one[0]]
        assert all(one[0] not in shard.replies for one in waiting)
        assert len(delivery_of(shard.broker).lines) == len(waiting)


def test_a_clear_of_very_many_goes_in_pieces_and_gathers_nothing_beforehand() -> None:
    """Of two millions the ids alone took half a second, in which the leader was deposed."""
    shard = Shard()
    for _ in range(30):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1}] * 1000)
    for _ in range(5):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1, "delay": 100}] * 1000)
    shard.ask(Action.CONSUME, queue="q", count=1000)
    number = shard.send(Action.CLEAR, queue="q")
    assert shard.replies[number]["count"] == 34_000, "what was delivered at most once is gone"
    cleared = [len(record.msg_ids) for record in shard.log if isinstance(record, Clear)]
    assert max(cleared) == CLEAR_CHUNK
    assert len(cleared) <= 18
    shard.state.check()


def test_what_is_buried_into_a_queue_while_that_is_cleared_stays() -> None:
    shard = Shard()
    shard.broker.jobs.set_late(lambda: True)
    shard.ask(Action.CONFIGURE, queue="work", dead_letter="dead", max_deliveries=1)
    for _ in range(6):
        shard.ask(Action.PRODUCE, queue="dead", messages=[{"data": 1}] * 1000)
    first = shard.ask(Action.PRODUCE, queue="work", data="buried", retry=1)["msg_id"]
    shard.ask(Action.CONSUME, queue="work")
    shard.execute([])
    request = Request(6, queue="dead")
    call = Call(request, shard, 999, NOBODY)
    shard.execute([call])
    assert shard.broker.has_more, "it is under way"
    shard.now += 5.0
    shard.broker.pass_time(shard.now)
    assert shard.state.messages[first].queue == "dead"
    shard.settle()
    assert shard.replies[999]["count"] == 6000
    assert [message.msg_id for message in shard.state.messages.values()] == [first]


def test_of_a_dead_letter_queue_all_goes_that_was_there_however_much_is_buried_into_it_meanwhile() -> None:
    """The first that were looked at had all been buried since, and it was taken for empty."""
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="work", dead_letter="dead", max_deliveries=1)
    for priority, times in ((0, 4), (9, 3)):
        for _ in range(times):
            shard.ask(Action.PRODUCE, queue="dead", messages=[{"data": 1, "priority": priority}] * 1000)
    for _ in range(3):
        shard.ask(Action.PRODUCE, queue="work", messages=[{"data": "b", "retry": 1}] * 1000)
    old = {message.msg_id for message in shard.state.messages.values() if message.queue == "dead"}
    for _ in range(3):
        shard.ask(Action.CONSUME, queue="work", count=1000)
    shard.execute([Call(Request(6, queue="dead"), shard, 999, NOBODY)])
    shard.now += 5.0
    while shard.broker.next_event_at <= shard.now:
        shard.broker.pass_time(shard.now)
    shard.settle()
    left = {message.msg_id for message in shard.state.messages.values() if message.queue == "dead"}
    assert shard.replies[999]["count"] == len(old)
    assert len(left) == 3000
    assert not left & old


def test_a_clear_looks_at_what_has_come_since_in_pieces() -> None:
    shard = Shard()
    shard.broker.jobs.set_late(lambda: True)
    for _ in range(5):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1}] * 1000)
    shard.execute([Call(Request(6, queue="q"), shard, 999, NOBODY)])
    items = [ProduceItem(data=Raw(b"1"))] * 1000
    for _ in range(40):
        shard.execute([Call(Request(1, queue="q", messages=items), shard, 1000, NOBODY)])
        shard.broker.commit(shard.now, shard.state.trans_id)
    shard.broker.ledger.take_answers()
    pieces = 0
    while shard.broker.has_more:
        pieces += 1
        shard.broker.go_on(shard.now)
    shard.settle()
    assert shard.replies[999]["count"] == 5000
    assert pieces >= 40_000 // CLEAR_CHUNK
    assert len(shard.state.messages) == 40_000


def test_a_list_of_very_many_queues_goes_in_pieces_and_is_the_same() -> None:
    shard = Shard()
    names = [f"q{number:05}" for number in range(LIST_NAMES * 2 + 10)]
    for name in names:
        shard.state.queue(name)
    assert shard.ask(Action.LIST, count=3)["queue_count"] == len(names)
    call = Call(Request(7, pattern="q*7", count=1000), shard, 998, NOBODY)
    shard.execute([call])
    assert shard.broker.has_more
    shard.settle()
    wanted = [name for name in names if name.endswith("7")]
    listed = [row["name"] for row in shard.replies[998]["queue_list"]]
    assert listed == wanted[:1000]
    assert shard.replies[998]["queue_count"] == len(wanted)
    rest = shard.ask(Action.LIST, pattern="q*7", count=1000, after=shard.replies[998]["next"])
    assert listed + [row["name"] for row in rest["queue_list"]] == wanted
    assert "next" not in rest
    [last] = shard.ask(Action.LIST, pattern=names[-1])["queue_list"]
    assert last["name"] == names[-1]


def test_alarms_of_queues_that_are_gone_do_not_gather() -> None:
    shard = Shard()
    for number in range(STALE_ALARMS_MAX * 3):
        shard.ask(Action.PRODUCE, queue=f"q{number}", data=1, delay=1000)
        shard.ask(Action.REMOVE, queue=f"q{number}")
    assert len(delivery_of(shard.broker).alarms._heap) <= STALE_ALARMS_MAX + 10


def test_replies_that_wait_for_nodes_that_never_have_it_end_in_time_and_with_their_client() -> None:
    shard = Shard()
    shard.commits = False
    ledger = shard.broker.ledger
    shard.broker.context.view.nodes = 3
    clients = [Shard(), Shard()]
    numbers = [shard.send(Action.PRODUCE, clients[n % 2], queue="q", data=n, replicate=3) for n in range(6)]
    ledger.commit(shard.state.trans_id)
    ledger.replicated.majority = 2
    ledger.replicated.durable(6, (6, 6, 2))
    shard._take_answers()
    assert [shard.replies[n]["code"] for n in numbers if n in shard.replies] == [0, 0]
    ledger.replicated.forget(clients[0])
    shard._take_answers()
    assert [shard.replies[n]["error"] for n in numbers[2::2]] == ["unknown_outcome"] * 2
    ledger.lease.pass_time(REPLICATED_S)
    ledger.replicated.durable(6, (6, 6, 2))
    shard._take_answers()
    assert all(n in shard.replies for n in numbers)
    assert "2 have it" in shard.replies[numbers[-1]]["reason"]
    assert ledger.parked_count == 0
