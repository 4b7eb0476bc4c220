"""The leader's administration alone: a place is handed over when nothing is open and the successor has all."""

from typing import Any

import pytest

from actors.cluster.admin import ClusterAdmin
from actors.cluster.replicator_settings import ReplicatorSettings
from actors.cluster.root_members import Balancing
from actors.messages.call import Call
from actors.messages.calls import Answered
from actors.messages.lifecycle import HandedOver
from actors.messages.log import Append, Drain, Drained, Propose, Undrain
from actors.messages.peers import SendPeers
from net.peers.messages import Stored, TakeOver
from quorate.protocol import Action, Reply, Request
from storage.entry import LogEnd
from tests.actors.cluster.replication_node import Node, leading, made
from tests.actors.queues.shard import NOBODY


class Client:
    has_left = is_gone = False
    has_ended = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        raise AssertionError("answers are decisions")


class Led:
    """The administration of node 1, which leads three; node 2 has all of its log, node 3 was not heard."""

    def __init__(self) -> None:
        self.node: Node = leading()
        self.node.heard(0.0, 2, Stored(5, self.end.trans_id, 0.0, False, 0.4))
        settings = ReplicatorSettings(listed=(), is_alone=False)
        self.admin = ClusterAdmin(
            self.node.machine.machine, settings, is_founded=True, balancing=Balancing(0, 1, 0.0, heard_s=1.0)
        )

    @property
    def end(self) -> LogEnd:
        return self.node.log.tail.end

    def ask(self, command: str, now: float = 0.0, **fields: Any) -> list[Any]:
        return self.admin.command(now, Call(Request(Action.CLUSTER, command=command, **fields), Client(), 0, NOBODY))


def refused(decisions: list[Any]) -> str:
    """Why the one call was refused."""
    [(_, reply)] = next(one for one in decisions if isinstance(one, Answered)).answers
    assert reply.error
    return str(reply.reason)


def told(decisions: list[Any]) -> list[tuple[int, ...]]:
    """Who was told to take over."""
    return [one.node_ids for one in decisions if isinstance(one, SendPeers) and isinstance(one.message, TakeOver)]


def test_a_successor_is_told_when_nothing_is_open_and_it_has_all() -> None:
    led = Led()
    assert led.ask("transfer", node_id=2) == [Drain(5)]
    next_entry = made(led.end.trans_id + 1, led.end.trans_id + 1, 5)
    led.node.machine.append(0.0, Append(5, [next_entry]))
    assert told(led.admin.tick(0.01)) == [], "something is open"
    assert told(led.admin.drained(0.01, Drained(5))) == [], "the successor lacks the last"
    led.node.heard(0.02, 2, Stored(5, led.end.trans_id, 0.0, False, 0.4))
    assert told(led.admin.tick(0.02)) == [(2,)]
    assert told(led.admin.tick(0.03)) == [], "once"


def test_who_lacks_messages_of_topics_takes_over_only_where_nobody_has_all_of_them() -> None:
    for lack in (2, 3):
        led = Led()
        for node_id in (2, 3):
            led.node.heard(0.0, node_id, Stored(5, led.end.trans_id, 0.0, False, 0.4, node_id == lack))
        assert led.ask("transfer") == [Drain(5)]
        assert told(led.admin.drained(0.01, Drained(5))) == [(5 - lack,)]
    led = Led()
    for node_id in (2, 3):
        led.node.heard(0.0, node_id, Stored(5, led.end.trans_id - (node_id == 3), 0.0, False, 0.4, True))
    led.ask("transfer")
    assert told(led.admin.drained(0.01, Drained(5))) == [(2,)]


def test_a_hand_over_that_takes_too_long_is_given_up_and_this_node_serves_on() -> None:
    led = Led()
    led.ask("transfer", node_id=2)
    decisions = led.admin.tick(60.0)
    assert any(isinstance(one, Undrain) for one in decisions)
    assert "did not take over" in refused(decisions)
    assert led.ask("transfer", 60.0, node_id=2) != [Drain(5)], "and it was not heard lately"


def test_what_was_drained_in_an_earlier_lead_means_nothing() -> None:
    led = Led()
    led.ask("transfer", node_id=2)
    assert led.admin.drained(0.0, Drained(4)) == []
    assert told(led.admin.tick(0.0)) == []


@pytest.mark.parametrize(("node_id", "why"), [(1, "leads already"), (3, "was not heard"), (9, "does not vote")])
def test_a_place_goes_to_no_node_that_could_not_take_it(node_id: int, why: str) -> None:
    led = Led()
    assert why in refused(led.ask("transfer", 2.0, node_id=node_id))


def test_one_hand_over_at_a_time_and_no_change_of_members_beside_it() -> None:
    led = Led()
    led.ask("transfer", node_id=2)
    assert "hands its place over already" in refused(led.ask("transfer", node_id=2))
    assert refused(led.ask("remove", node_id=3))


def test_one_change_of_the_members_at_a_time() -> None:
    led = Led()
    assert [type(one) for one in led.ask("remove", node_id=3)] == [Propose]
    assert refused(led.ask("remove", node_id=2))


def test_a_worker_that_stops_waits_for_its_successor_or_for_nobody_where_there_is_none() -> None:
    led = Led()
    assert led.admin.hand_over(0.0) == [Drain(5)]
    alone = Led()
    assert alone.admin.hand_over(60.0) == [HandedOver()], "nobody was heard for long"


def test_a_command_that_is_none_and_one_that_lacks_its_node_are_refused() -> None:
    led = Led()
    assert "is none of" in refused(led.ask("dance"))
    assert refused(led.ask("remove")) == "node_id is missing"
