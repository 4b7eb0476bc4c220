"""Who takes the lead catches up with the time before it serves; followers' delayed messages become ready, too."""

from typing import Any

import pytest

from actors.messages.call import Call
from actors.messages.calls import Execute, Returned, RightsChanged
from actors.messages.log import Apply, Drain, Drained, LogAdvanced, Promoted, StateDropped, StateLoaded, Undrain
from actors.messages.rights import Principal, Rights
from actors.queues.delivery import TURN_WORK_MAX
from actors.queues.ripening import TURN_MESSAGES
from quorate.protocol import Action, Request
from storage.entry import StoredEntry
from storage.entry_codec import decode, encode
from storage.message_ids import message_id
from storage.records import Lead, Produce
from storage.state import ShardState
from tests.actors.shard.test_queue_owner import Owner, leading_entry


def messages_due_in(owner: Owner, delays: list[float]) -> Any:
    """An entry that produces messages with those delays."""
    now = owner.runtime.now()
    made = [
        Produce("q", message_id(2 + index, 0), b"1", now, now + delay, now + 1e6, 60.0, index, None)
        for index, delay in enumerate(delays)
    ]
    return StoredEntry(2, 1 + len(made), 5, encode(5, 2, now, made))


def held_consumes(owner: Owner, count: int) -> list[Any]:
    """What consumers get who asked before the node served, once it does."""
    for _ in range(count):
        owner.ask(Action.CONSUME, queue="q")
    owner.advance(owner.actor._ledger.state.trans_id)
    owner.crank(0.0)
    owner.advance(owner.actor._ledger.state.trans_id)
    return owner.replies()


@pytest.mark.parametrize("count", [3, 2 * TURN_WORK_MAX])
def test_who_leads_answers_nobody_before_what_came_due_meanwhile_is_ready(count: int) -> None:
    """All nodes were down for an hour, and the delays were a minute."""
    owner = Owner()
    owner.tell(Apply([leading_entry(owner), messages_due_in(owner, [60.0] * count)]))
    owner.crank(3600.0)
    owner.tell(Promoted(6, []))
    replies = held_consumes(owner, 3)
    got = [reply.msg_id for reply in replies]
    assert got == [message_id(1 + count - index, 0) for index in range(3)], "by priority, of all that is due"


def test_what_was_delayed_becomes_ready_on_a_follower_too_by_the_time_of_its_log() -> None:
    owner = Owner()
    owner.tell(Apply([leading_entry(owner), messages_due_in(owner, [60.0, 3600.0])]))
    queue = owner.actor._ledger.state.queues["q"]
    owner.crank(100.0)
    assert (len(queue.ready), queue.delayed) == (0, 2), "its own clock counts for nothing"
    later = StoredEntry(4, 4, 5, encode(5, 4, owner.runtime.now(), [Lead("", 1)]))
    owner.tell(Apply([later]))
    assert (len(queue.ready), queue.delayed) == (1, 1)
    owner.actor._ledger.state.check()


def test_a_follower_whose_state_came_as_rows_alone_counts_as_the_leader_does() -> None:
    """Rows say no time: before the first entry behind them nothing is known to be due."""
    owner, count = Owner(), 3 * TURN_MESSAGES
    state = ShardState()
    state.loading = True
    for record in decode(messages_due_in(owner, [0.0] * count).data, "test").records:
        assert isinstance(record, Produce)
        state.restore_message(record)
    state.trans_id = 1 + count
    state.finish_loading(state.time)
    owner.tell(StateDropped(), StateLoaded(state))
    owner.ask(Action.NODE_MONITOR, queue="q")
    assert [getattr(reply, "ready", None) for reply in owner.replies()] == [0]
    owner.tell(Apply([StoredEntry(2 + count, 2 + count, 5, encode(5, 2 + count, owner.runtime.now(), [Lead("", 1)]))]))
    owner.crank(0.0)
    owner.ask(Action.NODE_MONITOR, queue="q")
    assert [getattr(reply, "ready", None) for reply in owner.replies()] == [count]


def catching_up(count: int) -> Owner:
    """An owner that leads, has much to catch up with, holds a consume, and is to hand over."""
    owner = Owner()
    owner.tell(Apply([leading_entry(owner), messages_due_in(owner, [60.0] * count)]))
    owner.crank(3600.0)
    owner.tell(Promoted(6, []))
    owner.ask(Action.CONSUME, queue="q")
    at = owner.actor._ledger.state.trans_id
    values: dict[str, Any] = {"durable": at, "leased_until": 1e9, "confirmed_at": 1e9, "disk_full": None}
    values |= {"replicas": (at,), "tail_bytes": 0, "room_bytes": 1e9, "trimmed": 0}
    owner.actor.actor_ref.tell(LogAdvanced(committed=at, **values))
    owner.actor.actor_ref.tell(Drain(6))
    owner.crank()
    return owner


def test_who_hands_over_before_it_has_caught_up_gives_back_what_it_holds() -> None:
    """It was done when somebody asked about the node: behind the word that all is settled, so a message came twice."""
    owner = catching_up(4 * TURN_WORK_MAX)
    assert [len(message.calls) for message in owner.router.take(Returned)] == [1]
    assert len(owner.replicator.take(Drained)) == 1
    owner.appended()
    owner.ask(Action.NODE_STATUS)
    assert owner.appended() == []


def test_who_leads_on_after_all_catches_up_before_it_serves() -> None:
    owner = catching_up(4 * TURN_WORK_MAX)
    owner.actor.actor_ref.tell(Undrain())
    owner.actor.actor_ref.tell(Execute([Call(Request(Action.CONSUME, queue="q"), owner, 0, owner.asker)]))
    owner.crank()
    owner.advance(owner.actor._ledger.state.trans_id)
    assert [reply.msg_id for reply in owner.replies()] == [message_id(1 + 4 * TURN_WORK_MAX, 0)]


def test_what_is_held_is_judged_anew_when_rights_change() -> None:
    owner = Owner()
    owner.tell(Promoted(6, []))
    owner.ask(Action.CONSUME, queue="q")
    owner.tell(RightsChanged(owner, Principal("w", Rights({}))))
    assert [reply.error for reply in owner.replies()] == ["not_allowed"]
    owner.advance(1)
    assert owner.replies() == []
