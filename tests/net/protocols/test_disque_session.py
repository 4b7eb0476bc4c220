"""Disque's session by itself: what it asks, and makes of what it is answered."""

import pytest

from net.node_facts import NodeFacts
from net.protocols.disque_session import FOUNDING_LOOKS, STARTING, DisqueSession
from net.protocols.session import Ask, RequestLimits, Say
from quorate.protocol import Action, Reply, ScanReply

COMMANDS = (b"ADDJOB q x 0\r\n", b"HELLO\r\n", b"SHOW D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1\r\n")


LOOKED = ScanReply(action=Action.SCAN, code=0, shards=1, now=0.0)


def first_asked(session: DisqueSession, command: bytes) -> Ask:
    (asked,) = session.receive(command)
    assert isinstance(asked, Ask)
    assert asked.request.action == Action.SCAN
    return asked


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_needs_a_cluster_is_done_as_soon_as_there_is_one(command: bytes) -> None:
    facts = NodeFacts()
    session = DisqueSession(RequestLimits(), facts)
    asked = first_asked(session, command)
    for _ in range(3):
        made = session.answered(asked.request, LOOKED, asked.note)
        assert isinstance(made, Ask)
        assert made.request.action == Action.SCAN
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
    failed = Reply(action=Action.SCAN, code=-1, error="no_leader")
    assert session.answered(asked.request, failed, asked.note) == STARTING
    asked = first_asked(session, COMMANDS[0])
    for _ in range(1, FOUNDING_LOOKS):
        made = session.answered(asked.request, LOOKED, asked.note)
        assert isinstance(made, Ask)
        asked = made
    assert session.answered(asked.request, LOOKED, asked.note) == STARTING
    assert isinstance(session.receive(b"PING\r\n")[0], Say)
