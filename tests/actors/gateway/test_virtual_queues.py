"""One reply out of the replies to a virtual queue's copies."""

from typing import Any

import pykka
import pytest

from actors.gateway.router import NAMES_ANOTHER, may_name
from actors.gateway.routing import Routing
from actors.gateway.virtual_queues import Copies, VirtualQueues
from actors.messages.call import Call
from actors.messages.peers import LeaderChanged
from net.protocols import BESIDE
from quorate.actions import TABLE
from quorate.protocol import RedirectReply, Reply, Request, TransactionRequest


class _Nobody(pykka.ThreadingActor):
    pass


NOBODY: "pykka.ActorRef[Any]" = _Nobody().actor_ref


class Client:
    has_left = is_gone = False
    has_ended = False
    protocol = ""

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        raise AssertionError


def gathered(*replies: Reply) -> Any:
    gather = Copies(Call(Request(1, queue="all", seq=7), Client(), 0, NOBODY), len(replies))
    for order, reply in enumerate(replies):
        assert not gather.is_complete
        gather.answer(order, gather.call.request, reply)
    assert gather.is_complete
    return gather.reply()


def stored(msg_id: int) -> Reply:
    return Reply(action=1, code=0, queue="a", msg_id=msg_id)


def redirect() -> Reply:
    return RedirectReply(
        action=1, code=-2, queue="b", error="redirect", leader_node_id=2, leader_host="h", leader_port=3
    )


def test_all_ids_are_there() -> None:
    reply = gathered(stored(1), stored(2))
    assert (reply.code, reply.msg_id, reply.msg_ids, reply.queue, reply.seq) == (0, 1, [1, 2], "all", 7)


def test_a_refusal_names_what_is_stored_all_the_same() -> None:
    reply = gathered(stored(1), Reply(action=1, code=-1, queue="b", error="queue_full", reason="it is full"))
    assert (reply.error, reply.msg_ids) == ("queue_full", [1])


def test_a_redirect_of_all_copies_is_one() -> None:
    reply = gathered(redirect(), redirect())
    assert (reply.code, reply.leader_node_id, reply.queue, reply.seq) == (-2, 2, "all", 7)


def test_what_was_done_in_part_is_not_to_be_asked_for_again() -> None:
    reply = gathered(stored(1), redirect())
    assert (reply.code, reply.error, reply.msg_ids) == (-1, "unknown_outcome", [1])


def test_what_may_have_been_done_is_never_said_to_be_undone() -> None:
    unknown = Reply(action=1, code=-1, queue="a", error="unknown_outcome", reason="lost")
    for other in ("no_leader", "queue_full", "stopping"):
        refused = Reply(action=1, code=-1, queue="b", error=other, reason="no")
        for replies in ((unknown, refused), (refused, unknown)):
            assert gathered(*replies).error == "unknown_outcome"


def test_copies_are_forwarded_where_who_asked_is_and_redirected_where_that_is() -> None:
    for protocol, is_told in (("json", True), ("json" + BESIDE, False), ("disque", False)):
        client = Client()
        client.protocol = protocol
        calls, _ = VirtualQueues({"all": ["a", "b"]}).split([Call(Request(1, queue="all"), client, 0, NOBODY)], NOBODY)
        routing = Routing(forwards=False)
        routing.leader_changed(0.0, LeaderChanged(2, False, "h", 3))
        routing.linked(0.0, 2)
        routed = routing.route(0.0, calls)
        assert (len(routed.answers), len(routed.forwards)) == ((2, 0) if is_told else (0, 2)), protocol


def test_no_operation_of_a_transaction_is_about_a_virtual_queue() -> None:
    queues = VirtualQueues({"v": ["a", "b"]})
    for wrong in (Request(1, queue="v"), Request(27, topic="v")):
        request = TransactionRequest(31, operations=[Request(1, queue="a"), wrong])
        call = Call(request, Client(), 0, NOBODY)
        assert may_name(queues.names, [call])
        calls, [(refused, reply)] = queues.split([call], NOBODY)
        assert (calls, refused, reply.error) == ([], call, "not_supported")
    call = Call(TransactionRequest(31, operations=[Request(1, queue="a")]), Client(), 0, NOBODY)
    assert queues.split([call], NOBODY) == ([call], [])


@pytest.mark.parametrize(
    "field",
    [
        {"queue": "v"},
        {"queues": ["x", "v"]},
        {"queue": "x", "to": "v"},
        {"queue": "x", "dead_letter": "v"},
        {"queue": "x"},
    ],
)
@pytest.mark.parametrize("action", [facts.action for facts in TABLE])
def test_whatever_is_about_a_virtual_queue_is_looked_at(action: int, field: dict[str, Any]) -> None:
    """The Router asks first, in compiled code, whether a call may name one: it may never say no of one that does."""
    queues = VirtualQueues({"v": ["a", "b"]})
    call = Call(Request(action, **field), Client(), 0, NOBODY)
    calls, refused = queues.split([call], NOBODY)
    if calls != [call] or refused:
        assert may_name(queues.names, [call])
    if field == {"queue": "x"} and action not in NAMES_ANOTHER:
        assert not may_name(queues.names, [call]), "it is not looked at by interpreted code"
