"""What arrives at one moment is more than a turn has time for: the rest is put off, and nothing of it is lost."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from actors.messages.call import Call
from actors.messages.calls import ClientGone, Execute, Returned, RightsChanged
from actors.messages.lifecycle import Stop
from actors.messages.log import Apply, Deposed, Drain, Drained, Promoted
from actors.messages.rights import ANONYMOUS, ITSELF, Principal, Rights
from actors.shard.admission import Admission
from actors.shard.appending import AppendingLimits
from actors.shard.jobs import Jobs
from actors.shard.ledger import Ledger
from actors.shard.leftovers import LET_GO_MAX
from actors.shard.node_view import Limits
from actors.shard.owner_stage import OwnerStage
from actors.shard.put_off import AT_ONCE, OTHERS_S, SHARE, SLICE_S, PutOff
from actors.shard.queue_owner import Pieces
from quorate.protocol import Action, Request
from quorate.queue_replies import MonitorReply
from storage.entry import StoredEntry
from storage.entry_making import make_entries
from storage.records import Lead
from storage.state import ShardState
from tests.actors.cranked import Probe, ref
from tests.actors.gateway.test_routing import Somebody
from tests.actors.queues.shard import delivery_of
from tests.actors.shard.test_queue_owner import Owner, advanced, leading

COUNT = 7


def quick(**settings: Any) -> Owner:
    """A leader who waits for nobody's next request before an entry leaves."""
    return leading(appending=AppendingLimits(writes_max=1, waits_for_disk=False), **settings)


def hurried() -> Owner:
    """A leader who is late whenever it looks."""
    owner = quick()
    owner.runtime.late_after = 1
    return owner


def asks(owner: Owner, action: int = Action.CONFIGURE, client: Any = None, **fields: Any) -> Execute:
    made = [Request(action, queue=f"q{number}", seq=number, **fields) for number in range(COUNT)]
    return Execute([Call(request, client or owner, 0, owner.asker) for request in made])


def told(owner: Owner, *messages: Any) -> None:
    """All of them are there before the owner has its next turn."""
    for message in messages:
        owner.actor.actor_ref.tell(message)
    owner.crank()


def settle(owner: Owner) -> None:
    """All that was made is committed, entry by entry."""
    while owner.actor._ledger.committed < owner.actor._ledger.state.trans_id:
        owner.appended()
        owner.advance(owner.actor._appender.machine.logged)


def stock(owner: Owner) -> None:
    """A message in each of the queues that `asks` is about."""
    for number in range(COUNT):
        owner.ask(Action.PRODUCE, queue=f"q{number}", data=b"1")
    settle(owner)
    owner.replies()


def seqs(owner: Owner) -> list[Any]:
    return [reply.seq for reply in owner.replies()]


def test_all_is_done_in_order_though_it_is_late_all_the_time() -> None:
    owner = hurried()
    told(owner, asks(owner, max_size=5))
    assert [record.queue for record in owner.appended()] == ["q0"], "one was done in the first turn"
    settle(owner)
    assert seqs(owner) == list(range(COUNT))


def test_what_comes_meanwhile_is_behind_what_was_put_off() -> None:
    owner = hurried()
    calls = asks(owner, Action.MONITOR)
    later = Execute([Call(Request(Action.MONITOR, queue="q", seq="last"), owner, 0, owner.asker)])
    told(owner, calls, later)
    assert seqs(owner) == [*range(COUNT), "last"]


def test_who_is_not_late_puts_nothing_off() -> None:
    owner = quick()
    owner.actor.actor_ref.tell(asks(owner, Action.MONITOR))
    owner.runtime._turns.popleft().take_turn()
    assert seqs(owner) == list(range(COUNT))


def test_a_former_leader_gives_back_what_it_has_put_off() -> None:
    owner = hurried()
    told(owner, asks(owner, max_size=5), Deposed(2, 1, 1))
    [returned] = owner.router.take(Returned)
    assert [call.request.seq for call in returned.calls] == list(range(1, COUNT))


def test_who_hands_over_does_it_first() -> None:
    """Given back, it stood behind what its clients had asked later."""
    owner = hurried()
    told(owner, asks(owner, max_size=5), Drain(5))
    settle(owner)
    assert seqs(owner) == list(range(COUNT))
    assert owner.router.take(Returned) == []
    assert owner.replicator.take(Drained) == [Drained(5)]


def test_a_consumer_that_has_ended_its_side_and_reads_on_takes_a_message_that_is_there() -> None:
    owner, client = hurried(), Somebody()
    stock(owner)
    owner.actor.actor_ref.tell(asks(owner, Action.CONSUME, client))
    client.has_left = True
    told(owner, ClientGone(client))
    settle(owner)
    assert all(reply.msg_id for reply in owner.replies())


def test_who_stops_refuses_it() -> None:
    owner = hurried()
    told(owner, asks(owner, max_size=5), Stop(ref(Probe())))
    refused = [reply.seq for reply in owner.replies() if reply.error == "stopping"]
    assert refused == list(range(1, COUNT))


def test_consumers_of_a_client_that_is_gone_meanwhile_take_nothing_and_wait_for_nothing() -> None:
    owner, client = hurried(), Somebody()
    stock(owner)
    client.has_left = client.is_gone = True
    told(owner, asks(owner, Action.CONSUME, client, wait=9.0), ClientGone(client))
    ready = [len(queue.ready) for queue in owner.actor._ledger.state.queues.values()]
    assert ready[1:] == [1] * (COUNT - 1)
    assert not delivery_of(owner.actor._broker).lines.named


def test_what_a_client_may_not_have_any_more_is_refused_though_it_was_admitted() -> None:
    owner, client = hurried(), Somebody()
    told(owner, asks(owner, Action.CONFIGURE, client, max_size=5), RightsChanged(client, Principal("w", Rights({}))))
    settle(owner)
    errors = {reply.seq: reply.error for reply in owner.replies()}
    assert errors == {number: None if number < 1 else "not_allowed" for number in range(COUNT)}


def test_a_node_that_does_not_lead_answers_what_is_asked_of_itself_in_turns_as_well() -> None:
    owner = Owner()
    owner.runtime.late_after = 1
    told(owner, asks(owner, Action.NODE_MONITOR))
    assert seqs(owner) == list(range(COUNT))


def test_what_is_committed_at_once_is_let_go_of_in_turns() -> None:
    owner = quick(commit_piece=2)
    for number in range(5):
        owner.ask(Action.PRODUCE, queue="q", data=b"1", seq=number)
    owner.actor.actor_ref.tell(advanced(6))
    turns: list[int] = []
    while owner.runtime._turns or not turns:
        owner.runtime._turns.popleft().take_turn()
        turns.append(len(owner.actor._ledger.state.queues["q"].ready))
    assert turns == [2]
    owner.crank()
    assert len(owner.actor._ledger.state.queues["q"].ready) == 5
    assert seqs(owner) == list(range(5))


def test_what_was_committed_before_the_lead_was_lost_is_answered_though_its_turn_had_not_come() -> None:
    owner = quick(commit_piece=1)
    for number in range(5):
        owner.ask(Action.PRODUCE, queue="q", data=b"1", seq=number)
    told(owner, advanced(6), Deposed(6, 6, 2))
    assert [(reply.seq, reply.error) for reply in owner.replies()] == [(number, None) for number in range(5)]


def in_one_turn(owner: Owner) -> None:
    """Take the turns that were asked for, and ring for none that are to come."""
    while owner.runtime._turns:
        owner.runtime._turns.popleft().take_turn()


def test_what_was_committed_when_the_lead_was_lost_is_let_go_of_in_turns() -> None:
    owner = quick(commit_piece=2)
    for number in range(5):
        owner.ask(Action.PRODUCE, queue="q", data=b"1", seq=number)
    owner.actor.actor_ref.tell(advanced(6))
    owner.actor.actor_ref.tell(Deposed(6, 6, 2))
    in_one_turn(owner)
    assert seqs(owner) == [0, 1, 2, 3], "a piece with each of the two messages"
    owner.crank()
    assert seqs(owner) == [4]


def test_what_lingers_does_not_leave_for_the_log_while_a_lost_lead_lets_go_of_what_is_committed() -> None:
    """It would count as sent, and what is certainly not done as unknown."""
    owner = quick(commit_piece=1)
    for number in range(COUNT):
        owner.ask(Action.PRODUCE, queue=f"q{number}", data=b"1", retry=60.0)
    settle(owner)
    owner.actor.actor_ref.tell(asks(owner, Action.CONSUME))
    in_one_turn(owner)
    appender: Any = owner.actor._appender
    assert appender._linger is not None, "deliveries, which nobody waits for"
    logged = appender.machine.logged
    owner.actor._ledger.committed -= 5
    owner.actor.actor_ref.tell(Deposed(logged, logged, 2))
    in_one_turn(owner)
    assert owner.actor._interlude.is_on
    assert appender._linger is None
    owner.crank(1.0)
    assert owner.appended() == []


def test_what_was_open_when_the_lead_was_lost_is_let_go_of_in_turns() -> None:
    owner = quick()
    made = [Request(Action.PRODUCE, queue="q", data=Raw(b"1"), seq=number) for number in range(2 * LET_GO_MAX)]
    told(owner, Execute([Call(request, owner, 0, owner.asker) for request in made]))
    told(owner, Execute([Call(request, owner, 0, owner.asker) for request in made]))
    owner.actor.actor_ref.tell(Deposed(1, 1, 2))
    in_one_turn(owner)
    first = owner.replies()
    assert [reply.error for reply in first] == ["unknown_outcome"] * LET_GO_MAX
    assert owner.router.take(Returned) == []
    owner.crank()
    assert [reply.seq for reply in [*first, *owner.replies()]] == [*range(2 * LET_GO_MAX)], "those that were logged"
    assert [len(message.calls) for message in owner.router.take(Returned)] == [LET_GO_MAX] * 2, "the others"


def of_another_leader() -> tuple[StoredEntry, int]:
    """An entry with so many records, each of which produces a message."""
    other = leading()
    made = [Request(Action.PRODUCE, queue="q", data=Raw(b"1")) for _ in range(20)]
    other.tell(Execute([Call(request, other, 0, other.asker) for request in made]))
    records = other.appended()
    [entry] = make_entries(5, 1, 1_800_000_000.0, records, 1 << 20)
    return entry, len(records)


def test_a_new_leader_applies_what_its_log_holds_beyond_the_commit_point_in_turns() -> None:
    entry, count = of_another_leader()
    owner = Owner()
    owner.runtime.late_after = 1
    owner.actor.actor_ref.tell(Promoted(6, [entry]))
    owner.actor.actor_ref.tell(asks(owner, Action.MONITOR))
    in_one_turn(owner)
    assert 0 < len(owner.actor._ledger.state.messages) < count
    owner.crank()
    assert owner.appended() == [Lead("", 1)]
    assert len(owner.actor._ledger.state.messages) == count
    owner.advance(count + 1)
    assert seqs(owner) == list(range(COUNT)), "what was asked meanwhile is done when it leads"


def test_who_hands_over_says_so_when_all_that_is_committed_was_let_go_of() -> None:
    owner = quick(commit_piece=1)
    for number in range(5):
        owner.ask(Action.PRODUCE, queue="q", data=b"1", seq=number)
    told(owner, Drain(5), advanced(6))
    assert seqs(owner) == list(range(5))
    assert owner.replicator.take(Drained) == [Drained(5)]


def test_a_follower_applies_what_is_committed_in_turns_and_answers_behind_it() -> None:
    entry, count = of_another_leader()
    owner = Owner()
    owner.runtime.late_after = 1
    told(owner, Apply([entry]), Execute([Call(Request(Action.NODE_MONITOR, queue="q"), owner, 0, owner.asker)]))
    [reply] = owner.replies()
    assert isinstance(reply, MonitorReply)
    assert reply.ready == 20
    assert len(owner.actor._ledger.state.messages) == count
    assert owner.actor._view.committed == count


def test_clients_without_a_token_yield_to_all_others() -> None:
    owner = hurried()
    nobody = Principal(ANONYMOUS, Rights({"look": ["*"]}))
    stranger, known = Somebody(), Somebody()

    def call(seq: int, client: Any, principal: Principal) -> Call:
        return Call(Request(Action.MONITOR, queue="q", seq=seq), client, 0, owner.asker, principal=principal)

    mine = [call(number, stranger, nobody) for number in range(3)]
    others = [call(number, known, ITSELF) for number in range(10, 13)]
    has_shown_a_token = call(3, stranger, ITSELF)
    told(owner, Execute(mine), Execute([*others, has_shown_a_token]))
    done = seqs(owner)
    assert [seq for seq in done if seq < 10] == [0, 1, 2, 3], "each client's are done in their order"
    assert [seq for seq in done if seq >= 10] == [10, 11, 12]
    assert done.index(12) < done.index(3)


def test_what_is_put_off_is_put_back_in_its_order() -> None:
    put_off, owner = PutOff(), Owner()
    calls = [Call(Request(1, seq=number), Somebody(), 0, owner.asker) for number in range(AT_ONCE * 2)]
    put_off.add(calls)
    first = put_off.take()
    assert first == calls[:AT_ONCE]
    put_off.put_first(first[10:])
    assert put_off.take() == calls[10 : 10 + AT_ONCE]
    assert put_off.take_all() == calls[10 + AT_ONCE :]
    assert not put_off.has_any


def test_who_waits_for_nothing_now_may_ask_again() -> None:
    """A node that is leaving says so of clients that stay, and what they asked later was answered empty."""
    owner, client = hurried(), Somebody()
    stock(owner)
    later = Execute([Call(Request(Action.CONSUME, queue="q6", seq="later"), client, 0, owner.asker)])
    told(owner, asks(owner, Action.CONSUME, client, wait=9.0), ClientGone(client), later)
    settle(owner)
    found = {reply.seq: reply.msg_id for reply in owner.replies()}
    assert found["later"]
    assert [number for number in range(COUNT) if found[number]] == [0], "the others were put off, and wait for nothing"


UNKNOWN, KNOWN = Principal(ANONYMOUS, ITSELF.rights), Principal("known", ITSELF.rights)


def call_of(
    owner: Owner, client: Any, principal: Principal, seq: Any, action: int = Action.MONITOR, **fields: Any
) -> Call:
    request = Request(action, queue="q", seq=seq, **fields)
    return Call(request, client, 0, owner.asker, principal=principal)


class Ticking:
    """A clock that goes on by so much whenever it is looked at, and with the runtime's."""

    def __init__(self, owner: Owner, tick_s: float) -> None:
        self._runtime = owner.runtime
        self._tick_s = tick_s
        self.ticked = 0.0
        owner.actor._admission._part._clock = self

    def __call__(self) -> float:
        self.ticked += self._tick_s
        return self._runtime.time + self.ticked


def leave(*clients: Any) -> list[ClientGone]:
    for client in clients:
        client.has_left = client.is_gone = True
    return [ClientGone(client) for client in clients]


def test_strangers_that_leave_at_one_moment_are_forgotten_in_turns_and_others_are_heard_between() -> None:
    """Seven hundred of them with sixty waits each were 0.3 s, and whoever came behind them waited for as long."""
    owner = quick()
    clients = [Somebody() for _ in range(COUNT)]
    for client in clients:
        calls = [call_of(owner, client, UNKNOWN, seq, Action.CONSUME, wait=9.0) for seq in range(COUNT)]
        told(owner, Execute(calls))
    assert len(delivery_of(owner.actor._broker).lines) == COUNT * COUNT
    Ticking(owner, SLICE_S)
    told(owner, *leave(*clients), Execute([call_of(owner, owner, KNOWN, "known")]))
    seen = seqs(owner)
    assert seen[0] == "known", "it waits for none of them"
    assert len(seen) < COUNT * COUNT, "and they have to wait for their part of the time"
    owner.crank(COUNT * SLICE_S / SHARE)
    assert len(seen) + len(seqs(owner)) == COUNT * COUNT + 1
    assert not delivery_of(owner.actor._broker).lines


def test_known_clients_that_leave_and_those_that_wait_for_nothing_are_forgotten_at_once() -> None:
    owner, known, stranger = quick(), Somebody(), Somebody()
    told(owner, Execute([call_of(owner, known, KNOWN, 1, Action.CONSUME, wait=9.0)]))
    told(owner, Execute([call_of(owner, stranger, UNKNOWN, 2)]))
    Ticking(owner, SLICE_S * 2)
    for message in leave(known, stranger):
        owner.actor.actor_ref.tell(message)
    in_one_turn(owner)
    assert not owner.actor._admission._departures.has_any
    assert not delivery_of(owner.actor._broker).lines


def test_departures_keep_pace_while_strangers_ask() -> None:
    owner, crowd = quick(), [Somebody() for _ in range(20)]
    waiting = [Somebody() for _ in range(300)]
    for one in waiting:
        told(owner, Execute([call_of(owner, one, UNKNOWN, 0, Action.CONSUME, wait=9.0)]))
    assert len(delivery_of(owner.actor._broker).lines) == len(waiting)
    Ticking(owner, 30e-6)
    for one in waiting:
        told(owner, Execute([call_of(owner, owner, KNOWN, 0)]))
        told(owner, *leave(one), *[Execute([call_of(owner, who, UNKNOWN, 1)]) for who in crowd])
        owner.crank(0.001)
    assert len(owner.actor._admission._departures._gone) < 10
    assert owner.actor._admission._put_off.has_strangers


def test_who_comes_waits_though_those_that_left_are_in_line_still() -> None:
    owner, gone, client = quick(), Somebody(), Somebody()
    owner.actor._broker.set_limits(Limits(waiters_max=4 * COUNT))
    told(owner, Execute([call_of(owner, gone, UNKNOWN, seq, Action.CONSUME, wait=9.0) for seq in range(COUNT)]))
    lines = delivery_of(owner.actor._broker).lines
    assert (lines.named, lines.named_by_strangers) == (COUNT, COUNT)
    for message in leave(gone):
        owner.actor.actor_ref.tell(message)
    in_one_turn(owner)
    assert (len(lines), lines.named, lines.named_by_strangers) == (COUNT, 0, 0)
    waits = [call_of(owner, client, KNOWN, seq, Action.CONSUME, wait=9.0) for seq in range(COUNT)]
    told(owner, Execute(waits))
    assert [reply.error for reply in owner.replies()] == [None] * COUNT, "those that left"
    assert (len(lines), lines.named, lines.named_by_strangers) == (COUNT, COUNT, 0)


def test_what_a_turn_had_no_time_for_stands_before_what_was_put_off_behind_it() -> None:
    owner = hurried()
    for first in (0, AT_ONCE, 2 * AT_ONCE):
        calls = [call_of(owner, owner, KNOWN, seq) for seq in range(first, first + AT_ONCE)]
        owner.actor.actor_ref.tell(Execute(calls))
    owner.crank()
    assert seqs(owner) == [*range(3 * AT_ONCE)]


def serving() -> OwnerStage:
    stage = OwnerStage()
    stage.named(0)
    stage.promoted(5, 1)
    assert stage.committed(1)
    assert stage.caught_up()
    return stage


def admission_of(stage: OwnerStage, clock: Callable[[], float]) -> Admission:
    admission = Admission(stage, clock)
    admission.ledger = Ledger(ShardState())
    admission.jobs = Jobs(admission.ledger, 1)
    return admission


def test_what_waited_until_the_node_serves_stands_before_what_was_put_off() -> None:
    owner, admission = Owner(), admission_of(serving(), lambda: 0.0)
    first, second, third = [[call_of(owner, owner, KNOWN, seq)] for seq in range(3)]
    admission.put_off(second)
    admission.hold(first)
    assert admission.admit(third) == [*first, *second, *third]


def test_consumers_that_are_given_back_are_out_of_their_lines() -> None:
    """To drop the lines with tens of thousands in them was 15 ms at once."""
    owner = quick()
    told(owner, Execute([call_of(owner, owner, KNOWN, seq, Action.CONSUME, wait=9.0) for seq in range(COUNT)]))
    lines = delivery_of(owner.actor._broker).lines
    told(owner, Drain(5))
    assert [len(message.calls) for message in owner.router.take(Returned)] == [COUNT]
    assert not len(lines)


def test_a_client_that_has_shown_its_token_is_done_behind_what_it_asked_before() -> None:
    """Also where the node was about to hand over in between, and took some of what was put off to be held."""
    stage = serving()
    owner, now = Owner(), [0.0]

    def clock() -> float:
        now[0] += 1e-4
        return now[0]

    admission, client, crowd, done = admission_of(stage, clock), Somebody(), Somebody(), list[Call]()
    admission.put_off([call_of(owner, crowd, UNKNOWN, number) for number in range(100, 160)])
    admission.put_off([call_of(owner, client, UNKNOWN, 1)])
    admission.put_off([call_of(owner, owner, KNOWN, number) for number in range(200, 400)])
    assert stage.drain(5)
    assert stage.undrain()
    assert admission.admit([]) == []
    assert admission.admit([call_of(owner, client, KNOWN, 2)]) == []
    assert stage.caught_up()
    while admission.has_more or admission._held:
        done.extend(admission.admit([]))
        admission.execute_strangers(owner.actor._broker, done.append, lambda: False)
    assert [call.request.seq for call in done if call.client is client] == [1, 2]


def test_who_hands_over_says_so_when_those_that_wait_were_given_back() -> None:
    owner = quick()
    clients = [Somebody() for _ in range(2 * LET_GO_MAX)]
    told(owner, Execute([call_of(owner, one, KNOWN, 0, Action.CONSUME, wait=9.0) for one in clients]))
    owner.actor.actor_ref.tell(Drain(5))
    in_one_turn(owner)
    assert owner.replicator.take(Drained) == []
    owner.crank()
    assert owner.replicator.take(Drained) == [Drained(5)]
    assert sum(len(message.calls) for message in owner.router.take(Returned)) == 2 * LET_GO_MAX


def test_a_consumer_that_is_gone_before_its_turn_takes_nothing() -> None:
    owner, client = quick(), Somebody()
    stock(owner)
    request = Request(Action.CONSUME, queue="q1", wait=5.0)
    told(owner, *leave(client), Execute([Call(request, client, 0, owner.asker)]))
    settle(owner)
    assert [reply.msg_id for reply in owner.replies()] == [None]


def test_strangers_have_a_tenth_of_the_time_while_others_ask_and_all_of_it_else() -> None:
    owner, stranger = quick(), Somebody()
    clock = Ticking(owner, SLICE_S)
    done = 0
    for _ in range(100):
        told(owner, Execute([call_of(owner, owner, KNOWN, "known")]))
        told(owner, Execute([call_of(owner, stranger, UNKNOWN, 0) for _ in range(5)]))
        begun = clock.ticked
        owner.crank(0.01)
        clock.ticked = begun  # time is what is cranked: what was done is reckoned all the same
        done += len([seq for seq in seqs(owner) if seq != "known"])
    assert done * SLICE_S == pytest.approx(SHARE * 1.0, rel=0.5)
    owner.crank(OTHERS_S)
    before = owner.runtime.time
    owner.crank(0.1)
    assert not owner.actor._admission.has_more, "nobody else asks"
    assert owner.runtime.time == before + 0.1


def test_what_strangers_have_no_time_for_does_not_turn_the_loop() -> None:
    owner, stranger = quick(), Somebody()
    told(owner, Execute([call_of(owner, owner, KNOWN, "known")]))
    Ticking(owner, SLICE_S)
    told(owner, Execute([call_of(owner, stranger, UNKNOWN, seq) for seq in range(10)]))
    timers = [timer.at - owner.runtime.time for timer in owner.runtime._timers if timer.callback is not None]
    assert len(seqs(owner)) == 2
    assert min(timers) > SLICE_S, "it is looked at again when they have time"


def test_work_that_is_for_now_does_not_wait_for_strangers_time() -> None:
    owner = quick()
    rung: list[str] = []
    pieces = Pieces(owner.runtime, lambda: rung.append("now"))
    pieces.ask(5.0)
    pieces.ask(0.0)
    owner.crank(0.001)
    assert rung == ["now"]
    owner.crank(6.0)
    assert rung == ["now"], "it was asked for once"
    pieces.ask(0.5)
    owner.crank(1.0)
    assert len(rung) == 2
