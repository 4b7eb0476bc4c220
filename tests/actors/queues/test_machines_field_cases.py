"""Nothing that a client says reaches an assert: the owner is given any combination of fields.

Requests that a codec refuses are left out: what is wrong only as a combination is what reaches a queue's owner.
"""

import random
from collections.abc import Iterator
from itertools import chain

import msgspec
import pytest

from actors.messages.call import Call
from actors.messages.naming import naming_fault
from bench.field_cases import SETTLING, cases
from quorate.action_fields import READS
from quorate.actions import DONE_BY_SHARDS
from quorate.protocol import Action, Request, TransactionRequest
from tests.actors.queues.shard import NOBODY, Shard, delivery_of

OTHERS_CASES = 5_000
"""Of each action that settles no messages: the whole is `python -m bench.security fields`."""

VALID_CASES = 5_000
"""Of fields that are valid one by one; nearly all actions have fewer, so that all are tried."""

LASTS = 400
"""So many cases one shard takes; the next begins with messages again."""


def shard_with_messages() -> tuple[Shard, tuple[int, ...]]:
    shard = Shard(waiters_max=100_000, waits_per_client_max=100_000)
    shard.ask(Action.CONFIGURE, queue="b", dead_letter="b.dead")
    ids = [
        shard.ask(Action.PRODUCE, queue="a", data=1, retry=60, key="k", scope="all")["msg_id"],
        shard.ask(Action.PRODUCE, queue="a", data=2, retry=60)["msg_id"],
        shard.ask(Action.PRODUCE, queue="b", data=3, retry=60, delay=50)["msg_id"],
        shard.ask(Action.PRODUCE, queue="b", data=4, keep=True, key="k")["msg_id"],
    ]
    shard.ask(Action.CONSUME, queue="a")
    return shard, (ids[0], ids[1], ids[3])


def well_formed(action: int, seed: int, most: int) -> Iterator[Request]:
    _, ids = shard_with_messages()
    every = chain(cases(action, seed, ids, most=most), cases(action, seed, ids, most=VALID_CASES, valid_alone=True))
    for case in every:
        try:
            yield msgspec.json.decode(msgspec.json.encode(case), type=Request)
        except msgspec.ValidationError:
            continue


@pytest.mark.parametrize("action", sorted(DONE_BY_SHARDS), ids=str)
def test_any_combination_of_fields_is_answered_and_raises_nothing(action: int) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    shard, _ = shard_with_messages()
    done = 0
    for done, request in enumerate(well_formed(action, seed, OTHERS_CASES), 1):
        if not done % LASTS:
            shard.state.check()
            shard, _ = shard_with_messages()
        call = Call(request, shard, 10_000 + done, NOBODY)
        shard.execute([call])
        shard.settle()
        assert not shard.broker.failures, (seed, request, shard.broker.failures)
        delivery = delivery_of(shard.broker)
        waits = any(waiter.call is call for one in (delivery.lines, delivery.key_lines) for waiter in one.all())
        asked = [one for one in shard.broker.context.asked if one.call is call]
        is_elsewhere = call in shard.broker.context.take_not_here()
        shard.broker.context.asked.clear()
        replicated = request.replicate is not None or (request.as_job and request.wait)
        assert waits or asked or is_elsewhere or replicated or call.order in shard.replies, (seed, request)
    assert done >= (1_000 if action in SETTLING else 1)
    shard.state.check()


@pytest.mark.parametrize("action", SETTLING, ids=str)
@pytest.mark.parametrize(
    "named",
    [
        {"key": "k", "scope": "all", "delivery": 1},
        {"key": "k", "scope": "all", "delivery": [1]},
        {"msg_ids": [4096], "delivery": 1},
        {"msg_ids": [4096, 5120], "delivery": [1]},
        {"msg_id": 4096, "msg_ids": [5120], "delivery": [1]},
        {"msg_id": 4096, "delivery": [1]},
        {"queue": "a", "delivery": 1},
        {"delivery": 1},
        {"delivery": [1]},
    ],
    ids=str,
)
def test_a_delivery_that_belongs_to_no_id_is_a_field_error(action: int, named: dict[str, object]) -> None:
    shard, _ = shard_with_messages()
    reply = shard.ask(action, retry=5, **named) if action == Action.EXTEND else shard.ask(action, **named)
    assert (reply["code"], reply["error"]) == (-1, "field_error")
    assert reply["reason"].startswith("delivery ")


def test_fields_that_name_messages_are_judged_in_one_place() -> None:
    def fault(**fields: object) -> tuple[str, str] | None:
        return naming_fault(msgspec.convert({"action": 3, **fields}, Request))

    for fine in (
        {"msg_id": 1},
        {"msg_ids": [1]},
        {"msg_id": 1, "msg_ids": [2]},
        {"key": "k", "scope": "all"},
        {"msg_id": 1, "delivery": 1},
        {"msg_ids": [1, 2], "delivery": [1, 2]},
    ):
        assert fault(**fine) is None, fine
    for missing in ({}, {"key": "k"}, {"scope": "all"}, {"queue": "a"}, {"queue": "a", "key": "k"}):
        found = fault(**missing)
        assert found == ("msg_id", "is missing, and so is msg_ids"), missing


def test_every_action_has_its_fields() -> None:
    assert READS.keys() == {int(action) for action in Action}
    for action, fields in READS.items():
        assert set(fields) <= set(TransactionRequest.__struct_fields__), action
