"""Where requests go, and what is said when their answers can't come."""

from typing import Any

import pykka
import pytest
from msgspec import Raw

import quorate_compiled
from actors.gateway.routing import GIVE_UP_MAX, HOLD_S, LAST_S, LOOK_MAX, PATIENCE_MAX, RETURN_S, Routing
from actors.gateway.under_way import ANSWER_S, CREDIT_BYTES, LONG_LOOK_BYTES, LOOKS_SHARE, ForwardedClient
from actors.messages.call import Call
from actors.messages.peers import LeaderChanged
from actors.messages.rights import Principal, Rights
from net.clients.reply_length import reply_length
from net.protocols import BESIDE
from quorate.protocol import Action, Reply, Request
from tests.cost import lines_of


class _Nobody(pykka.ThreadingActor):
    pass


NOBODY: "pykka.ActorRef[Any]" = _Nobody().actor_ref
OTHER = LeaderChanged(2, False, "b", 22)


class Somebody:
    has_left = is_gone = False
    has_ended = False
    protocol = ""

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        raise AssertionError


def call(action: int = 1, client: Somebody | None = None, *, is_single: bool = False, **fields: Any) -> Call:
    return Call(Request(action, **fields), client or Somebody(), 0, NOBODY, is_single=is_single)


def following(*, forwards: bool = True) -> Routing:
    routing = Routing(forwards=forwards)
    routing.leader_changed(0.0, OTHER)
    routing.linked(0.0, 2)
    return routing


def test_a_leader_keeps_everything() -> None:
    routing = Routing(forwards=True)
    routing.leader_changed(0.0, LeaderChanged(1, True))
    assert len(routing.route(0.0, [call(), call(Action.MONITOR)]).own) == 2
    assert routing.is_direct


@pytest.mark.parametrize("action", [8, 14, 104, 107, 108, 115])
def test_what_asks_about_this_node_stays_here(action: int) -> None:
    assert len(following().route(0.0, [call(action)]).own) == 1


def test_who_leads_is_answered_when_it_is_known() -> None:
    routing = Routing(forwards=True)
    assert routing.route(0.0, [call(Action.LEADER)]).own == []
    assert len(routing.leader_changed(0.5, OTHER).own) == 1
    assert [reply.error for _, reply in held_for_nobody(Routing(forwards=True))] == ["no_leader"]


def held_for_nobody(routing: Routing) -> Any:
    routing.route(0.0, [call(Action.LEADER)])
    return routing.tick(HOLD_S).answers


def test_a_follower_forwards_and_the_answer_finds_its_call() -> None:
    routing = following()
    asked = call()
    routed = routing.route(0.0, [asked])
    assert routed.forwards[0].to == 2
    reply = Reply(action=1, code=0)
    assert routing.under_way.answered(3, routed.forwards[0].serial, reply) == [], "it was not asked"
    routing.came_back(0.0, 3, [routed.forwards[0].serial])
    assert routing.under_way.answered(2, routed.forwards[0].serial, reply) == [(asked, reply)]
    assert routing.under_way.answered(2, routed.forwards[0].serial, reply) == []


def test_a_follower_that_does_not_forward_says_where_the_leader_is() -> None:
    reply: Any = following(forwards=False).route(0.0, [call()]).answers[0][1]
    assert (reply.code, reply.leader_node_id, reply.leader_host, reply.leader_port) == (-2, 2, "b", 22)


def test_requests_wait_for_a_leader_and_are_refused_when_none_comes() -> None:
    routing = Routing(forwards=True)
    routing.route(0.0, [call(), call()])
    assert routing.tick(HOLD_S - 0.1).answers == []
    assert [reply.error for _, reply in routing.tick(HOLD_S).answers] == ["no_leader", "no_leader"]
    routing.route(5.0, [call()])
    routing.linked(0.0, 2)
    assert len(routing.leader_changed(6.0, OTHER).forwards) == 1


def test_a_leader_that_hands_over_holds_what_comes() -> None:
    routing = Routing(forwards=True)
    routing.leader_changed(0.0, LeaderChanged(1, True))
    routing.drain()
    assert routing.route(0.0, [call()]).own == []
    assert len(routing.undrain(0.1).own) == 1


def test_when_the_leader_is_lost_what_may_be_done_is_unknown_and_what_looks_is_asked_again() -> None:
    routing = following()
    routing.route(0.0, [call(Action.PRODUCE), call(Action.CONSUME), call(Action.MONITOR)])
    routing.link_lost(1.0, 2)
    assert [reply.error for _, reply in routing.tick(1.0).answers] == ["unknown_outcome"] * 2
    assert len(routing.tick(1.0 + RETURN_S).forwards) == 1


def test_what_came_back_undone_is_tried_again_until_its_time_is_over() -> None:
    routing = following()
    serial = routing.route(0.0, [call()]).forwards[0].serial
    now = 0.0
    for _ in range(3):
        routing.came_back(now, 2, [serial])
        now += RETURN_S
        serial = routing.tick(now).forwards[0].serial


def test_a_leader_that_never_answers_leaves_the_outcome_unknown() -> None:
    routing = following()
    routing.route(0.0, [call(Action.CONSUME, wait=5.0)])
    assert routing.tick(ANSWER_S + 4.9).answers == []
    assert [reply.error for _, reply in routing.tick(ANSWER_S + 5.1).answers] == ["unknown_outcome"]
    routing.route(20.0, [call()])
    routing.leader_changed(20.0, LeaderChanged(3, False, "c", 33))
    assert [reply.error for _, reply in routing.tick(20.0 + LAST_S).answers] == ["unknown_outcome"]


def test_a_client_has_one_number_and_a_datagram_none() -> None:
    routing = following()
    client = Somebody()
    first, second, single = routing.route(
        0.0, [call(client=client), call(client=client), call(is_single=True)]
    ).forwards
    assert first.client == second.client == 1
    assert single.client == 0
    assert routing.under_way.known(client) == [ForwardedClient(1, 2)], "it may only have ended its side"
    assert routing.under_way.client_gone(client) == [ForwardedClient(1, 2)]
    assert routing.under_way.client_gone(client) == []


def test_what_did_not_leave_this_node_is_not_unknown() -> None:
    routing = following()
    first, second = routing.route(0.0, [call(), call()]).forwards
    routing.link_lost(1.0, 2, first.serial)
    assert [answer[0] for answer in routing.tick(1.0).answers] == [first.call]
    assert [one.call for one in routing.linked(1.0 + RETURN_S, 2).forwards] == [second.call]


def test_a_request_waits_for_the_link_to_a_leader_that_is_known() -> None:
    routing = Routing(forwards=True)
    routing.leader_changed(0.0, OTHER)
    assert routing.route(0.0, [call()]).forwards == []
    assert len(routing.linked(0.5, 2).forwards) == 1


def test_what_a_worker_of_this_node_was_asked_as_the_leader_is_given_up_when_another_leads() -> None:
    sibling = -2
    routing = Routing(forwards=True, sibling=sibling)
    routing.linked(0.0, sibling)
    routing.leader_changed(0.0, LeaderChanged(sibling, False))
    asked = [call(Action.CONSUME), call(Action.NODE_STATUS)]
    assert [one.to for one in routing.route(0.0, asked).forwards] == [sibling, sibling]
    routing.leader_changed(0.5, LeaderChanged(-2 - 3 * 1024, False))
    routed = routing.tick(2.0)
    assert [(one.request.action, reply.error) for one, reply in routed.answers] == [(2, "unknown_outcome")]
    assert routing.tick(9.0).answers == [], "its own view is still that worker's to tell"


def test_who_came_in_by_a_listener_that_is_secured_otherwise_is_forwarded_and_not_sent_away() -> None:
    somebody = Somebody()
    somebody.protocol = "json" + BESIDE
    beside = call(1, somebody)
    routed = following(forwards=False).route(0.0, [call(), beside])
    assert [reply.error for _, reply in routed.answers] == ["redirect"]
    assert [one.call for one in routed.forwards] == [beside]


def test_nobody_is_sent_to_a_leader_whose_address_is_not_known() -> None:
    routing = Routing(forwards=False)
    routing.leader_changed(0.0, LeaderChanged(2, False))
    routed = routing.route(0.0, [call(), call(Action.LEADER)])
    assert routed == type(routed)()
    known = routing.leader_changed(0.5, OTHER)
    assert [reply.error for _, reply in known.answers] == ["redirect"]
    assert [one.request.action for one in known.own] == [8]


def test_a_client_that_is_gone_gets_its_held_requests_done_but_takes_no_message() -> None:
    routing = Routing(forwards=True)
    client = Somebody()
    routing.route(0.0, [call(Action.PRODUCE, client), call(Action.CONSUME, client), call(Action.CONSUME)])
    client.has_left = client.is_gone = True
    assert [(one.request.action, reply.code) for one, reply in routing.forget(client)] == [(2, 0)]
    done = routing.leader_changed(1.0, LeaderChanged(1, True, "a", 1)).own
    assert [one.request.action for one in done] == [1, 2]


def test_a_client_that_reads_on_is_served_what_is_there_but_waits_for_nothing() -> None:
    routing = Routing(forwards=True)
    client = Somebody()
    asked = call(Action.CONSUME, client, wait=60.0)
    taken_for = reply_length(asked.request)
    routing.route(0.0, [asked])
    client.has_left = True
    assert routing.forget(client) == []
    [served] = routing.leader_changed(1.0, LeaderChanged(1, True, "a", 1)).own
    assert served.request.wait is not None
    assert served.request.wait < 0.01
    assert reply_length(served.request) == taken_for, "its connection counts it as what it was taken for"


def test_nothing_is_forwarded_or_remembered_for_clients_that_had_gone_before() -> None:
    routing = Routing(forwards=True)
    for _ in range(10):
        client = Somebody()
        routing.route(0.0, [call(Action.PRODUCE, client)])
        client.has_left = client.is_gone = True
        routing.forget(client)
    routing.linked(0.5, 2)
    routed = routing.leader_changed(0.5, OTHER)
    assert routed.forwards == []
    assert [reply.error for _, reply in routed.answers] == ["given_up"] * 10
    assert routing.under_way.clients == []


def test_a_consumer_that_comes_back_after_its_client_has_gone_takes_no_message() -> None:
    routing = following()
    client = Somebody()
    serial = routing.route(0.0, [call(Action.CONSUME, client, wait=60.0)]).forwards[0].serial
    client.has_left = client.is_gone = True
    routing.came_back(0.0, 2, [serial])
    routed = routing.tick(RETURN_S)
    assert (len(routed.forwards), [reply.code for _, reply in routed.answers]) == (0, [0])


def test_who_leaves_is_said_to_the_node_that_has_its_calls_also_when_nobody_leads() -> None:
    routing = following()
    client = Somebody()
    routing.route(0.0, [call(Action.CONSUME, client, wait=60.0)])
    routing.leader_changed(0.1, LeaderChanged(0, False))
    assert routing.under_way.client_gone(client) == [ForwardedClient(1, 2)]


def test_a_clients_requests_stay_in_their_order_while_the_first_of_them_is_held() -> None:
    routing = following()
    client = Somebody()
    serial = routing.route(0.0, [call(Action.PRODUCE, client)]).forwards[0].serial
    routing.came_back(0.0, 2, [serial])
    assert routing.route(0.0, [call(Action.MONITOR, client)]).forwards == [], "it would overtake the first"
    assert len(routing.route(0.0, [call(Action.MONITOR)]).forwards) == 1
    assert [one.call.request.action for one in routing.tick(RETURN_S).forwards] == [1, 4]


def test_what_an_owner_gives_back_stands_before_what_its_client_asked_later() -> None:
    """A lost lead gave put-off requests back in pieces, behind those that were held here since it was known."""
    routing, client = Routing(forwards=True), Somebody()
    routing.leader_changed(0.0, LeaderChanged(0, False, "", 0))
    asked = [call(Action.MONITOR, client, seq=number) for number in range(6)]
    others = [call(Action.MONITOR, seq="another's") for _ in range(2)]
    routing.route(0.0, [others[0], asked[4]])
    routing.returned(0.0, asked[:2])
    routing.route(0.0, [asked[5], others[1]])
    routing.returned(0.0, asked[2:4])
    routing.leader_changed(0.0, OTHER)
    routing.linked(0.0, 2)
    seqs = [one.call.request.seq for one in routing.tick(RETURN_S).forwards]
    assert [seq for seq in seqs if seq != "another's"] == [*range(6)]


def test_what_comes_back_twice_stands_before_what_came_back_once() -> None:
    routing, client = following(), Somebody()
    routing.returned(0.0, [call(Action.MONITOR, client, seq=1)])
    routing.returned(RETURN_S / 2, [call(Action.MONITOR, client, seq=2)])
    [first] = routing.tick(RETURN_S).forwards
    routing.came_back(RETURN_S, 2, [first.serial])
    assert routing.tick(RETURN_S * 1.6).forwards == []
    assert [one.call.request.seq for one in routing.tick(RETURN_S * 3).forwards] == [1, 2]


def test_a_request_says_for_how_long_it_waits_for_a_leader() -> None:
    routing = Routing(forwards=True)
    routing.route(0.0, [call(patience=0.5), call(patience=60.0)])
    assert len(routing.tick(0.5).answers) == 1
    assert len(routing.tick(HOLD_S).answers) == 0


def test_many_held_requests_cost_no_more_than_few_each() -> None:
    """Counted, not timed: how often a client is compared (review 4.8, history: held clients are quadratic)."""
    compared = 0

    class Counting(Somebody):
        def __hash__(self) -> int:
            nonlocal compared
            compared += 1
            return id(self)

    routing = Routing(forwards=True)
    calls = [call(client=Counting()) for _ in range(2000)]
    routing.route(0.0, calls)
    routing.leader_changed(1.0, LeaderChanged(1, True, "a", 1))
    assert compared < 2000 * 10


def large(client: Somebody | None = None, size: int = 4000) -> Call:
    return call(Action.PRODUCE, client, queue="q", data=Raw(b'"' + b"x" * size + b'"'))


def has_credit(routing: Routing) -> bool:
    return routing.under_way.has_credit


def test_beyond_its_credit_a_node_is_sent_nothing_and_what_waits_goes_in_order_when_there_is_some() -> None:
    """Requests without end for one node filled the link to it, which was cut, with everybody's requests on it."""
    routing = Routing(forwards=True, credit_bytes=10_000)
    routing.leader_changed(0.0, OTHER)
    routing.linked(0.0, 2)
    one, other = Somebody(), Somebody()
    asked = [large(one), large(other), large(one), call(Action.CONFIRM, one, msg_id=5), large(other)]
    sent = routing.route(0.0, asked).forwards
    assert [forward.call for forward in sent] == asked[:2]
    assert routing.route(0.0, [large(Somebody(), 100_000)]).forwards == [], "and so has every other client to wait"
    assert not has_credit(routing)
    for forward in sent:
        routing.under_way.answered(2, forward.serial, Reply(action=1, code=0))
    assert has_credit(routing)
    assert [forward.call for forward in routing.credit_again(0.1).forwards] == [asked[2], asked[3], asked[4]]
    [late] = routing.tick(HOLD_S).answers
    assert late[1].error == "overloaded"
    assert "was not done" in str(late[1].reason)


def test_who_only_looks_has_a_part_of_the_credit_and_keeps_nobody_waiting_who_works() -> None:
    """Four peeks of strangers were all of it, and a produce of 500 bytes stood behind theirs without end."""
    routing = following()
    looks = [call(Action.PEEK, queue="public", count=1000) for _ in range(50)]
    sent = routing.route(0.0, looks).forwards
    assert sum(forward.call.request.action == 11 for forward in sent) == CREDIT_BYTES * LOOKS_SHARE // LONG_LOOK_BYTES
    work = [large(), call(Action.CONFIRM, msg_id=5), call(Action.CONSUME, queue="q", count=10)]
    assert [forward.call for forward in routing.route(0.0, work).forwards] == work
    routing.under_way.answered(2, sent[0].serial, Reply(action=11, code=0))
    assert has_credit(routing), "the next may look"
    again = routing.credit_again(0.1).forwards
    assert [forward.call for forward in again] == [looks[len(sent)]]
    alone = Routing(forwards=True, credit_bytes=1000)
    alone.leader_changed(0.0, OTHER)
    alone.linked(0.0, 2)
    assert len(alone.route(0.0, [call(Action.PEEK, queue="public", count=1000)]).forwards) == 1, "one may always"


def test_consumers_that_wait_there_keep_nobody_waiting_who_works() -> None:
    """Sixty-four that waited for a thousand queues each were all of the credit, for an hour."""
    routing = following()
    names = [f"q{number}" for number in range(1000)]
    waits = [call(Action.CONSUME, queues=names, wait=3600.0) for _ in range(100)]
    sent = routing.route(0.0, waits).forwards
    assert 60 < len(sent) < 70
    work = [large(), call(Action.CONFIRM, msg_id=5), call(Action.MONITOR, queue="q")]
    assert [forward.call for forward in routing.route(0.0, work).forwards] == work
    other = following()
    assert len(other.route(0.0, [call(Action.CONSUME, queue="q", wait=60.0) for _ in range(50_000)]).forwards) == 50_000


def test_those_that_waited_for_too_long_are_told_some_at_a_time() -> None:
    """Thousands whose patience ends at one moment took a third of a second."""
    routing = Routing(forwards=True)
    count = 2 * GIVE_UP_MAX + 10
    routing.route(0.0, [call(Action.PRODUCE, patience=1.0) for _ in range(count)])
    told = []
    while routing.next_at <= 1.0:
        told.append(len(routing.tick(1.0).answers))
    assert sum(told) == count
    assert max(told) == GIVE_UP_MAX
    assert not routing.has_open


def test_answers_that_are_missing_are_told_some_at_a_time() -> None:
    routing = Routing(forwards=True, credit_bytes=1 << 30)
    routing.leader_changed(0.0, OTHER)
    routing.linked(0.0, 2)
    count = 2 * GIVE_UP_MAX + 10
    routing.route(0.0, [call(Action.PRODUCE, queue="q", data=Raw(b"1")) for _ in range(count)])
    told = []
    while routing.has_open:
        told.append(len(routing.tick(1000.0).answers))
    assert sum(told) == count
    assert max(told) == GIVE_UP_MAX


def test_one_request_may_always_be_under_way_however_large() -> None:
    routing = Routing(forwards=True, credit_bytes=1000)
    routing.leader_changed(0.0, OTHER)
    routing.linked(0.0, 2)
    assert len(routing.route(0.0, [large(size=100_000)]).forwards) == 1


def test_a_large_request_has_the_time_that_a_slow_link_takes_for_it() -> None:
    routing = following()
    routing.route(0.0, [large(size=4 << 20)])
    assert routing.tick(ANSWER_S + 15.0).answers == []
    assert [reply.error for _, reply in routing.tick(ANSWER_S + 17.0).answers] == ["unknown_outcome"]


def test_a_request_is_held_for_some_elections_however_patient_it_says_it_is() -> None:
    routing = Routing(forwards=True, hold_s=2.0)
    routing.route(0.0, [call(Action.PRODUCE, patience=31_536_000.0), call(Action.PRODUCE, patience=1.0)])
    assert len(routing.tick(1.0).answers) == 1
    assert routing.tick(2.0 * PATIENCE_MAX - 0.1).answers == []
    assert len(routing.tick(2.0 * PATIENCE_MAX).answers) == 1


def test_a_consumer_whose_leader_goes_waits_on_at_the_next_for_all_that_is_left_of_its_time() -> None:
    """It was asked for again with a wait of nothing, and came back empty at once."""
    routing = following()
    [sent] = routing.route(0.0, [call(Action.WATCH, queue="q", wait=60.0)]).forwards
    routing.leader_changed(5.0, LeaderChanged(3, False, "c", 33))
    routing.link_lost(5.5, 2, 0)
    again = routing.linked(6.0, 3).forwards
    assert [round(one.call.request.wait or 0.0, 3) for one in again] == [54.5]
    routing.came_back(7.0, 3, [again[0].serial])
    assert [round(one.call.request.wait or 0.0, 3) for one in routing.tick(7.1).forwards] == [53.5]
    assert sent.call is again[0].call


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_was_held_is_forwarded_for_a_half_closed_client_unless_it_sets_something(is_gone: bool) -> None:
    routing = Routing(forwards=True)
    client = Somebody()
    routing.route(0.0, [call(Action.CONFIGURE, client, queue="q"), call(Action.PRODUCE, client, queue="q")])
    client.has_left, client.is_gone = True, is_gone
    routing.leader_changed(1.0, OTHER)
    routed = routing.linked(1.0, 2)
    assert [one.call.request.action for one in routed.forwards] == ([] if is_gone else [1])
    assert [reply.error for _, reply in routed.answers] == ["given_up"] * (2 if is_gone else 1)


def test_what_a_half_closed_client_asked_in_time_is_forwarded_whatever_it_is() -> None:
    routing, client = following(), Somebody()
    client.has_left = True
    routed = routing.route(0.0, [call(Action.CLEAR, client, queue="q"), call(Action.PRODUCE, client, queue="q")])
    assert [one.call.request.action for one in routed.forwards] == [6, 1]


def test_who_is_judged_anew_has_another_number_and_both_are_told_of_its_end() -> None:
    routing, client = following(), Somebody()
    routing.route(0.0, [call(Action.CONSUME, client, queue="q", wait=9.0)])
    [former] = routing.rejudged(client, Principal("w", Rights({})))
    [again] = routing.route(0.1, [call(Action.PRODUCE, client, queue="q")]).forwards
    assert (former.number, again.client) == (1, 2)
    assert [one.number for one in routing.under_way.client_gone(client)] == [1, 2]


def test_very_many_held_requests_go_on_some_at_a_time_in_their_order() -> None:
    routing = Routing(forwards=True)
    asked = [call(Action.PRODUCE) for _ in range(LOOK_MAX * 2 + 5)]
    routing.route(0.0, asked)
    went = routing.leader_changed(1.0, LeaderChanged(1, True)).own
    assert len(went) == LOOK_MAX
    while routing.has_open:
        assert routing.next_at == 1.0
        went += routing.tick(1.0).own
    assert went == asked


def test_a_consumer_that_comes_back_while_its_node_stops_is_told_so() -> None:
    """It was forwarded to the next leader behind the word that its client waits no longer, and hung there."""
    routing = following()
    consumer, producer = call(Action.CONSUME, queue="q", wait=9.0), call(Action.PRODUCE)
    routing.end_waits("stopping")
    routing.returned(0.0, [consumer, producer])
    routed = routing.tick(RETURN_S)
    assert [(asked, reply.error) for asked, reply in routed.answers] == [(consumer, "stopping")]
    assert [one.call for one in routed.forwards] == [producer]


def test_who_has_lost_the_right_while_the_request_was_elsewhere_is_told_so() -> None:
    routing = following()
    client: Any = Somebody()
    asked, allowed = call(Action.CONSUME, client, queue="q", wait=9.0), call(Action.MONITOR, client, queue="q")
    client.principal = Principal("w", Rights({"look": ["*"]}))
    routing.returned(0.0, [asked, allowed])
    routed = routing.tick(RETURN_S)
    assert [(one, reply.error) for one, reply in routed.answers] == [(asked, "not_allowed")]
    assert [one.call for one in routed.forwards] == [allowed]


@pytest.mark.skipif(quorate_compiled.running() == "compiled", reason="compiled code has no lines")
@pytest.mark.parametrize("is_held", [True, False])
def test_what_a_client_ends_costs_the_same_however_many_others_wait(is_held: bool) -> None:
    """Each cancel went through all that waited: 8,000 of them with 48,000 waiting were a turn of 1.3 s."""
    costs = []
    for count in (10, 3000):
        routing = Routing(forwards=True) if is_held else following()
        clients = [Somebody() for _ in range(count)]
        for client in clients:
            routing.route(0.0, [call(Action.CONSUME, client, queue="q", wait=60.0, seq=1, patience=60.0)])
        client = clients[-1]
        cancel = call(Action.CANCEL, client, seq=2)
        costs.append(lines_of(lambda: routing.route(0.0, [cancel])))  # noqa: B023  # called at once
        assert routing.waits(client, 1)
        costs[-1] += lines_of(lambda: routing.waits(client, 1))  # noqa: B023  # called at once
        client.has_left = client.is_gone = True
        costs[-1] += lines_of(lambda: routing.forget(client))  # noqa: B023  # called at once
    assert costs[0] == costs[1]


def cancelling_what_a_former_leader_has() -> tuple[Routing, int, Any, Any]:
    routing, client = following(), Somebody()
    wait, cancel = call(Action.CONSUME, client, queue="q", wait=9.0, seq=1), call(Action.CANCEL, client, seq=1)
    [sent] = routing.route(0.0, [wait]).forwards
    routing.leader_changed(0.1, LeaderChanged(3, False, "c", 33))
    assert routing.route(0.2, [cancel]).answers == [], "the wait's answer may be on its way"
    return routing, sent.serial, wait, cancel


def test_a_cancel_of_what_a_former_leader_has_is_answered_behind_the_waits_answer() -> None:
    """It was told 0 at once, and a message came behind that."""
    routing, serial, wait, cancel = cancelling_what_a_former_leader_has()
    given = Reply(action=2, code=0, msg_id=7)
    answers = routing.under_way.answered(2, serial, given)
    assert [(one, reply.msg_id, reply.cancelled) for one, reply in answers] == [(wait, 7, None), (cancel, None, 0)]


def test_a_cancelled_wait_that_comes_back_from_a_former_leader_ends_here() -> None:
    routing, serial, wait, cancel = cancelling_what_a_former_leader_has()
    routing.came_back(0.3, 2, [serial])
    assert routing.has_open
    answers = routing.tick(0.3).answers
    assert [(one, reply.code, reply.cancelled) for one, reply in answers] == [(wait, 0, None), (cancel, 0, 1)]
    assert not routing.has_open


def test_a_cancelled_wait_that_is_never_answered_has_an_unknown_outcome_and_the_cancel_says_so() -> None:
    routing, _, wait, cancel = cancelling_what_a_former_leader_has()
    answers = routing.tick(LAST_S + 0.2).answers
    assert [(one, reply.error, reply.cancelled) for one, reply in answers] == [
        (wait, "unknown_outcome", None),
        (cancel, None, 0),
    ]


def test_a_cancel_ends_the_wait_of_that_number_and_no_other() -> None:
    routing = Routing(forwards=True)
    client, other = Somebody(), Somebody()
    waits = [call(Action.CONSUME, one, queue="q", wait=9.0, seq=seq) for one in (client, other) for seq in (1, 2)]
    routing.route(0.0, waits)
    answers = routing.route(0.0, [call(Action.CANCEL, client, seq=2)]).answers
    assert [(one.client, one.request.seq) for one, _ in answers] == [(client, 2), (client, 2)]
    assert [routing.waits(one, seq) for one in (client, other) for seq in (1, 2)] == [True, False, True, True]


def test_what_a_lost_link_has_left_without_an_answer_is_given_up_some_at_a_time() -> None:
    routing = following()
    asked = [call(Action.PRODUCE) for _ in range(GIVE_UP_MAX + 5)]
    routing.route(0.0, asked)
    routing.link_lost(1.0, 2)
    first = routing.tick(1.0).answers
    assert [one for one, _ in first] == asked[:GIVE_UP_MAX]
    assert routing.next_at <= 1.0
    second = routing.tick(1.0).answers
    assert [one for one, _ in second] == asked[GIVE_UP_MAX:]
    assert {reply.error for _, reply in first + second} == {"unknown_outcome"}
    assert not routing.has_open


def test_an_answer_that_comes_all_the_same_counts() -> None:
    """What was said before a link was lost may come over the next one."""
    routing = following()
    [sent] = routing.route(0.0, [call(Action.PRODUCE)]).forwards
    routing.link_lost(1.0, 2)
    assert routing.under_way.answered(2, sent.serial, Reply(action=1, code=0)) is not None
    assert routing.tick(1.0).answers == []


def test_a_show_that_waits_for_a_leader_and_is_cancelled_is_told_that_there_is_no_message() -> None:
    routing, client = Routing(forwards=True), Somebody()
    show = call(Action.SHOW, client, queue="q", key="k", wait=9.0, seq=1)
    routing.route(0.0, [show])
    answers = routing.route(0.1, [call(Action.CANCEL, client, seq=1)]).answers
    assert [(reply.code, reply.error, reply.cancelled) for _, reply in answers] == [
        (-1, "no_such_message", None),
        (0, None, 1),
    ]
