"""Undoing: the state is what it would be if the records behind that point had never been made."""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.kinds import KINDS, messages_of
from storage.message import Message, message_of
from storage.message_ids import message_id, named, produced_by
from storage.records import (
    BASE_LEVEL,
    Bury,
    Clear,
    Configure,
    Confirm,
    Deliver,
    Expire,
    Extend,
    Lead,
    Member,
    Members,
    Move,
    Place,
    Position,
    Produce,
    Record,
    Release,
    Remove,
    Take,
    Withhold,
)
from storage.state import ShardState
from storage.stretches import OF_TOPICS, Stretch
from storage.topic_keys import keys_of
from storage.undo import STEPS_MAX
from tests.examples import examples
from tests.storage.facts import facts
from tests.storage.topic_records import random_record, topic_facts

QUEUES = ["a", "b", "c", "dead"]
STRETCH_RECORDS = 7
MARKS: list[Any] = [None, None, {"expire": "drop"}, {"scope": "all"}, {"keep": True}, {"headers": {"x": "y"}}]


def undo_to(state: ShardState, after: int) -> bool:
    """Make the state what it was behind record `after`, at once. False: it can't be, and is as it was."""
    if after == state.trans_id:
        return True
    steps = state.undoing(after)
    if steps is None:
        return False
    for _ in steps:
        pass
    return True


class Leader:
    """A state that makes records at random, as a leader would; `log` is all that it has made and not taken back."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.state = ShardState(0, STRETCH_RECORDS)
        self.state.undo.turn(self.state, is_on=True)
        self.log: list[tuple[Record, float]] = []
        self.open: list[Record] = []
        self.ends = [0]
        self.committed = 0
        self.now = 100.0
        self.stretches: list[Stretch] = []
        self.read_again = False

    def record(self) -> Record | None:
        random, state, now = self.random, self.state, self.now
        name, other = random.choice(QUEUES), random.choice(QUEUES)
        if random.random() < 0.2:
            return random_record(random, state, now)
        live = [m for m in state.messages.values() if m.queue == name]
        some = random.sample(live, min(len(live), random.choice([1, 1, 2])))
        held = [m for m in some if m.place == Place.IN_FLIGHT]
        repeated = [m for m in held if m.retry_s]
        others = [m for m in some if m.place != Place.IN_FLIGHT]
        if not some or random.random() < 0.3:
            return self.rare(name) if random.random() < 0.3 else self.produce(name)
        due = now + random.choice([-1.0, 0.0, 5.0])
        dues = [due] * len(some)
        counts = [m.deliveries + 1 for m in some]
        kind: Any = random.choice(
            [Deliver, Deliver, Release, Extend, Confirm, Expire, Clear, Take, Bury, Move, Withhold]
        )
        if kind is Deliver:
            staying = [m for m in some if m.retry_s or (m.marks is not None and "keep" in m.marks)]
            if not staying:
                return Take(name, *named(some))
            times = [now + 5.0] * len(staying)
            return Deliver(
                name, *named(staying), times, [m.deliveries + 1 for m in staying], random.choice([None, "me"])
            )
        if kind is Release:
            nacks = random.choice([None, [1] * len(repeated)])
            counts = [m.deliveries + 1 for m in repeated]
            return Release(name, *named(repeated), [due] * len(repeated), nacks, None if nacks is None else counts)
        if kind is Extend:
            return Extend(name, *named(held), [now + 9.0] * len(held)) if held else None
        if kind is Withhold:
            return Withhold(name, *named(others), [due] * len(others))
        if kind is Bury or kind is Move:
            if other == name or any(self.is_known(m, other) for m in some):
                return None
            ids, previous = named(some)
            expires = [now + 50.0] * len(ids)
            if kind is Bury:
                return Bury(name, other, ids, previous, dues, expires, random.choice([None, counts]), "so")
            return Move(name, other, ids, previous, dues, expires)
        removal: Record = kind(name, *named(some))
        return removal

    def is_known(self, message: Message, other: str) -> bool:
        queue = self.state.queues.get(other)
        return message.key is not None and queue is not None and message.key in queue.keys

    def produce(self, name: str) -> Record | None:
        random, now = self.random, self.now
        key = random.choice([None, None, "k1", "k2"])
        queue = self.state.queues.get(name)
        marks = random.choice(MARKS)
        if key is not None and (key in self.state.keys or (queue is not None and key in queue.keys)):
            key = None
        return Produce(
            name,
            message_id(self.state.trans_id + 1, 0),
            b"x" * random.randrange(9),
            now,
            now + random.choice([0.0, 0.0, 3.0]),
            now + random.choice([20.0, 900.0]),
            0.0 if marks is not None and "keep" in marks else random.choice([0.0, 5.0, 5.0]),
            random.randrange(3),
            key,
            marks=marks,
        )

    def rare(self, name: str) -> Record | None:
        random, queue = self.random, self.state.queues.get(name)
        kind = random.randrange(5)
        if kind == 0:
            shut_at = random.choice([0.0, self.now - 2])
            return Configure(name, random.randrange(9), 60.0, 0.0, 2, "dead", paused=False, paused_in_at=shut_at)
        if kind == 1:
            return Remove(name) if queue is not None and not queue.size else None
        if kind == 2:
            return Lead("", random.randrange(1, 4))
        if kind == 3:
            member = Member(1, "127.0.0.1", 1, 7, is_voter=True)
            return Members("", 1, [member], [], [], random.choice([1, BASE_LEVEL]))
        return Position("", random.choice(["r", "s"]), random.choice([None, self.state.trans_id]), self.now)

    def act(self) -> None:
        state, random = self.state, self.random
        record = self.record()
        if record is None:
            return
        state.apply_next(message_of(record) if isinstance(record, Produce) else record)
        self.open.append(record)
        for msg_id in messages_of(record)[0]:
            message = state.messages.get(msg_id)
            if message is not None and not message.place and random.random() < 0.8:
                state.queues[message.queue].place(message, self.now)
        self.now += random.random()
        for message in list(state.messages.values()):  # time passes without a record
            if message.place == Place.IN_FLIGHT and message.due_at <= self.now and message.retry_s:
                state.queues[message.queue].lift(message)
                state.queues[message.queue].place(message, self.now)

    def close(self) -> None:
        """What is open is an entry of the log."""
        if self.open:
            state = self.state
            state.time = self.now
            state.stretches.note(1, state.trans_id, self.open)
            state.undo.close(state.trans_id, self.now)
            self.log += [(record, self.now) for record in self.open]
            self.open = []
            self.ends.append(state.trans_id)

    def commit(self) -> None:
        self.committed = self.random.choice([end for end in self.ends if end >= self.committed])
        self.state.undo.forget(self.committed)
        self.state.topics.tails.settle(self.committed)

    def lose(self) -> None:
        """Another leader's log goes on behind some entry; this one leads again."""
        after = self.random.choice([end for end in self.ends if end >= self.committed])
        self.state.undo.turn(self.state, is_on=False)
        if not undo_to(self.state, after):
            self.read_again = True  # a queue would be shut that is open now
            return
        self.log, self.open = self.log[:after], []
        self.ends = [end for end in self.ends if end <= after]
        for message in self.state.messages.values():
            if not message.place:
                self.state.queues[message.queue].place(message, self.state.time)
        leads = [record.node_id for record, _ in self.log if isinstance(record, Lead)]
        assert self.state.facts.tenures.led_by == (leads[-1] if leads else 0)
        assert facts(self.state, self.now) == facts(followed(self.log), self.now)
        assert topic_facts(self.state) == topic_facts(followed(self.log))
        self.state.check()
        self.state.undo.turn(self.state, is_on=True)


def followed(log: list[tuple[Record, float]]) -> ShardState:
    """A state that has only ever heard of those."""
    state = ShardState()
    for trans_id, (record, time) in enumerate(log, 1):
        state.follow(trans_id, record, time)
        state.time = time
    return state


@settings(max_examples=examples(100), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_a_lost_lead_is_undone(random: Random, steps: int) -> None:
    leader = Leader(random)
    for _ in range(steps):
        for _ in range(random.randrange(6)):
            leader.act()
        chance = random.random()
        if chance < 0.6:
            leader.close()
        if chance < 0.3:
            leader.commit()
        elif chance > 0.85:
            leader.lose()
        if leader.read_again:
            assert any(isinstance(record, Configure) for record, _ in leader.log[leader.committed :]) or leader.open
            return
    leader.close()
    leader.committed = leader.ends[-1]
    look_at_stretches(leader)


def test_every_kind_of_record_is_among_those_that_are_undone() -> None:
    seen: set[type] = set()
    for seed in range(120):
        leader = Leader(Random(seed))
        for step in range(60):
            leader.act()
            if step == 30:
                leader.close()
                leader.committed = leader.ends[-1]
                leader.state.topics.tails.settle(leader.committed)
        leader.close()
        seen |= {type(record) for record, _ in leader.log}
        leader.lose()
    assert seen == {kind.record for kind in KINDS}


def look_at_stretches(leader: Leader) -> None:
    """Whatever was cut meanwhile, the stretches know all that their records are about: see `storage.stretches`."""
    stretches, live = leader.state.stretches, leader.state.messages
    start = 0
    while (stretch := stretches.first(leader.committed)) is not None:
        assert (stretch.start, stretch.until in leader.ends) == (start, True)
        start = stretch.until
        produced, touched, queues = set(stretch.produced), set(stretch.touched), set(stretch.queues)
        assert len(stretch.produced) == len(produced)
        for trans_id in range(stretch.start + 1, stretch.until + 1):
            record = leader.log[trans_id - 1][0]
            ids, previous = messages_of(record)
            for msg_id, before in zip(ids, previous, strict=True):
                if isinstance(record, Produce):
                    assert msg_id in produced or live.get(msg_id) is None
                    assert record.queue in queues
                elif before <= stretch.start:
                    assert msg_id in touched or produced_by(msg_id) > stretch.start
            if isinstance(record, (Configure, Remove)):
                assert record.queue in queues
            if isinstance(record, OF_TOPICS):
                assert set(keys_of(record)) <= set(stretch.rows)
            if isinstance(record, (Bury, Move)):
                assert record.to in queues
        assert all(produced_by(msg_id) <= stretch.until for msg_id in produced | touched)
        assert stretches.drop_trimmed(stretch.until)


def produced(state: ShardState, count: int) -> None:
    for _ in range(count):
        made = Produce("q", message_id(state.trans_id + 1, 0), b"x", 1.0, 1.0, 99.0, 5.0, 0, None)
        state.apply_next(message_of(made))
    state.undo.close(state.trans_id, 1.0)


def test_what_was_not_noted_is_not_undone() -> None:
    state = ShardState()
    produced(state, 2)
    state.undo.turn(state, is_on=True)
    produced(state, 2)
    assert not undo_to(state, 1)
    assert len(state.messages) == 4
    assert undo_to(state, 2)
    assert [produced_by(msg_id) for msg_id in state.messages] == [1, 2]


def test_what_is_kept_meanwhile_can_still_be_undone_and_what_came_unnoted_can_not() -> None:
    state = ShardState()
    state.undo.turn(state, is_on=True)
    produced(state, 2)
    state.undo.turn(state, is_on=False)
    state.undo.turn(state, is_on=True)
    assert undo_to(state, 0), "nothing came in between"
    produced(state, 2)
    state.undo.turn(state, is_on=False)
    produced(state, 1)
    state.undo.turn(state, is_on=True)
    assert not undo_to(state, 0)
    assert len(state.messages) == 3


def test_too_much_is_not_undone_in_one_go() -> None:
    state = ShardState()
    state.undo.turn(state, is_on=True)
    produced(state, STEPS_MAX)
    assert not undo_to(state, 0), "each message, and its queue"
    assert len(state.messages) == STEPS_MAX
    produced(state, 1)
    assert undo_to(state, STEPS_MAX)
    assert len(state.messages) == STEPS_MAX


def test_the_time_is_that_of_the_last_entry_that_stays_also_where_it_changed_nothing() -> None:
    state = ShardState()
    state.undo.turn(state, is_on=True)
    produced(state, 1)
    state.apply_next(Remove("none"))
    state.apply_next(message_of(Produce("q", message_id(3, 0), b"x", 5.0, 5.0, 99.0, 5.0, 0, None)))
    state.undo.close(state.trans_id, 5.0)  # two entries that left at once
    assert undo_to(state, 2)
    assert state.time == 5.0


def test_committed_records_are_forgotten() -> None:
    state = ShardState()
    state.undo.turn(state, is_on=True)
    for _ in range(5):
        produced(state, 2)
    state.undo.forget(7)
    assert state.undo.since == 6, "whole entries"
    assert not undo_to(state, 4)
    assert undo_to(state, 6)
    assert state.undo.is_on


def placed(state: ShardState, count: int) -> None:
    produced(state, count)
    for message in state.messages.values():
        if not message.place:
            state.queues["q"].place(message, 1.0)


def found(state: ShardState) -> list[int]:
    return [produced_by(message.msg_id) for message in state.messages.behind(0, 100)[0]]


def test_a_message_that_comes_back_is_told_once_by_a_scan() -> None:
    state = ShardState()
    state.undo.turn(state, is_on=True)
    placed(state, 3)
    assert found(state) == [1, 2, 3]
    state.apply_next(Confirm("q", [message_id(3, 0)], [3]))
    state.undo.close(4, 1.0)
    assert undo_to(state, 3)
    assert found(state) == [1, 2, 3]
    state.check()


def test_a_message_that_gets_the_number_of_one_that_was_undone_is_told_once() -> None:
    state = ShardState()
    state.undo.turn(state, is_on=True)
    placed(state, 3)
    assert found(state) == [1, 2, 3]
    assert undo_to(state, 2)
    state.undo.turn(state, is_on=False)
    made = Produce("q", message_id(3, 0), b"y", 1.0, 1.0, 99.0, 5.0, 0, None)
    state.follow(3, made, 2.0)
    assert found(state) == [1, 2, 3]
    state.check()


def configured(state: ShardState, paused_in_at: float) -> None:
    state.apply_next(Configure("q", 0, 60.0, 0.0, 0, None, paused=False, paused_in_at=paused_in_at))
    state.undo.close(state.trans_id, 1.0)


def test_a_queue_that_was_opened_is_not_shut_by_an_undo() -> None:
    """What it let in meanwhile would stay ready in a queue that takes nothing in."""
    state = ShardState()
    state.undo.turn(state, is_on=True)
    placed(state, 1)
    configured(state, 5.0)
    configured(state, 0.0)
    assert not undo_to(state, 2)
    assert (state.trans_id, state.queues["q"].paused_in_at) == (3, 0.0)
    assert undo_to(state, 3), "nothing of it"
    configured(state, 7.0)
    assert undo_to(state, 3), "what was shut is open again"
    assert state.queues["q"].paused_in_at == 0.0


def test_a_full_stretch_is_made_anew_only_where_something_is_missing() -> None:
    """One confirm in each of 200 stretches had all their ids put in order again: 90 ms in one turn."""
    state = ShardState(0, 10)
    state.undo.turn(state, is_on=True)
    for _ in range(10):
        for _ in range(10):
            made = Produce("q", message_id(state.trans_id + 1, 0), b"x", 1.0, 1.0, 99.0, 5.0, 0, None)
            state.apply_next(message_of(made))
        state.stretches.note(1, state.trans_id, list(state.messages.values())[-10:])
        state.undo.close(state.trans_id, 1.0)
    before = [stretch.produced for stretch in state.stretches._full]
    gone = [message_id(at, 0) for at in range(5, 100, 10)]
    state.apply_next(Confirm("q", gone, [produced_by(one) for one in gone]))
    state.undo.close(state.trans_id, 1.0)
    assert undo_to(state, 100)
    after = [stretch.produced for stretch in state.stretches._full]
    assert len(after) == 10
    assert all(now is then for now, then in zip(after, before, strict=True))


def test_what_a_state_has_noted_goes_with_it_in_pieces() -> None:
    state = ShardState()
    state.undo.turn(state, is_on=True)
    for _ in range(5):
        produced(state, 10)
    pieces = 1
    while not state.take_apart(10):
        pieces += 1
    assert pieces > 10, "the steps, and the messages"
    assert not state.undo.drop(1)
