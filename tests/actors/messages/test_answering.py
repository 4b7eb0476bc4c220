"""Answers reach whoever took the calls in, in order, and in pieces."""

from actors.messages.answering import LARGE, PIECE, send_answers
from actors.messages.call import Answer, Call
from actors.messages.calls import Answered
from quorate.protocol import DeliveredReply, Reply, Request
from tests.actors.cranked import Probe, ref
from tests.actors.gateway.test_routing import Somebody

SMALL = Reply(action=1, code=0)


def answers(count: int, probe: Probe, reply: Reply = SMALL) -> list[Answer]:
    reply_to = ref(probe)
    return [(Call(Request(1), Somebody(), number, reply_to), reply) for number in range(count)]


def orders(probe: Probe) -> list[int]:
    return [order for piece in told(probe) for order in piece]


def told(probe: Probe) -> list[list[int]]:
    return [[call.order for call, _ in message.answers] for message in probe.take(Answered)]


def test_few_go_in_one_message() -> None:
    probe = Probe()
    send_answers(answers(PIECE, probe))
    assert told(probe) == [list(range(PIECE))]


def test_very_many_go_in_pieces_in_their_order() -> None:
    probe = Probe()
    send_answers(answers(PIECE * 2 + 5, probe))
    pieces = told(probe)
    assert list(map(len, pieces)) == [PIECE, PIECE, 5]
    assert [order for piece in pieces for order in piece] == list(range(PIECE * 2 + 5))


def test_of_those_that_may_be_large_few_are_a_piece() -> None:
    probe = Probe()
    send_answers(answers(PIECE // LARGE + 1, probe, DeliveredReply(action=2, code=0, messages=[])))
    assert list(map(len, told(probe))) == [PIECE // LARGE, 1]


def test_each_actor_has_its_own_in_order() -> None:
    one, other = Probe(), Probe()
    mixed = [answer for pair in zip(answers(300, one), answers(300, other), strict=True) for answer in pair]
    send_answers(mixed)
    assert orders(one) == orders(other) == list(range(300))


def test_no_answers_are_no_message() -> None:
    send_answers([])
