"""Consumers that are told of a message and leave it there: one for each message, in the order in which they came."""

from actors.queues.wait_queues import OFFER_S
from quorate.protocol import Action, Reply, Request
from tests.actors.queues.shard import Shard, delivery_of


class Asker:
    """A client of its own."""

    has_left = is_gone = False

    has_ended = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """The shard keeps the replies."""


def watch(shard: Shard, client: Asker, wait: float = 30) -> int:
    return shard.send(Action.WATCH, client, queue="q", wait=wait)


def consume(shard: Shard) -> int:
    return shard.send(Action.CONSUME, Asker(), queue="q", wait=30)


def produce(shard: Shard) -> None:
    assert shard.ask(Action.PRODUCE, queue="q", data="x", retry=60)["code"] == 0


def answered(shard: Shard, numbers: list[int]) -> list[bool]:
    return [number in shard.replies for number in numbers]


def test_who_watches_is_told_and_takes_nothing() -> None:
    shard = Shard()
    assert "count" not in shard.ask(Action.WATCH, queue="q")
    produce(shard)
    told = shard.ask(Action.WATCH, queues=["empty", "q"])
    assert (told["queue"], told["count"]) == ("q", 1)
    assert "msg_id" not in told
    assert shard.ask(Action.MONITOR, queue="q")["ready"] == 1


def test_one_watcher_comes_for_each_message_in_the_order_in_which_they_came() -> None:
    shard = Shard()
    watching = [watch(shard, Asker()) for _ in range(3)]
    produce(shard)
    assert answered(shard, watching) == [True, False, False]
    produce(shard)
    assert answered(shard, watching) == [True, True, False]


def test_a_message_that_a_watcher_does_not_want_is_for_the_next() -> None:
    shard = Shard()
    first = Asker()
    told = [watch(shard, first), watch(shard, Asker())]
    produce(shard)
    assert answered(shard, told) == [True, False]
    shard.broker.forget(first)
    shard.settle()
    assert answered(shard, told) == [True, True]
    assert shard.ask(Action.CONSUME, queue="q")["msg_id"], "who asks at once takes what is there"


def test_each_message_is_kept_for_a_watcher_for_its_own_moment() -> None:
    shard = Shard()
    told = [watch(shard, Asker()) for _ in range(2)]
    waits = [consume(shard) for _ in range(2)]
    produce(shard)
    shard.pass_time(OFFER_S / 2)
    produce(shard)
    assert answered(shard, told) == [True, True]
    assert answered(shard, waits) == [False, False]
    shard.pass_time(OFFER_S / 2)
    assert answered(shard, waits) == [True, False]
    shard.pass_time(OFFER_S / 2)
    assert answered(shard, waits) == [True, True]


def test_who_was_told_and_comes_takes_the_message_and_frees_the_line() -> None:
    shard = Shard()
    first = Asker()
    watch(shard, first)
    waits = consume(shard)
    produce(shard)
    assert "msg_id" in shard.replies[shard.send(Action.CONSUME, first, queue="q")]
    produce(shard)
    assert answered(shard, [waits]) == [True]


def test_who_was_told_and_finds_the_message_gone_keeps_nothing_from_the_others() -> None:
    shard = Shard()
    first = Asker()
    watch(shard, first)
    waits = consume(shard)
    produce(shard)
    produce(shard)
    assert answered(shard, [waits]) == [True], "the second message is nobody's"
    waits = consume(shard)
    assert answered(shard, [waits]) == [True], "who asks at once takes what is there"
    assert "msg_id" not in shard.replies[shard.send(Action.CONSUME, first, queue="q")]
    waits = consume(shard)
    produce(shard)
    assert answered(shard, [waits]) == [True]


def test_a_message_that_nobody_comes_for_keeps_nobody_busy() -> None:
    shard = Shard()
    produce(shard)
    watch(shard, Asker())
    shard.pass_time(OFFER_S)
    assert shard.broker.next_event_at > shard.now
    assert not delivery_of(shard.broker).lines.has_told


def test_a_watch_ends_without_a_message_when_its_time_is_over() -> None:
    shard = Shard()
    watches = watch(shard, Asker(), wait=2)
    shard.pass_time(2.5)
    reply = shard.replies[watches]
    assert reply["code"] == 0
    assert "count" not in reply
