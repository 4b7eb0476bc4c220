"""What a worker holds: nothing's lease runs out unextended, and what is due about now is asked for together."""

from hypothesis import given
from hypothesis import strategies as st

from quorate.hands import TOGETHER, Backoff, Hands
from quorate.messages import Message


def message(msg_id: int, retry: float, deliveries: int = 1) -> Message:
    return Message(msg_id, "q", None, deliveries, retry=retry)


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 3.0, 6.0, 60.0]), st.floats(0, 20)), max_size=30),
    st.floats(0.01, 0.3),
)
def test_every_lease_is_extended_before_it_is_half_over(arrivals: list[tuple[float, float]], step: float) -> None:
    hands: Hands[Message] = Hands()
    leased_at: dict[int, float] = {}
    arrivals = sorted(arrivals, key=lambda one: one[1])
    now = 0.0
    ids = iter(range(1, 1000))
    while now < 40:
        while arrivals and arrivals[0][1] <= now:
            one = message(next(ids), arrivals.pop(0)[0])
            hands.take([one], now)
            leased_at[one.msg_id] = now
        if hands.next_at <= now:
            for lease_s, messages in hands.due(now).items():
                for held in messages:
                    assert lease_s == held.retry
                    assert now >= leased_at[held.msg_id] + held.retry / 3 * (1 - TOGETHER) - 1e-6, "not all the time"
                    leased_at[held.msg_id] = now
        for held in hands.held:
            assert not held.retry or now < leased_at[held.msg_id] + held.retry / 2
        now += step


def test_what_is_due_about_now_goes_together_and_what_failed_soon_again() -> None:
    hands: Hands[Message] = Hands()
    hands.take([message(1, 30), message(2, 30)], 0.0)
    hands.take([message(3, 30)], 1.5)
    assert hands.next_at == 10
    assert [one.msg_id for one in hands.due(10.0)[30]] == [1, 2, 3]
    assert hands.next_at == 20
    hands.failed([message(2, 30)], 10.0)
    assert hands.next_at == 13
    assert [one.msg_id for one in hands.due(13.0)[30]] == [2]


def test_only_the_delivery_that_is_held_is_let_go() -> None:
    hands: Hands[Message] = Hands()
    hands.take([message(1, 30, deliveries=2)], 0.0)
    assert not hands.drop(message(1, 30, deliveries=1))
    assert not hands.drop(message(5, 30))
    assert hands.drop(message(1, 30, deliveries=2))
    assert len(hands) == 0


def test_a_message_rests_longer_each_time_up_to_a_cap() -> None:
    backoff = Backoff(2.0, 60.0)
    assert [backoff.rest_s(n, 1.0) for n in (1, 2, 3, 6, 7, 1000)] == [2, 4, 8, 60, 60, 60]
    assert backoff.rest_s(2, 0.0) == 2
    assert 1 <= backoff.rest_s(1) <= 2
