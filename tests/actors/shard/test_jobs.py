"""What a call asks of many messages goes in pieces, and an owner sees to it that each is answered once."""

import pytest

from actors.messages.calls import Execute, Returned
from actors.messages.lifecycle import Stop
from actors.messages.log import Deposed, Drain, Drained
from actors.messages.rights import Principal, Rights
from actors.runtime.work import Steps
from actors.shard.node_view import Limits
from actors.shard.put_off import SHARE, SLICE_S
from quorate.actions import Right
from quorate.protocol import Action
from tests.actors.cranked import Probe, ref
from tests.actors.gateway.test_routing import Somebody
from tests.actors.queues.shard import Shard
from tests.actors.shard.test_put_off import (
    COUNT,
    KNOWN,
    UNKNOWN,
    Ticking,
    call_of,
    in_one_turn,
    quick,
    settle,
    told,
)


def test_what_strangers_do_in_pieces_has_their_part_of_the_time_and_ends_though_nobody_asks_any_more() -> None:
    owner = quick(limits=Limits(settle_piece=1))
    for _ in range(COUNT):
        owner.ask(Action.PRODUCE, queue="q", data=b"1")
    settle(owner)
    messages = owner.actor._ledger.state.messages
    confirm = call_of(owner, Somebody(), UNKNOWN, "stranger", Action.CONFIRM, msg_ids=[*messages])
    Ticking(owner, SLICE_S)
    told(owner, Execute([confirm]), Execute([call_of(owner, owner, KNOWN, "known")]))
    assert 0 < len(messages) < COUNT, "it was begun, and what is left waits for time"
    assert not owner.actor._broker.has_more
    assert owner.actor._admission.has_calls
    owner.crank(COUNT * SLICE_S / SHARE)
    settle(owner)
    assert len(messages) == 0
    assert [reply.confirmed for reply in owner.replies() if reply.seq == "stranger"] == [COUNT]


@pytest.mark.parametrize("principal", [KNOWN, UNKNOWN])
def test_who_hands_over_or_stops_does_all_that_was_begun(principal: Principal) -> None:
    for last in (Drain(5), Stop(ref(Probe()))):
        owner = quick(limits=Limits(settle_piece=1))
        owner.runtime.late_after = 1
        for _ in range(COUNT):
            owner.ask(Action.PRODUCE, queue="q", data=b"1")
        settle(owner)
        messages = owner.actor._ledger.state.messages
        ids = [*messages]
        told(owner, Execute([call_of(owner, Somebody(), principal, 0, Action.CONFIRM, msg_ids=ids)]), last)
        owner.crank(1.0)
        assert len(messages) == 0
        assert owner.replicator.take(Drained) == []
        assert owner.replicator.take(Stop) == []
        settle(owner)
        assert [reply.confirmed for reply in owner.replies() if reply.confirmed is not None] == [COUNT]
        assert len([*owner.replicator.take(Drained), *owner.replicator.take(Stop)]) == 1


def test_who_loses_the_lead_answers_once_whatever_was_under_way() -> None:
    """A known client's large confirm, one behind it that was not begun, and a stranger's."""
    owner = quick(limits=Limits(settle_piece=1))
    owner.runtime.late_after = 1
    for _ in range(3 * COUNT):
        owner.ask(Action.PRODUCE, queue="q", data=b"1")
    settle(owner)
    owner.replies()
    ids = [*owner.actor._ledger.state.messages]
    calls = [
        call_of(owner, owner, KNOWN, "first", Action.CONFIRM, msg_ids=ids[:COUNT]),
        call_of(owner, owner, KNOWN, "later", Action.CONFIRM, msg_ids=ids[COUNT : 2 * COUNT]),
        call_of(owner, Somebody(), UNKNOWN, "stranger", Action.CONFIRM, msg_ids=ids[2 * COUNT :]),
    ]
    owner.actor.actor_ref.tell(Execute(calls))
    in_one_turn(owner)
    jobs = owner.actor._broker.jobs
    assert jobs.known.jobs
    assert jobs.strangers.jobs
    logged = owner.actor._appender.machine.logged
    owner.tell(Deposed(logged, logged, 2))
    owner.crank(1.0)
    returned = [call.request.seq for message in owner.router.take(Returned) for call in message.calls]
    told_of = [reply.seq for reply in owner.replies()]
    assert sorted([*returned, *told_of]) == ["first", "later", "stranger"]
    assert "later" in returned


def test_what_has_left_for_the_log_in_pieces_is_unknown_and_what_has_not_is_not_done() -> None:
    """Found by turning a line: which record was the first of those that a call had made mattered to no test."""
    for behind in (0, -1):
        shard = Shard(settle_piece=2)
        shard.broker.jobs.set_late(lambda: True)
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(6)], retry=60)
        shard.ask(Action.CONSUME, queue="q", count=6)
        ids = [*shard.state.messages]
        call = shard.call(Action.CONFIRM, msg_ids=[1, 2, *ids])  # the first piece makes nothing
        shard.execute([call])
        shard.execute([shard.call(Action.PRODUCE, queue="other", data=1)])
        shard.broker.go_on(shard.now)
        assert shard.broker.has_more
        first = shard.state.trans_id
        uncertain, undone = shard.broker.take_open(first + behind)
        assert (call in uncertain, call in undone) == (behind == 0, behind != 0)


@pytest.mark.parametrize("is_many", [False, True])
@pytest.mark.parametrize(("queue", "confirmed"), [("a", 1), ("b", 0)])
def test_a_client_of_few_rights_that_names_queue_and_message_has_what_it_may_have(
    queue: str, confirmed: int, is_many: bool
) -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue=queue, data=1, retry=60)["msg_id"]
    shard.ask(Action.CONSUME, queue=queue)
    call = shard.call(Action.CONFIRM, queue=queue, **({"msg_ids": [msg_id]} if is_many else {"msg_id": msg_id}))
    call.principal = Principal("eater", Rights({Right.CONSUME: ["a*"]}))
    shard.execute([call])
    shard.settle()
    assert shard.replies[call.order]["confirmed"] == confirmed


def raising(after: int = 0) -> Steps:
    for _ in range(after):
        yield
    raise ZeroDivisionError


def test_a_job_that_raises_before_a_record_ends_its_calls_and_nobody_elses() -> None:
    shard = Shard()
    jobs = shard.broker.jobs
    calls = [shard.call(Action.LIST) for _ in range(2)]
    jobs.add(calls[0], raising(2))
    other = shard.call(Action.SCAN)
    shard.execute([other])
    shard.settle()
    assert shard.replies[calls[0].order]["error"] == "internal_error"
    assert shard.replies[other.order]["code"] == 0
    assert [failure.call for failure in shard.broker.failures] == [calls[0]]
    with pytest.raises(ZeroDivisionError):
        jobs.begin(calls[1], raising())
    assert not jobs.failed


def test_a_job_of_nobodys_that_raises_ends_the_worker() -> None:
    """Nobody can be told, and it was to be done: it would be left undone for ever, unseen."""
    shard = Shard()
    shard.broker.jobs.add(None, raising(1))
    with pytest.raises(ZeroDivisionError):
        shard.settle()
