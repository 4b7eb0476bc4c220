"""A follower's delayed messages become ready by the log's time: in pieces, in rounds, and never what is not due."""

import pytest

from actors.queues.ripening import HELD_UP_MAX, ROUND_S, TURN_MESSAGES, TURN_QUEUES, Ripening
from actors.shard.jobs import Jobs
from actors.shard.ledger import Ledger
from storage.message_ids import message_id, named
from storage.records import Clear, Configure, Deliver, Expire, Place, Produce, Remove
from storage.state import ShardState

NOW = 1_800_000_000.0


def shard(queues: int, each: int, due_in: float = 10.0) -> ShardState:
    """A follower's state, with that many delayed messages in that many queues."""
    state = ShardState()
    state.time = NOW
    for index in range(queues * each):
        one = f"q{index % queues}"
        trans_id = state.trans_id + 1
        record = Produce(one, message_id(trans_id, 0), b"", NOW, NOW + due_in, NOW + 900, 60.0, 0, None)
        state.follow(trans_id, record, NOW)
    return state


def ripening_of(state: ShardState) -> Ripening:
    jobs = Jobs(Ledger(state), 100)
    jobs.set_late(lambda: True)
    return Ripening(state, jobs)


def rounds(ripening: Ripening, state: ShardState, time: float) -> int:
    """Let the log come to that time; in how many turns that was followed."""
    state.time = time
    ripening.followed()
    turns, work = 0, ripening._jobs.known
    while work.jobs:
        work.go_on()
        state.check()
        turns += 1
    return turns


def ready(state: ShardState) -> int:
    return sum(len(queue.ready) for queue in state.queues.values())


def test_what_is_due_by_the_logs_time_is_ready_and_nothing_else() -> None:
    state = shard(3, 2)
    ripening = ripening_of(state)
    assert rounds(ripening, state, NOW + 9.9) == 1
    assert ready(state) == 0
    rounds(ripening, state, NOW + 9.9 + ROUND_S)
    assert ready(state) == 6


def test_it_looks_again_only_after_a_while_of_the_logs_time() -> None:
    state = shard(1, 1)
    ripening = ripening_of(state)
    assert rounds(ripening, state, NOW + 9.5) == 1
    assert rounds(ripening, state, NOW + 9.5 + 0.9 * ROUND_S) == 0
    assert rounds(ripening, state, NOW + 9.5 + 1.1 * ROUND_S) == 1
    assert ready(state) == 1


@pytest.mark.parametrize(
    ("queues", "each", "turns"), [(1, 3 * TURN_MESSAGES, 4), (2 * TURN_QUEUES + 1, 0, 3), (3, TURN_MESSAGES, 4)]
)
def test_many_of_them_take_several_turns(queues: int, each: int, turns: int) -> None:
    state = shard(queues, each)
    for index in range(queues):
        state.queue(f"q{index}")
    assert rounds(ripening_of(state), state, NOW + 60) == turns
    assert ready(state) == queues * each


def test_a_message_that_somebody_holds_or_that_may_not_come_in_does_not_become_ready() -> None:
    state = shard(2, 2, due_in=10.0)
    first, second, third, _ = sorted(state.messages)
    state.follow(5, Deliver("q0", [first], [1], [NOW + 20], [1]), NOW)
    state.follow(6, Configure("q1", 0, 900.0, 60.0, 0, None, False, paused_in_at=NOW + 5), NOW + 5)
    rounds(ripening_of(state), state, NOW + 30)
    assert state.messages[first].place == Place.IN_FLIGHT, "that its time is over is for the leader to say"
    assert state.messages[third].place == Place.READY
    assert state.messages[second].place == Place.HELD


def test_what_expires_waits_for_its_record() -> None:
    """And what stands behind it does, too: for a moment."""
    state = shard(1, 1, due_in=100.0)
    trans_id = state.trans_id + 1
    gone = Produce("q0", message_id(trans_id, 0), b"", NOW, NOW, NOW + 50, 60.0, 0, None, marks={"expire": "drop"})
    state.follow(trans_id, gone, NOW)
    rounds(ripening_of(state), state, NOW + 200)
    assert state.messages[message_id(trans_id, 0)].place in (Place.READY_EXPIRING, Place.READY_FAR)


def test_what_stood_behind_what_has_expired_becomes_ready_with_the_record_that_says_so() -> None:
    """Not only a round later: on a quiet log that would be much later."""
    state = shard(1, 1, due_in=10.0)
    trans_id = state.trans_id + 1
    gone = message_id(trans_id, 0)
    state.follow(trans_id, Produce("q0", gone, b"", NOW, NOW, NOW + 5, 60.0, 0, None, marks={"expire": "drop"}), NOW)
    ripening = ripening_of(state)
    rounds(ripening, state, NOW + 20)
    assert [message.place == Place.DELAYED for message in state.messages.values()] == [True, False]
    assert rounds(ripening, state, NOW + 20.05) == 1
    state.follow(trans_id + 1, Expire("q0", [gone], [trans_id]), NOW + 20.1)
    assert rounds(ripening, state, NOW + 20.1) == 1
    assert [message.place for message in state.messages.values()] == [Place.READY]
    assert rounds(ripening, state, NOW + 20.2) == 0, "it is no longer held up"


def test_a_queue_that_is_gone_or_very_many_that_are_held_up_are_no_trouble() -> None:
    queues = HELD_UP_MAX + 10
    state = shard(queues, 1, due_in=10.0)
    for index in range(queues):
        trans_id = state.trans_id + 1
        first = Produce(
            f"q{index}", message_id(trans_id, 0), b"", NOW, NOW, NOW + 5, 60.0, 0, None, marks={"expire": "drop"}
        )
        state.follow(trans_id, first, NOW)
    ripening = ripening_of(state)
    rounds(ripening, state, NOW + 20)
    for name in [*state.queues][:5]:
        ids, previous = named([one for one in state.messages.values() if one.queue == name])
        state.follow(state.trans_id + 1, Clear(name, ids, previous), NOW + 20)
        state.follow(state.trans_id + 1, Remove(name), NOW + 20)
    assert rounds(ripening, state, NOW + 20.1) == 1
    assert rounds(ripening, state, NOW + 20 + ROUND_S) == 1


def test_of_what_is_held_up_for_many_rounds_each_queue_is_remembered_once_and_all_of_it_comes() -> None:
    state = shard(2, 2 * TURN_MESSAGES, due_in=10.0)
    gone = {}
    for name in ("q0", "q1"):
        trans_id = state.trans_id + 1
        gone[name] = trans_id
        first = Produce(name, message_id(trans_id, 0), b"", NOW, NOW, NOW + 5, 60.0, 0, None, marks={"expire": "drop"})
        state.follow(trans_id, first, NOW)
    ripening = ripening_of(state)
    for number in range(2 * HELD_UP_MAX):
        rounds(ripening, state, NOW + 20 + number * ROUND_S)
    time = state.time + 0.1 * ROUND_S
    for name, trans_id in gone.items():
        state.follow(state.trans_id + 1, Expire(name, [message_id(trans_id, 0)], [trans_id]), time)
    assert rounds(ripening, state, time) > 2
    assert ready(state) == 4 * TURN_MESSAGES
