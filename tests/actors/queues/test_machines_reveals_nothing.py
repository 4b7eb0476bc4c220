"""What a principal is answered does not depend on queues that it may not look at.

Two shards differ in the queues b* alone; somebody whose rights are for a* asks both the same, in any combination of
fields, and must be answered the same.
"""

import random
from typing import Any

import msgspec
import pytest

from actors.gateway.access import AccessTable, Entry
from actors.messages.call import Call
from actors.messages.rights import Principal, Rights
from bench.field_cases import cases
from quorate.actions import DONE_BY_SHARDS
from quorate.protocol import Action, Request
from storage.records import Place
from tests.actors.queues.shard import NOBODY, Shard

CASES = 1_500
EATER = Principal("eater", Rights({right: ["a*"] for right in ("produce", "consume", "look", "manage")}))
TOLD_ELSEWHERE = (Action.NODE_METRICS, Action.NODE_STATUS, Action.LOG, Action.CLUSTER, Action.NODE_LEAVE)
ASKED = sorted(action for action in DONE_BY_SHARDS if action not in TOLD_ELSEWHERE)


def shard_with(key: str, *, is_gone: bool) -> Shard:
    """Messages of a, and of b: one of those has the key, or they are gone. Both logs have as many records."""
    shard = Shard(waiters_max=100_000, waits_per_client_max=100_000)
    shard.ask(Action.PRODUCE, queue="a", data=1, retry=60, key="own", scope="all")
    ids = shard.ask(Action.PRODUCE, queue="b", messages=[{"data": n} for n in range(20)], retry=60)["msg_ids"]
    shard.ask(Action.PRODUCE, queue="b", data=2, retry=60, key=key, scope="all")
    shard.ask(Action.PRODUCE, queue="a", data=3, retry=60, delay=50)
    for msg_id in ids[::2]:
        shard.ask(*((Action.CONFIRM,) if is_gone else (Action.WITHHOLD,)), msg_id=msg_id)
    return shard


def answers(shard: Shard, request: Request) -> Any:
    call = Call(msgspec.structs.replace(request), shard, 1_000_000, NOBODY, principal=EATER)
    if EATER.rights.missing(request) is not None:
        return None  # the Listener refuses it
    shard.execute([call])
    shard.settle()
    return shard.replies.pop(call.order, None)


@pytest.mark.parametrize("action", ASKED, ids=str)
def test_no_combination_of_fields_tells_of_queues_that_one_may_not_look_at(action: int) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    one, other = shard_with("k", is_gone=False), shard_with("kk", is_gone=True)
    assert one.state.trans_id == other.state.trans_id
    ids = (2 * 1024, 3 * 1024, 22 * 1024)
    for number, case in enumerate(cases(action, seed, ids, most=CASES, valid_alone=True)):
        try:
            request = msgspec.json.decode(msgspec.json.encode(case), type=Request)
        except msgspec.ValidationError:
            continue
        if action == Action.PRODUCE and (case.get("scope") or "messages" in case):
            continue  # that such a key is taken is visible: docs/security.md says so
        if request.as_job or request.ttr is not None:
            continue  # no client can say so
        if number % 200 == 199:
            one, other = shard_with("k", is_gone=False), shard_with("kk", is_gone=True)
        assert answers(one, request) == answers(other, request), (seed, case)


def test_a_scan_pages_over_own_messages_alone_and_names_no_others() -> None:
    shards = shard_with("k", is_gone=False), shard_with("kk", is_gone=True)
    for state in (None, "ready", "delayed"):
        pages: list[list[Any]] = [[], []]
        for shard, told in zip(shards, pages, strict=True):
            after = 0
            while True:
                fields = {} if state is None else {"state": state}
                call = shard.call(Action.SCAN, shard=0, full=True, count=1, after=after, **fields)
                call.principal = EATER
                shard.execute([call])
                shard.settle()
                reply = shard.replies[call.order]
                told.append(([one["msg_id"] for one in reply["messages"]], reply.get("next")))
                if reply.get("next") is None:
                    break
                after = reply["next"]
        assert pages[0] == pages[1]
        own = [msg_id for ids, _ in pages[0] for msg_id in ids]
        nexts = {one for _, one in pages[0] if one is not None}
        assert nexts <= {msg_id // 1024 for msg_id in own}


def test_a_scan_of_few_among_very_many_goes_on_by_itself_in_pieces() -> None:
    shard = Shard()
    shard.broker.jobs.set_late(lambda: True)
    for _ in range(5):
        shard.ask(Action.PRODUCE, queue="b", messages=[{"data": n} for n in range(1000)])
    own = shard.ask(Action.PRODUCE, queue="a", data=1)["msg_id"]
    call = shard.call(Action.SCAN, shard=0, full=True, count=1)
    call.principal = EATER
    shard.execute([call])
    turns = 0
    while shard.broker.has_more:
        shard.broker.go_on(shard.now)
        turns += 1
    shard.settle()
    reply = shard.replies[call.order]
    assert ([one["msg_id"] for one in reply["messages"]], reply.get("next")) == ([own], None)
    assert turns > 2


@pytest.mark.parametrize(("scope", "of"), [({"scope": "all"}, "a"), ({}, "b")])
def test_a_key_that_is_taken_names_its_message_to_who_may_look_there(scope: dict[str, str], of: str) -> None:
    shard = Shard()
    holder = shard.ask(Action.PRODUCE, queue="b", data=1, key="job", **scope)["msg_id"]
    shows = {}
    for name, rights in (("looks", Rights({"produce": ["*"], "look": ["*"]})), ("not", Rights({"produce": ["*"]}))):
        call = shard.call(Action.PRODUCE, queue=of, data=2, key="job", **scope)
        call.principal = Principal(name, rights)
        shard.execute([call])
        shard.settle()
        shows[name] = shard.replies[call.order]
    assert (shows["looks"]["error"], shows["looks"]["msg_id"]) == ("duplicate_key", holder)
    assert shows["not"]["error"] == "duplicate_key"
    assert "msg_id" not in shows["not"]
    assert str(holder) not in shows["not"]["reason"]


def test_how_much_others_do_is_for_operators() -> None:
    shard = shard_with("k", is_gone=False)
    told = {}
    for name, node in (("eater", ()), ("boss", ("operate",))):
        call = shard.call(Action.MONITOR, queue="a")
        call.principal = Principal(name, Rights({"look": ["*"]}, node))
        shard.execute([call])
        shard.settle()
        reply = shard.replies[call.order]
        told[name] = [reply[field] for field in ("trans_id", "log_size", "max_id")]
    assert told["eater"] == [0, 0, 0], "the fields stay: the original's clients read them"
    assert all(told["boss"])


@pytest.mark.parametrize("action", [Action.CONFIRM, Action.RELEASE, Action.EXTEND, Action.BURY, Action.WITHHOLD])
def test_who_holds_a_message_that_it_may_not_have_any_more_is_told_so(action: int) -> None:
    """Found: a worker whose rights were narrowed was told that another had its message, or that there is none."""
    shard = Shard()
    held = shard.ask(Action.PRODUCE, queue="mailhold", data=1, retry=60)["msg_id"]
    shard.ask(Action.CONSUME, queue="mailhold")
    waiting = shard.ask(Action.PRODUCE, queue="mailhold", data=1, retry=60)["msg_id"]
    mine = shard.ask(Action.PRODUCE, queue="mail3", data=1, retry=60)["msg_id"]
    shard.ask(Action.CONSUME, queue="mail3")
    before = AccessTable({"w": Entry(Rights({"consume": ["mail*"]})), "x": Entry(Rights({"consume": ["mail3"]}))})
    table = AccessTable({name: Entry(Rights({"consume": ["mail3"]})) for name in "wx"})
    table.follow(before)
    again = AccessTable({name: Entry(Rights({"consume": ["mail3"]})) for name in "wx"})
    again.follow(table)

    def asked(name: str, **fields: Any) -> Any:
        call = shard.call(action, retry=5, **fields)
        call.principal = Principal(name, again.entries[name].rights)
        shard.execute([call])
        shard.settle()
        return shard.replies.pop(call.order)

    assert asked("w", msg_id=held)["error"] == "not_allowed"
    assert asked("w", msg_ids=[waiting, held])["error"] == "not_allowed"
    assert asked("w", msg_id=waiting).get("error") != "not_allowed", "nobody holds it"
    assert asked("x", msg_id=held).get("error") != "not_allowed", "that it never might see"
    assert asked("w", msg_ids=[held, mine]).get("error") != "not_allowed", "what may be done is"
    assert shard.state.messages[held].place == Place.IN_FLIGHT
