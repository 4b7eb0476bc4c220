"""Disque's session by itself: what it asks, and makes of what it is answered."""

import pytest

from net.clients.connection import Connection
from net.node_facts import NodeFacts
from net.protocols.disque_session import FOUNDING_LOOKS, STARTING, DisqueSession
from net.protocols.session import Ask, RequestLimits, Say
from quorate.protocol import Action, Reply
from tests.net.clients.fake_end import LIMITS, FakeEnd

COMMANDS = (b"ADDJOB q x 0\r\n", b"HELLO\r\n", b"SHOW D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1\r\n")


LOOKED = Reply(action=Action.FIND, code=-1, error="no_such_message")


def first_asked(session: DisqueSession, command: bytes) -> Ask:
    (asked,) = session.receive(command)
    assert isinstance(asked, Ask)
    assert asked.request.action == Action.FIND
    return asked


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_needs_a_cluster_is_done_as_soon_as_there_is_one(command: bytes) -> None:
    facts = NodeFacts()
    session = DisqueSession(RequestLimits(), facts)
    asked = first_asked(session, command)
    for _ in range(3):
        made = session.answered(asked.request, LOOKED, asked.note)
        assert isinstance(made, Ask)
        assert made.request.action == Action.FIND
        asked = made
    facts.belong_to(77)
    (usual,) = DisqueSession(RequestLimits(), facts).receive(command)
    now = session.answered(asked.request, LOOKED, asked.note)
    if isinstance(usual, Say):
        assert now == usual.data
    else:
        assert isinstance(now, Ask)
        assert isinstance(usual, Ask)
        assert now.request == usual.request


def test_where_nobody_leads_or_no_cluster_comes_it_is_refused() -> None:
    session = DisqueSession(RequestLimits(), NodeFacts())
    asked = first_asked(session, COMMANDS[0])
    failed = Reply(action=Action.FIND, code=-1, error="no_leader")
    assert session.answered(asked.request, failed, asked.note) == STARTING
    full = Reply(action=Action.FIND, code=-1, error="overloaded", reason="ask again later")
    assert session.answered(asked.request, full, asked.note) == b"-OVERLOADED ask again later\r\n"
    asked = first_asked(session, COMMANDS[0])
    for _ in range(1, FOUNDING_LOOKS):
        made = session.answered(asked.request, LOOKED, asked.note)
        assert isinstance(made, Ask)
        asked = made
    assert session.answered(asked.request, LOOKED, asked.note) == STARTING
    assert isinstance(session.receive(b"PING\r\n")[0], Say)


def test_hello_as_redis_has_it_tells_no_ids_and_does_not_wait() -> None:
    session = DisqueSession(RequestLimits(), NodeFacts())
    for words in (b"HELLO 3", b"HELLO 2 AUTH u secret SETNAME me"):
        (asked,) = session.receive(words + b"\r\n")
        assert isinstance(asked, Ask)
        assert asked.request.action != Action.FIND


@pytest.mark.parametrize("word", ["SKIP", "OFF"])
def test_who_wants_no_answers_gets_none_of_a_command_that_waited(word: str) -> None:
    facts = NodeFacts()
    session = DisqueSession(RequestLimits(), facts)
    _, asked = session.receive(b"CLIENT REPLY %b\r\nADDJOB q x 0\r\n" % word.encode())
    assert isinstance(asked, Ask)
    again = session.answered(asked.request, LOOKED, asked.note)
    assert isinstance(again, Ask)
    facts.belong_to(77)
    produce = session.answered(again.request, LOOKED, again.note)
    assert isinstance(produce, Ask)
    assert produce.request.action == Action.PRODUCE
    assert session.answered(produce.request, Reply(action=1, code=-1, error="no_leader"), produce.note) == b""


def test_what_stands_behind_a_command_that_waits_is_not_begun_before() -> None:
    end = FakeEnd()
    connection = Connection(end, end, DisqueSession(RequestLimits(), NodeFacts()), LIMITS)
    connection.receive(b"ADDJOB q x 0\r\nQLEN q\r\nADDJOB q y 0\r\n")
    assert [request.action for _, request in end.requests] == [Action.FIND]
