"""Where requests go, and what is said when their answers can't come."""

from typing import Any

import pykka
import pytest

from actors.gateway.routing import ANSWER_S, HOLD_S, LAST_S, RETURN_S, Routing
from actors.messages.calls import Call
from actors.messages.peers import LeaderChanged
from quorate.protocol import EncodedReply, Reply, Request


class _Nobody(pykka.ThreadingActor):
    pass


NOBODY: "pykka.ActorRef[Any]" = _Nobody().actor_ref
OTHER = LeaderChanged(2, False, "b", 22)


class Somebody:
    def answer(self, order: int, reply: Reply) -> None:
        raise AssertionError


def call(action: int = 1, client: Somebody | None = None, *, is_single: bool = False, **fields: Any) -> Call:
    return Call(Request(action, **fields), client or Somebody(), 0, NOBODY, is_single=is_single)


def following(*, forwards: bool = True) -> Routing:
    routing = Routing(forwards=forwards)
    routing.leader_changed(0.0, OTHER)
    routing.linked.add(2)
    return routing


def test_a_leader_keeps_everything() -> None:
    routing = Routing(forwards=True)
    routing.leader_changed(0.0, LeaderChanged(1, True))
    assert len(routing.route(0.0, [call(), call(4)]).own) == 2
    assert routing.is_direct


@pytest.mark.parametrize("action", [8, 14, 104, 107, 108, 115])
def test_what_asks_about_this_node_stays_here(action: int) -> None:
    assert len(following().route(0.0, [call(action)]).own) == 1


def test_who_leads_is_answered_when_it_is_known() -> None:
    routing = Routing(forwards=True)
    assert routing.route(0.0, [call(8)]).own == []
    assert len(routing.leader_changed(0.5, OTHER).own) == 1
    assert [reply.error for _, reply in held_for_nobody(Routing(forwards=True))] == ["no_leader"]


def held_for_nobody(routing: Routing) -> Any:
    routing.route(0.0, [call(8)])
    return routing.tick(HOLD_S).answers


def test_a_follower_forwards_and_the_answer_finds_its_call() -> None:
    routing = following()
    asked = call()
    routed = routing.route(0.0, [asked])
    assert routed.to == 2
    answer = routing.answered(routed.forwards[0].serial, b'{"code":0}\n')
    assert answer is not None
    assert answer[0] is asked
    assert isinstance(answer[1], EncodedReply)
    assert routing.answered(routed.forwards[0].serial, b"again") is None


def test_a_follower_that_does_not_forward_says_where_the_leader_is() -> None:
    reply: Any = following(forwards=False).route(0.0, [call()]).answers[0][1]
    assert (reply.code, reply.leader_node_id, reply.leader_host, reply.leader_port) == (-2, 2, "b", 22)


def test_requests_wait_for_a_leader_and_are_refused_when_none_comes() -> None:
    routing = Routing(forwards=True)
    routing.route(0.0, [call(), call()])
    assert routing.tick(HOLD_S - 0.1).answers == []
    assert [reply.error for _, reply in routing.tick(HOLD_S).answers] == ["no_leader", "no_leader"]
    routing.route(5.0, [call()])
    routing.linked.add(2)
    assert len(routing.leader_changed(6.0, OTHER).forwards) == 1


def test_a_leader_that_hands_over_holds_what_comes() -> None:
    routing = Routing(forwards=True)
    routing.leader_changed(0.0, LeaderChanged(1, True))
    routing.drain()
    assert routing.route(0.0, [call()]).own == []
    assert len(routing.undrain(0.1).own) == 1


def test_when_the_leader_is_lost_what_may_be_done_is_unknown_and_what_looks_is_asked_again() -> None:
    routing = following()
    routing.route(0.0, [call(1), call(2), call(4)])
    assert [reply.error for _, reply in routing.link_lost(1.0, 2)] == ["unknown_outcome"] * 2
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
    routing.route(0.0, [call(2, wait=5.0)])
    assert routing.tick(ANSWER_S + 4.9).answers == []
    assert [reply.error for _, reply in routing.tick(ANSWER_S + 5.0).answers] == ["unknown_outcome"]
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
    assert routing.client_gone(client) == 1
    assert routing.client_gone(client) is None
