"""Who a client is: tokens, certificates, addresses, what is forwarded; what is written down."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.access import FAILURE_WAIT_MAX_S, AccessTable, Entry, Patience, TokenHash, new_token
from actors.gateway.auditing import ALLOWED_MAX, _File
from actors.messages.call import Call
from actors.messages.calls import RefusedForwarded
from actors.messages.rights import EVERY_RIGHT, Principal, Rights
from actors.node.private_files import rights_of
from quorate.actions import Right
from quorate.protocol import Action, Request
from tests.actors.cranked import Probe, ref
from tests.actors.gateway.listener_fixture import ListenerFixture
from tests.actors.queues.shard import delivery_of

ALL = rights_of(["produce", "consume", "look", "manage"])


def one(*allow: str) -> dict[str, Rights]:
    return {"w": rights_of(list(allow))}


# -- tokens --------------------------------------------------------------------------------------------------------


def test_a_token_says_who_a_client_is_and_what_it_may() -> None:
    fixture = ListenerFixture(one("produce:a", "look"), rights_of(["look:public"]))
    guest = fixture.client()
    assert guest.ask(Action.PRODUCE, queue="a", data=1)["error"] == "not_allowed"
    assert guest.ask(Action.MONITOR, queue="public")["exists"] is False
    reply = guest.ask(Action.AUTHENTICATE, token=fixture.tokens["w"], seq=7)
    assert (reply["principal"], reply["rights"], reply["seq"]) == ("w", ["produce:a", "look"], 7)
    assert guest.ask(Action.PRODUCE, queue="a", data=1)["code"] == 0
    assert (
        guest.ask(Action.PRODUCE, queue="b", data=1)["reason"]
        == "the right produce for what the request names is missing"
    )


def test_what_was_sent_before_a_token_has_the_rights_of_before_and_what_comes_behind_has_its() -> None:
    fixture = ListenerFixture(one("produce"))
    guest = fixture.client()
    produce = {"action": 1, "queue": "a", "data": 1}
    guest.send(produce, {"action": 16, "token": fixture.tokens["w"]}, produce)
    assert [reply["code"] for reply in guest.replies()] == [-1, 0, 0]
    assert fixture.listener.counts.open_requests == 0


@pytest.mark.parametrize("token", ["", "w", "w.", "w.x", ".", "nobody.x", "w.\U0001f600", "ä" * 256, "w.w\u0000"])
def test_a_token_that_is_none_is_refused_and_nothing_behind_it_is_done(token: str) -> None:
    fixture = ListenerFixture(one("produce"))
    guest = fixture.client()
    guest.send({"action": 16, "token": token}, {"action": 1, "queue": "a", "data": 1})
    replies = guest.replies()
    assert replies[0]["error"] == "not_authenticated"
    assert all(reply["code"] == -1 for reply in replies)
    assert guest.end.closed_how
    assert not fixture.shard.state.messages
    [line, *_] = fixture.audited()
    assert (line["action"], line["allowed"], line["from"]) == ("authenticate", False, "192.0.2.7")
    assert "x" not in str(line.get("claimed", ""))


def test_who_guesses_waits_longer_each_time_and_who_knows_does_not() -> None:
    fixture = ListenerFixture(one("produce"))
    guests = [fixture.client() for _ in range(6)]
    for guest in guests:
        guest.send({"action": 16, "token": "w.wrong"})
    assert [bool(guest.replies()) for guest in guests] == [True, True, True, False, False, False]
    assert fixture.client("w").ask(1, queue="a", data=1)["code"] == 0
    fixture.crank(1.6)
    assert [reply["error"] for guest in guests for reply in guest.replies()] == ["not_authenticated"] * 3


def test_so_many_guesses_wait_at_most_and_so_long() -> None:
    patience = Patience()
    waits = [patience.failed(0.0, "192.0.2.1") for _ in range(100)]
    assert max(one for one in waits if one is not None) <= FAILURE_WAIT_MAX_S + 0.5
    assert waits[-1] is None
    assert patience.failed(0.0, "192.0.2.2") == 0.0
    assert patience.failed(1000.0, "192.0.2.1") == 0.0
    for n in range(20_000):
        patience.failed(0.0, f"a{n}")
    assert len(patience._by_address) <= 10_000


def test_a_node_without_an_access_file_takes_any_token_and_says_that_there_are_none() -> None:
    """Found in a first trial: a token in a developer's shell made a node without an access file unusable."""
    fixture = ListenerFixture(None)
    reply = fixture.client().ask(16, token="w.x")
    assert (reply["code"], reply["principal"]) == (0, "anonymous")
    assert "no access_file" in reply["warning"]
    assert fixture.client().ask(16)["error"] == "field_error"


def test_without_an_access_file_only_this_machine_changes_the_cluster() -> None:
    fixture = ListenerFixture(None)
    far, near = fixture.client(), fixture.client(host="127.0.0.1")
    assert far.ask(Action.PRODUCE, queue="a", data=1)["code"] == 0
    assert far.ask(Action.REMOVE, queue="a")["code"] == 0
    refused = far.ask(Action.CLUSTER, command="remove", node_id=2)
    assert (refused["error"], refused["reason"]) == ("not_allowed", "the right operate over the node is missing")
    assert far.ask(Action.NODE_INIT)["error"] == "not_allowed"
    near.send({"action": 15, "command": "remove", "node_id": 2})
    assert [type(one).__name__ for one in fixture.shard.broker.context.asked] == ["ClusterAsked"]


def test_a_certificate_that_names_somebody_is_as_good_as_a_token() -> None:
    table = AccessTable({"w": Entry(ALL, (), ("worker.example",))})
    known = table.by_certificate(("other", "worker.example"))
    assert known is not None
    assert known.principal.name == "w"
    assert table.named("w", known.proof, is_near=False) == known
    assert table.by_certificate(("w",)) is None


def test_what_is_kept_of_a_token_does_not_tell_it() -> None:
    token = new_token("w")
    kept = TokenHash.of(token)
    assert kept.fits(token)
    assert not kept.fits(token + "x")
    assert TokenHash.of(token) != kept, "with a salt of its own"
    assert token.partition(".")[2] not in kept.text
    assert TokenHash.read(kept.text) == kept


# -- reloading -----------------------------------------------------------------------------------------------------


DIGEST, SALT = "ab" * 32, "cd" * 16


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"md5:{SALT}:{DIGEST}",
        f"sha256:{SALT}",
        f"sha256::{DIGEST}",
        f"sha256:{SALT}:{DIGEST[2:]}",
        f"sha256:{SALT}:{DIGEST}00",
        f"sha256:{SALT}:no hex",
    ],
)
def test_what_is_no_hash_of_a_token_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hash of a token|hex"):
        TokenHash.read(text)


def test_a_client_that_another_worker_gives_away_is_known_as_long_as_its_proof_holds() -> None:
    token = TokenHash.of("w.secret")
    table = AccessTable({"w": Entry(ALL, (token,), ("worker.example",))})
    for proof in (token.name, "certificate worker.example"):
        known = table.named("w", proof, is_near=False)
        assert known is not None
        assert (known.principal.name, known.principal.rights, known.proof) == ("w", ALL, proof)
    for name, proof in (("w", ""), ("w", "certificate other"), ("gone", token.name), ("", token.name)):
        assert table.named(name, proof, is_near=True) is None
    for is_near in (True, False):
        known = table.named("anonymous", "", is_near=is_near)
        assert known is not None
        assert not known.principal.rights.has_some
        assert table.named("local", "", is_near=is_near) is None, "nobody is, where there is an access file"
    there_is_none = AccessTable()
    assert there_is_none.named("anonymous", "", is_near=True) is None
    assert there_is_none.named("local", "", is_near=False) is None, "who is far is not near"
    near = there_is_none.named("local", "", is_near=True)
    assert near is not None
    assert near.principal.rights.has(Right.OPERATE)


@pytest.mark.parametrize("token", ["nobody.token", "no-dot-at-all", "a.b.c"])
def test_what_a_wrong_token_claims_is_written_down_only_if_somebody_has_that_name(token: str) -> None:
    fixture = ListenerFixture({"w": rights_of(["produce"])})
    fixture.client().send({"action": 16, "token": token})
    fixture.client().send({"action": 16, "token": "w.wrong"})
    guessed, claimed = fixture.audited()
    assert "claimed" not in guessed
    assert token not in str(guessed)
    assert claimed["claimed"] == "w"


def test_whose_rights_are_others_goes_on_with_those_and_waits_for_nothing_that_it_asked_before() -> None:
    fixture = ListenerFixture({"w": rights_of(["consume"]), "v": rights_of(["consume"])})
    changed, same = fixture.client("w"), fixture.client("v")
    for guest in (changed, same):
        guest.send({"action": 2, "queue": "a", "wait": 60})
    fixture.change(fixture.table({"w": rights_of(["consume:b"]), "v": rights_of(["consume"])}))
    assert [(reply["error"], reply["right"]) for reply in changed.replies()] == [("not_allowed", "consume")]
    assert same.replies() == []
    same.fixture.change(fixture.table({"w": rights_of(["consume:b"]), "v": rights_of(["consume:a", "look"])}))
    assert same.replies() == [], "it waits on for what it still may have"
    owner = fixture.client()
    owner.connection.principal = Principal("owner", EVERY_RIGHT)
    owner.send({"action": 1, "queue": "a", "data": "x"})
    assert [reply["data"] for reply in same.replies()] == ["x"]
    assert changed.ask(Action.CONSUME, queue="a")["error"] == "not_allowed"
    assert "msg_id" not in changed.ask(Action.CONSUME, queue="b")
    assert not changed.end.closed_how


def test_a_datagram_that_waits_is_given_up_when_nobody_may_do_that_any_more() -> None:
    fixture = ListenerFixture({}, rights_of(["consume"]))
    assert fixture.datagram("192.0.2.7", action=2, queue="a", wait=60) == []
    assert len(delivery_of(fixture.shard.broker).lines) == 1
    fixture.anonymous = rights_of(["consume:b"])
    fixture.change(fixture.table({}))
    assert len(delivery_of(fixture.shard.broker).lines) == 0


def test_a_token_that_was_taken_away_ends_its_connections() -> None:
    old, new = TokenHash.of("w.old"), TokenHash.of("w.new")
    fixture = ListenerFixture(one("produce"))
    fixture.tokens["w"] = "w.old"
    fixture.change(AccessTable({"w": Entry(ALL, (new, old))}))
    guest, waiting = fixture.client("w"), fixture.client("w")
    waiting.send({"action": 2, "queue": "b", "wait": 60})
    fixture.change(AccessTable({"w": Entry(ALL, (new, old))}))
    assert guest.ask(Action.PRODUCE, queue="a", data=1)["code"] == 0
    fixture.change(AccessTable({"w": Entry(ALL, (new,))}))
    assert [reply["error"] for reply in guest.replies()] == ["not_authenticated"]
    assert [reply.get("error") for reply in waiting.replies()] == [None, "not_authenticated"]
    assert len(delivery_of(fixture.shard.broker).lines) == 0


# -- what another node forwards --------------------------------------------------------------------------------------


def test_a_name_that_another_node_forwards_has_the_rights_that_this_node_gives_it() -> None:
    table = AccessTable({"w": Entry(rights_of(["produce"]))}, rights_of(["look:x"]))
    assert table.forwarded("w").rights == rights_of(["produce"])
    for name in ("nobody", "local", "remote", "", "anonymous"):
        assert table.forwarded(name) == Principal(name, rights_of(["look:x"]))
    without = AccessTable()
    assert without.forwarded("local").rights.is_unlimited
    assert not without.forwarded("w").rights.has(Right.OPERATE)


# -- datagrams -----------------------------------------------------------------------------------------------------


def test_a_datagram_has_the_rights_of_who_has_proved_nothing_and_asks_about_queues_alone() -> None:
    fixture = ListenerFixture(one("produce"), rights_of(["produce:in", "operate", "log", "look"]))
    assert fixture.datagram("192.0.2.7", action=1, queue="in", data=1)[0]["code"] == 0
    assert fixture.datagram("192.0.2.7", action=1, queue="a", data=1)[0]["error"] == "not_allowed"
    for action in (14, 15, 16, 17, 108, 115):
        assert fixture.datagram("192.0.2.7", action=action)[0]["error"] == "not_supported"


def test_a_message_that_a_datagram_may_not_be_answered_with_stays_where_it_is() -> None:
    fixture = ListenerFixture(None)
    fixture.client().ask(1, queue="a", data="x" * 300)
    [reply] = fixture.datagram("192.0.2.7", 400, action=2, queue="a")
    assert reply["error"] == "too_large"
    assert len(fixture.shard.state.messages) == 1
    assert fixture.datagram("192.0.2.7", 20, action=2, queue="a") == [], "not even that is said to so short a one"
    [reply] = fixture.datagram("192.0.2.7", 500, action=2, queue="a")
    assert reply["data"] == "x" * 300


# -- writing down --------------------------------------------------------------------------------------------------


def test_what_manages_and_what_is_refused_is_written_down_and_nothing_else() -> None:
    fixture = ListenerFixture(one("produce", "manage", "look"))
    guest = fixture.client("w")
    guest.ask(Action.PRODUCE, queue="a", data=1)
    guest.ask(Action.MONITOR, queue="a")
    guest.send({"action": 15, "command": "status", "seq": 1})
    assert fixture.audited() == []
    guest.ask(Action.REMOVE, queue="a")
    guest.ask(Action.CONSUME, queues=["a", "b"])
    removed, refused = fixture.audited()
    assert removed == {
        "at": removed["at"],
        "principal": "w",
        "from": "192.0.2.7",
        "action": "remove",
        "queue": "a",
        "done": True,
        "allowed": True,
    }
    assert (refused["action"], refused["queues"], refused["missing"]) == ("consume", ["a", "b"], "consume")
    client: Any = Probe()
    call = Call(Request(Action.PRODUCE, queue="q"), client, 1, ref(client))
    fixture.listener.actor_ref.tell(RefusedForwarded(3, [(call, "produce")]))
    fixture.crank()
    [line] = fixture.audited()
    assert (line["from"], line["missing"]) == ("node 3", "produce")


def test_a_line_says_what_was_set_or_moved_where_and_for_whom_and_whether_it_was_done() -> None:
    fixture = ListenerFixture({"boss": rights_of(["manage", "consume", "produce", "operate"])})
    boss = fixture.client("boss")
    boss.ask(Action.CONFIGURE, queue="a", dead_letter="b", max_size=5, paused=True, consumer="console for 192.0.2.9")
    boss.ask(Action.CONFIGURE, queue="a", dead_letter=None)
    boss.ask(Action.MOVE, queue="a", to="c", msg_ids=[1, 2], create=True)
    boss.ask(Action.NODE_CONFIG, command="set", key="log_level", value="debug" * 50)
    boss.ask(Action.CLIENT, command="kill", key="192.0.2.7:5")
    first, second, moved, setting, killed = fixture.audited()
    wanted = {"dead_letter": "b", "max_size": 5, "paused": True, "consumer": "console for 192.0.2.9", "done": True}
    assert wanted.items() <= first.items()
    assert second["dead_letter"] == ""
    assert (moved["to"], moved["messages"], moved["done"]) == ("c", 2, True)
    assert (setting["key"], setting["value"], setting["done"]) == ("log_level", ("debug" * 50)[:100], False)
    assert setting["error"] == "not_supported"
    assert (killed["command"], killed["key"], killed["done"]) == ("kill", "192.0.2.7:5", True)


def test_a_full_disk_is_told_by_one_traceback_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = [5.0]
    folder = tmp_path / "folder"
    folder.mkdir()
    file = _File(folder / "audit.log", lambda: clock[0])
    file.close()
    shutil.rmtree(folder)  # so that each line fails, as on a full disk

    def write(count: int) -> None:
        for _ in range(count):
            file.emit(logging.LogRecord("", logging.INFO, "", 0, "line", None, None))

    with caplog.at_level(logging.ERROR, "quorate.audit"):
        write(50)
        clock[0] += 30.0
        write(50)
        folder.mkdir()
        write(1)
        file.close()
        shutil.rmtree(folder)
        write(50)
        clock[0] += 31.0
        write(2)
    said = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert said == ["1 lines are lost", "150 lines are lost"]


def test_what_changed_nothing_is_not_written_down_as_done() -> None:
    fixture = ListenerFixture({"m": rights_of(["manage"])})
    guest = fixture.client("m")
    guest.send(
        {"action": 6, "queue": "there is none"}, {"action": 13, "queue": "nor this"}, {"action": 5, "queue": "b"}
    )
    assert [line["queue"] for line in fixture.audited()] == ["b"]


def test_who_may_manage_one_queue_can_not_move_the_lines_of_others_out_of_the_file() -> None:
    fixture = ListenerFixture({"boss": rights_of(["manage"]), "mine": rights_of(["manage"])})
    boss, mine = fixture.client("boss"), fixture.client("mine")
    for number in range(50):
        mine.send(*[{"action": 5, "queue": "mine", "max_size": number * 100 + one} for one in range(1, 101)])
        mine.replies()
    boss.send({"action": 5, "queue": "payroll", "paused": True})
    lines = fixture.audited()
    assert sum(line["principal"] == "mine" for line in lines) <= ALLOWED_MAX
    assert lines[-1]["queue"] == "payroll"
    fixture.crank(3.0)
    assert sum(line.get("left_out_before", 0) for line in fixture.audited()) == 5000 - ALLOWED_MAX


def test_a_flood_of_refusals_is_not_a_flood_of_lines() -> None:
    fixture = ListenerFixture(one())
    guest = fixture.client()
    for _ in range(10):
        guest.send(*[{"action": 1, "queue": "a", "data": 1}] * 100)
    guest.connection.principal = Principal("m", rights_of(["manage"]))
    guest.send({"action": 5, "queue": "a", "max_size": 9})
    lines = fixture.audited()
    assert sum(not line["allowed"] for line in lines) <= 500
    assert lines[-1]["allowed"], "what is allowed is always written down"
    fixture.crank(8.0)
    guest.send({"action": 1, "queue": "a", "data": 1})
    assert fixture.audited()[-1]["left_out_before"] >= 400


def test_a_line_of_the_audit_has_the_beginning_of_what_is_long() -> None:
    fixture = ListenerFixture({"w": rights_of(["produce"])})
    guest = fixture.client("w")
    assert guest.ask(Action.REMOVE, queue="q" * 255)["error"] == "not_allowed"
    assert guest.ask(Action.CONSUME, queues=["n" * 255, "b", "c", "d"])["error"] == "not_allowed"
    one_, several = fixture.audited()
    assert one_["queue"] == "q" * 100
    assert several["queues"] == ["n" * 100, "b", "c"]
