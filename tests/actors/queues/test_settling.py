"""Confirm, release and extend."""

from quorate.protocol import Action
from tests.actors.queues.shard import Shard


def test_confirming_an_unknown_id_is_code_0_and_confirmed_0() -> None:
    assert Shard().ask(Action.CONFIRM, msg_id=99, queue="q") == {
        "action": 3,
        "code": 0,
        "queue": "q",
        "msg_id": 99,
        "confirmed": 0,
    }


def test_confirming_many_counts_those_that_were_there() -> None:
    shard = Shard()
    ids = shard.ask(Action.PRODUCE, queue="a", messages=[{"data": n} for n in range(3)])["msg_ids"]
    ids += shard.ask(Action.PRODUCE, queue="b", messages=[{"data": n} for n in range(2)])["msg_ids"]
    assert shard.ask(Action.CONFIRM, msg_ids=[*ids, ids[0], 12345])["confirmed"] == 5


def test_extending_never_makes_the_retry_time_earlier() -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data="x", retry=60)["msg_id"]
    due_at = shard.now + 60
    shard.ask(Action.CONSUME, queue="q")
    assert shard.ask(Action.EXTEND, msg_id=msg_id, retry=5)["extended"] == 1
    assert shard.ask(Action.SHOW, msg_id=msg_id)["message"]["due_at"] == due_at
