"""Clients that come and go: the last places, who has to show a token, who guesses, who comes over from a worker."""

import pytest

from actors.gateway.access import FAILURE_WAIT_MAX_S, AccessTable, Entry
from actors.gateway.client_identities import AUTHENTICATE_S, PROBATION_MAX, PROBATION_S, RESERVED
from actors.gateway.listener import NEWCOMERS
from actors.messages.rights import Rights
from actors.node.private_files import rights_of
from quorate.protocol import Action
from tests.actors.gateway.listener_fixture import Guest, ListenerFixture


def test_the_last_places_are_for_this_machine_and_for_who_may_operate_the_node() -> None:
    fixture = ListenerFixture({"w": rights_of(["produce"]), "op": rights_of(["operate"])}, connections_max=2)
    for _ in range(2):
        assert fixture.client().refused is None
    assert fixture.client(host="127.0.0.1").refused is None
    operators = [fixture.client("op") for _ in range(RESERVED)]
    operator = operators[0]
    assert all(one.connection.identity.known.principal.name == "op" for one in operators)
    assert fixture.client(host="127.0.0.1").refused is None, "those have places of their own"
    assert operator.ask(Action.MONITOR, queue="a")["error"] == "not_allowed", "it is served"
    other = fixture.client()
    other.send({"action": 16, "token": fixture.tokens["w"]})
    assert [reply["error"] for reply in other.replies()] == ["overloaded"]
    hasty = fixture.client()
    hasty.send({"action": 1, "queue": "a", "data": 1})
    assert [reply["error"] for reply in hasty.replies()] == ["overloaded"]
    assert hasty.end.closed_how
    silent = fixture.client()
    fixture.crank(PROBATION_S + 0.1)
    assert [reply["error"] for reply in silent.replies()] == ["overloaded"]
    assert operator.end.closed_how == ""


def test_the_last_places_are_so_many_and_a_certificate_is_as_good_as_a_token_for_one() -> None:
    fixture = ListenerFixture({"op": rights_of(["operate"])}, connections_max=1)
    table = AccessTable({"op": Entry(rights_of(["operate"]), (), ("op.example",))}, rights_of(["look"]))
    fixture.change(table)
    proved = Guest(fixture, "192.0.2.8", ("op.example",))
    assert proved.refused is None, "it has the only ordinary place"
    operators = [Guest(fixture, "192.0.2.8", ("op.example",)).refused for _ in range(RESERVED + 1)]
    assert operators == [None] * RESERVED + ["1 clients are connected already"]
    near = [Guest(fixture, "127.0.0.1") for _ in range(RESERVED + 1)]
    assert [one.refused for one in near] == [None] * (RESERVED + 1), "the last may show a token, for a moment"
    near[-1].send({"action": 11, "queue": "a"})
    assert [reply["error"] for reply in near[-1].replies()] == ["overloaded"]
    fixture.listener.closed(proved.connection)
    assert Guest(fixture, "192.0.2.8", ("op.example",)).refused is None, "an ordinary place is free again"


def test_strangers_of_this_machine_keep_nobody_out_who_has_a_token() -> None:
    """As everybody's behind a proxy on this machine."""
    fixture = ListenerFixture({"app": rights_of(["produce"])}, connections_max=20)
    crowd = [fixture.client(host="127.0.0.1") for _ in range(60)]
    for guest in crowd:
        if guest.end.closed_how:
            fixture.listener.closed(guest.connection)
    known = [fixture.client("app", host="127.0.0.1") for _ in range(20)]
    assert all(guest.refused is None and not guest.end.closed_how for guest in known)
    assert all(guest.ask(Action.PRODUCE, queue="a", data=1).get("error") != "overloaded" for guest in known)


def test_strangers_that_show_nothing_make_room_for_who_does() -> None:
    fixture = ListenerFixture({"op": rights_of(["operate"]), "app": rights_of(["produce"])}, connections_max=3)
    crowd = [fixture.client() for _ in range(9)]
    for guest in crowd[:-3]:
        assert guest.end.closed_how == "abort", "the oldest goes for the next"
        fixture.listener.closed(guest.connection)
    assert all(guest.end.closed_how == "" for guest in crowd[-3:])
    app = fixture.client("app")
    assert app.end.closed_how == ""
    for _ in range(20):
        fixture.client()
    assert app.end.closed_how == "", "a client with a token makes room for nobody"
    operators = [fixture.client("op") for _ in range(RESERVED)]
    assert all(guest.end.closed_how == "" for guest in operators)
    assert fixture.client(host="127.0.0.1").refused is None


def test_who_finds_all_places_taken_by_those_who_are_known_is_tried_for_a_moment() -> None:
    fixture = ListenerFixture({"op": rights_of(["operate"]), "app": rights_of(["produce"])}, connections_max=1)
    fixture.client("app")
    crowd = [fixture.client() for _ in range(PROBATION_MAX * 3)]
    assert sum(not guest.end.closed_how for guest in crowd) >= 1
    operators = [fixture.client("op") for _ in range(RESERVED)]
    assert all(guest.end.closed_how == "" for guest in operators)


def test_without_an_access_file_nobody_makes_room() -> None:
    fixture = ListenerFixture(None, connections_max=2)
    there = [fixture.client() for _ in range(2)]
    assert fixture.client().refused is not None
    assert all(guest.end.closed_how == "" for guest in there)


def test_who_may_do_nothing_without_a_token_shows_one_or_makes_room() -> None:
    fixture = ListenerFixture({"w": rights_of(["produce"])})
    silent, known = fixture.client(), fixture.client("w")
    fixture.crank(AUTHENTICATE_S + 0.1)
    assert [reply["error"] for reply in silent.replies()] == ["not_authenticated"]
    assert not known.end.closed_how


@pytest.mark.parametrize("connections_max", [2, 100])
def test_of_who_has_left_no_timer_is_left(connections_max: int) -> None:
    """A flood of strangers that come and go, some thousand a second, was kept for ten seconds."""
    fixture = ListenerFixture({"w": rights_of(["produce"])}, connections_max=connections_max)
    fixture.crank()
    before = fixture.waiting_timers()
    for _ in range(connections_max):
        fixture.client("w")
    there = fixture.waiting_timers()
    for _ in range(2 * PROBATION_MAX):
        guest = fixture.client()
        guest.connection.lost()
    assert fixture.waiting_timers() == there
    assert there <= before + connections_max


def test_who_found_no_place_and_has_left_leaves_no_timer() -> None:
    fixture = ListenerFixture(None, connections_max=1)
    fixture.client()
    there = fixture.waiting_timers()
    turned_away = fixture.client()
    assert turned_away.refused is not None
    assert fixture.waiting_timers() == there + 1
    turned_away.connection.lost()
    assert fixture.waiting_timers() == there


def test_clients_that_come_and_ask_nothing_begin_turns() -> None:
    """Of a flood of them all objects were young when the garbage collector was asked next."""
    fixture = ListenerFixture(None, connections_max=1000)
    begun = []
    for _ in range(3 * NEWCOMERS):
        fixture.client()
        begun.append(fixture.listener.turn.is_begun)
        fixture.crank()
    assert begun.count(True) == 3


def test_after_a_token_that_is_none_no_other_is_looked_at() -> None:
    fixture = ListenerFixture({"w": rights_of(["produce"])})
    guest = fixture.client()
    for _ in range(5):
        fixture.client().send({"action": 16, "token": "w.wrong"})
    guest.send({"action": 16, "token": "w.wrong"}, {"action": 16, "token": fixture.tokens["w"]})
    assert guest.replies() == []
    assert guest.end.closed_how == "abort"
    assert guest.connection.principal.rights == Rights({})


def test_whose_token_failed_gains_nothing_by_a_reload() -> None:
    fixture = ListenerFixture({"w": rights_of(["produce"])}, rights_of(["produce"]))
    for _ in range(5):
        fixture.client().send({"action": 16, "token": "w.wrong"})
    guest = fixture.client()
    guest.send({"action": 16, "token": "w.wrong"})
    fixture.change(fixture.table({"w": rights_of(["produce", "look"])}))
    guest.send({"action": 1, "queue": "a", "data": 1})
    fixture.crank(FAILURE_WAIT_MAX_S)
    assert next(reply["error"] for reply in guest.replies()) == "not_authenticated"
    assert "a" not in fixture.shard.state.queues


def test_of_many_that_guess_at_one_address_so_many_wait_and_the_rest_is_closed() -> None:
    fixture = ListenerFixture({"w": rights_of(["produce"])})
    guessing = [fixture.client() for _ in range(60)]
    for guest in guessing:
        guest.send({"action": 16, "token": "w.wrong"})
    assert [bool(guest.replies()) for guest in guessing[:4]] == [True] * 3 + [False]
    assert guessing[3].end.closed_how != "abort"
    assert all(guest.end.closed_how == "abort" for guest in guessing[-20:])


def test_a_client_of_another_worker_has_the_rights_that_its_proof_has_here() -> None:
    fixture = ListenerFixture({"w": rights_of(["produce"])})
    known, stranger = fixture.client(), fixture.client()
    fixture.listener.admit_moved(known.connection, ("192.0.2.7", 5), "w", fixture.hashes["w"].name)
    fixture.listener.admit_moved(stranger.connection, ("192.0.2.7", 5), "w", "something else")
    assert known.ask(Action.PRODUCE, queue="a", data=1)["code"] == 0
    assert stranger.ask(Action.PRODUCE, queue="a", data=1)["error"] == "not_allowed"
    fixture.crank(AUTHENTICATE_S + 0.1)
    assert known.ask(Action.PRODUCE, queue="a", data=1)["code"] == 0


def test_a_certificate_that_the_file_learns_of_later_says_who_its_client_is() -> None:
    """Found: its client stayed anonymous until it came again."""
    fixture = ListenerFixture({"w": rights_of(["produce"])})
    guest = Guest(fixture, "192.0.2.8", ("worker.example",))
    assert guest.ask(Action.MONITOR, queue="a")["error"] == "not_allowed"
    rights = rights_of(["look"])
    fixture.change(AccessTable({"worker": Entry(rights, (), ("worker.example",))}))
    assert guest.ask(Action.MONITOR, queue="a")["code"] == 0
    assert guest.connection.principal.name == "worker"
    fixture.change(AccessTable({"other": Entry(rights_of(["produce"]))}))
    assert guest.end.closed_how, "it is nobody's any more"
