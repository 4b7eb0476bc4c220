"""Who may do what: each right alone, and all of them against a model of what they exclude."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.messages.rights import CACHED_MAX, EVERY_RIGHT, Principal, Rights, not_allowed
from actors.node.private_files import rights_of
from quorate.actions import OF_NODE, OF_QUEUES, TABLE, Right
from quorate.protocol import Action, Request, TransactionRequest
from storage.kinds import KINDS
from tests.actors.gateway.listener_fixture import ListenerFixture
from tests.examples import examples

# -- tables --------------------------------------------------------------------------------------------------------


def test_every_action_has_a_right_of_those_that_there_are() -> None:
    rights = {*OF_QUEUES, *OF_NODE, Right.ANY, Right.NONE}
    assert {facts.right for facts in TABLE} == rights
    assert {facts.action for facts in TABLE} == set(Action)


def test_every_kind_of_record_is_read_with_the_right_to_the_log_alone_and_made_by_actions_with_a_right() -> None:
    """A row is the kind, and the actions whose requests make such records; none: the node makes them by itself."""
    made_by: dict[str, set[Action]] = {
        "produce": {Action.PRODUCE},
        "deliver": {Action.CONSUME},
        "take": {Action.CONSUME},
        "confirm": {Action.CONFIRM},
        "release": {Action.RELEASE},
        "extend": {Action.EXTEND},
        "expire": set(),
        "bury": {Action.BURY},
        "move": {Action.MOVE},
        "configure": {Action.CONFIGURE},
        "clear": {Action.CLEAR},
        "remove": {Action.REMOVE},
        "lead": set(),
        "members": {Action.CLUSTER, Action.NODE_INIT},
        "position": {Action.POSITION},
        "withhold": {Action.WITHHOLD},
        "topic": {Action.TOPIC},
        "append": {Action.APPEND},
        "retire": {Action.TOPIC},
        "droptopic": {Action.TOPIC},
        "offsets": {Action.GROUP, Action.COMMIT},
        "dropgroup": {Action.GROUP},
        "prepare": {Action.TRANSACTION},
        "decide": {Action.PREPARED},
    }
    writing = {action for actions in made_by.values() for action in actions}
    assert {facts.action for facts in TABLE if facts.writes} <= {*writing, Action.TRANSACTION}, "as its operations do"
    assert all(facts.right != Right.NONE for facts in TABLE if facts.action in writing)
    assert set(made_by) == {kind.name for kind in KINDS}, "which actions make records of these kinds?"


ASKS: list[tuple[str, dict[str, Any], str]] = [
    ("produce", {"action": 1, "queue": "a", "data": 1}, "produce:a"),
    ("produce several", {"action": 1, "queue": "a", "messages": [{"data": 1}]}, "produce:a"),
    ("consume", {"action": 2, "queue": "a"}, "consume:a"),
    ("consume of queues", {"action": 2, "queues": ["a"]}, "consume:a"),
    ("consume of a queue and queues", {"action": 2, "queue": "a", "queues": ["a"]}, "consume:a"),
    ("confirm in a queue", {"action": 3, "queue": "a", "msg_id": 1024}, "consume:a"),
    ("confirm", {"action": 3, "msg_id": 1024}, "consume:a"),
    ("move", {"action": 21, "queue": "a", "count": 1}, "consume:a"),
    ("bury", {"action": 20, "msg_id": 1024, "delivery": 1}, "consume:a"),
    ("monitor", {"action": 4, "queue": "a"}, "look:a"),
    ("node monitor", {"action": 104, "queue": "a"}, "look:a"),
    ("configure", {"action": 5, "queue": "a", "max_size": 9}, "manage:a"),
    ("clear", {"action": 6, "queue": "a"}, "manage:a"),
    ("list", {"action": 7}, "look:a"),
    ("node list", {"action": 107}, "look:a"),
    ("release", {"action": 9, "msg_id": 1024}, "consume:a"),
    ("extend", {"action": 10, "msg_id": 1024, "retry": 9}, "consume:a"),
    ("peek", {"action": 11, "queue": "a"}, "look:a"),
    ("show", {"action": 12, "msg_id": 1024}, "look:a"),
    ("show by key", {"action": 12, "queue": "a", "key": "k"}, "look:a"),
    ("remove", {"action": 13, "queue": "a"}, "manage:a"),
    ("topic create", {"action": 26, "command": "create", "topic": "a"}, "manage:a"),
    ("topic configure", {"action": 26, "command": "configure", "topic": "a", "keep_s": 9}, "manage:a"),
    ("topic trim", {"action": 26, "command": "trim", "topic": "a", "offset": "latest"}, "manage:a"),
    ("topic remove", {"action": 26, "command": "remove", "topic": "a"}, "manage:a"),
    ("topic show", {"action": 26, "command": "show", "topic": "a"}, "look:a"),
    ("topic list", {"action": 26, "command": "list"}, "look:a"),
    ("append", {"action": 27, "topic": "a", "data": 1}, "produce:a"),
    ("read", {"action": 28, "topic": "a", "partition": 0}, "consume:a"),
    ("heartbeat", {"action": 29, "command": "heartbeat", "topic": "a", "group": "g", "member": "m"}, "consume:a"),
    ("leave", {"action": 29, "command": "leave", "topic": "a", "group": "g", "member": "m"}, "consume:a"),
    ("group show", {"action": 29, "command": "show", "topic": "a", "group": "g"}, "look:a"),
    ("group list", {"action": 29, "command": "list", "topic": "a"}, "look:a"),
    ("group reset", {"action": 29, "command": "reset", "topic": "a", "group": "g", "offset": 0}, "manage:a"),
    ("group remove", {"action": 29, "command": "remove", "topic": "a", "group": "g"}, "manage:a"),
    ("commit", {"action": 30, "topic": "a", "group": "g", "positions": {"0": 1}}, "consume:a"),
    ("log", {"action": 14}, "log"),
    ("cluster status", {"action": 15, "command": "status"}, "look"),
    ("remove a node", {"action": 15, "command": "remove", "node_id": 2}, "operate"),
    ("init", {"action": 115}, "operate"),
    ("position", {"action": 17, "reader": "r", "trans_id": 1}, "log"),
    ("watch", {"action": 18, "queue": "a"}, "consume:a"),
    ("status", {"action": 108}, "look"),
]


@pytest.mark.parametrize(("name", "fields", "needed"), ASKS, ids=[name for name, _, _ in ASKS])
def test_each_request_needs_one_right_for_its_queue_and_no_other_will_do(
    name: str, fields: dict[str, Any], needed: str
) -> None:
    request = Request(**{key: value for key, value in fields.items() if key != "messages"})
    assert rights_of([needed]).missing(request) is None
    everything_else = [f"{right}:b" for right in OF_QUEUES]
    everything_else += [f"{right}:*" for right in OF_QUEUES if not needed.startswith(right)]
    held = rights_of([*everything_else, *([Right.LOG] if needed not in ("log",) else [])])
    names_its_queue = request.queue is not None or request.queues is not None
    if names_its_queue or needed in OF_NODE:
        assert held.missing(request) == needed.partition(":")[0]
    without = rights_of([one for one in everything_else if not one.startswith(needed.partition(":")[0])])
    assert without.missing(request) == needed.partition(":")[0]
    assert Rights({}).missing(request) is not None


def test_a_consumer_needs_the_right_to_each_queue_that_it_names() -> None:
    held = rights_of(["consume:a", "consume:b*"])
    assert held.missing(Request(Action.CONSUME, queues=["a", "b1", "b2"])) is None
    assert held.missing(Request(Action.CONSUME, queues=["a", "c"])) == "consume"
    assert held.missing(Request(Action.CONSUME, queue="c", queues=["a"])) == "consume"


def test_a_transaction_needs_the_rights_of_all_its_operations() -> None:
    request = TransactionRequest(
        Action.TRANSACTION,
        operations=[
            Request(Action.CONFIRM, queue="a", msg_id=1024),
            Request(Action.APPEND, topic="b"),
            Request(Action.COMMIT, topic="c", group="g", positions={0: 1}),
        ],
    )
    assert rights_of(["consume:a", "produce:b", "consume:c"]).missing(request) is None
    assert rights_of(["produce:b", "consume:c", "produce:a"]).missing(request) == "consume"
    assert rights_of(["consume:*"]).missing(request) == "produce"
    assert rights_of(["consume:a", "produce:b"]).missing(request) == "consume"
    assert Rights({}).missing(Request(Action.TRANSACTION)) == "any"


def test_who_makes_a_dead_letter_queue_of_one_must_be_allowed_to_produce_to_it() -> None:
    request = Request(Action.CONFIGURE, queue="a", dead_letter="b")
    assert rights_of(["manage:*"]).missing(request) == "consume", "its messages go where somebody may read them"
    assert rights_of(["manage:*", "consume:a"]).missing(request) == "produce"
    assert rights_of(["manage:a", "consume:a", "produce:b"]).missing(request) is None
    by_a_side_way = Request(Action.CONFIGURE, queue="a", queues=["a"], dead_letter="b")
    assert rights_of(["manage:a", "consume:a"]).missing(by_a_side_way) == "produce"


def test_who_moves_messages_to_a_queue_must_be_allowed_to_produce_to_it() -> None:
    request = Request(Action.MOVE, queue="a", to="b", count=1)
    assert rights_of(["consume:a", "produce:a"]).missing(request) == "produce"
    assert rights_of(["consume:b", "produce:b"]).missing(request) == "consume"
    held = rights_of(["consume:a", "produce:b"])
    assert held.missing(request) is None
    assert held.missing(Request(Action.MOVE, queue="a", to="c", count=1)) == "produce", (
        "what passed was to another queue"
    )


def test_what_there_is_no_action_for_is_not_told_to_who_may_nothing() -> None:
    assert Rights({}).missing(Request(999, queue="virtual")) == "any"
    assert rights_of(["look:x"]).missing(Request(999)) is None


def test_who_leads_is_told_to_all_who_may_anything_and_a_token_may_be_shown_by_everybody() -> None:
    leads = Request(Action.LEADER)
    for allow in ("look:x", "produce:x", "log", "operate"):
        assert rights_of([allow]).missing(leads) is None
    assert Rights({}).missing(leads) == "any"
    assert Rights({}).missing(Request(Action.AUTHENTICATE, token="t")) is None


def test_to_take_a_dead_letter_queue_away_moves_nothing_and_needs_no_more_than_to_manage() -> None:
    assert rights_of(["manage:a"]).missing(Request(Action.CONFIGURE, queue="a", dead_letter="")) is None
    assert rights_of(["manage:a"]).missing(Request(Action.CONFIGURE, queue="a", max_size=1)) is None


@pytest.mark.parametrize(
    ("request_", "right", "said"),
    [
        (Request(Action.PRODUCE, queue="a"), Right.PRODUCE, "the right produce for what the request names is missing"),
        (Request(Action.LIST), Right.LOOK, "the right look for what the request names is missing"),
        (Request(Action.NODE_STATUS), Right.LOOK, "the right look for all queues is missing"),
        (Request(Action.NODE_INIT), Right.OPERATE, "the right operate over the node is missing"),
        (Request(Action.LEADER), Right.ANY, "nothing is allowed to this client: it has no rights at all"),
    ],
)
def test_a_refusal_says_which_right_is_missing_and_for_what(request_: Request, right: str, said: str) -> None:
    reply = not_allowed(request_, right)
    assert (reply.error, reply.right, reply.reason) == ("not_allowed", right, said)


def test_what_was_looked_up_is_forgotten_when_there_is_much_of_it() -> None:
    held = rights_of(["produce:jobs*"])
    passed, known = held._passed[Action.PRODUCE], held._over[Right.PRODUCE]._known
    for number in range(CACHED_MAX - 1):
        passed.add(f"jobs{number}")
        known[f"jobs{number}"] = True
    sizes = []
    for number in range(3):
        assert held.missing(Request(Action.PRODUCE, queue=f"jobs.{number}")) is None
        sizes.append((len(passed), len(known)))
    assert sizes == [(CACHED_MAX, CACHED_MAX), (1, 1), (2, 2)]
    assert held.missing(Request(Action.PRODUCE, queue="other")) == "produce"


def test_rights_over_queues_are_for_patterns_of_names() -> None:
    held = rights_of(["produce:jobs.*", "produce:x?"])
    assert held.may("produce", "jobs.a")
    assert held.may("produce", "x1")
    assert not held.may("produce", "xjobs.a")
    assert not held.may("produce", "jobs")
    assert not held.may("consume", "jobs.a")
    assert held.shown() == ["produce:jobs.*", "produce:x?"]


def test_to_operate_is_to_read_the_log_and_the_status_too() -> None:
    held = rights_of(["operate"])
    assert held.missing(Request(Action.LOG)) is None
    assert held.missing(Request(Action.NODE_STATUS)) is None
    assert held.missing(Request(Action.MONITOR, queue="a")) == "look"
    assert rights_of(["log"]).missing(Request(Action.NODE_INIT)) == "operate"


# -- the model -----------------------------------------------------------------------------------------------------

QUEUES = ["a", "b", "ab"]
names = st.sampled_from(QUEUES)
patterns = st.sampled_from(["a", "b", "a*", "*b", "*", "?"])
rights = st.lists(
    st.one_of(st.builds(lambda r, p: f"{r}:{p}", st.sampled_from(OF_QUEUES), patterns), st.sampled_from(OF_NODE)),
    max_size=4,
)
ids = st.integers(1, 12).map(lambda n: n * 1024)
requests = st.one_of(
    st.builds(lambda q: {"action": 1, "queue": q, "data": "new", "retry": 30}, st.one_of(names, st.just("virtual"))),
    st.builds(lambda q: {"action": 2, "queue": q}, names),
    st.builds(lambda qs: {"action": 2, "queues": qs, "count": 3}, st.lists(names, min_size=1)),
    st.builds(lambda q, i: {"action": 3, "queue": q, "msg_id": i}, names, ids),
    st.builds(lambda i: {"action": 3, "msg_ids": i}, st.lists(ids, min_size=1, max_size=4)),
    st.builds(lambda a, i: {"action": a, "msg_id": i, "retry": 5}, st.sampled_from([9, 10, 12]), ids),
    st.builds(lambda a, q: {"action": a, "queue": q}, st.sampled_from([4, 6, 11, 13, 18, 104]), names),
    st.builds(
        lambda q, qs, d: {"action": 5, "queue": q, "queues": qs, "dead_letter": d, "max_deliveries": 1},
        names,
        st.lists(names, min_size=1),
        names,
    ),
    st.builds(
        lambda a, q, d: {"action": a, "queue": q, "queues": [q], "dead_letter": d, "msg_id": 1024},
        st.sampled_from([3, 7, 8, 12, 15, 999]),
        st.one_of(names, st.just("virtual")),
        st.one_of(names, st.just("virtual")),
    ),
    st.builds(lambda q, k: {"action": 12, "queue": q, "key": k}, names, st.sampled_from(["k0", "k1"])),
    st.sampled_from([{"action": 7}, {"action": 107, "pattern": "a*"}, {"action": 7, "after": "a"}]),
)


def filled() -> ListenerFixture:
    fixture = ListenerFixture({}, virtual={"virtual": ["a", "b"]})
    owner = fixture.client(host="127.0.0.1")
    owner.connection.principal = Principal("owner", EVERY_RIGHT)
    for queue in QUEUES:
        for n in range(2):
            assert owner.ask(Action.PRODUCE, queue=queue, data=f"secret of {queue}", retry=30, key=f"k{n}")["code"] == 0
        assert owner.ask(Action.CONSUME, queue=queue)["code"] == 0
    return fixture


def of_queue(fixture: ListenerFixture, queue: str) -> Any:
    """All that is to be known of it."""
    state = fixture.shard.state
    kept = state.queues.get(queue)
    messages = {
        message.msg_id: (bytes(message.data), message.place, message.deliveries, message.due_at)
        for message in state.messages.values()
        if message.queue == queue
    }
    return None if kept is None else (kept.settings(), messages)


@settings(max_examples=examples(300), deadline=None)
@given(allow=rights, asked=st.lists(requests, max_size=12))
def test_no_sequence_of_requests_reads_or_changes_what_its_rights_exclude(
    allow: list[str], asked: list[dict[str, Any]]
) -> None:
    fixture = filled()
    held = rights_of(allow)
    before = {queue: of_queue(fixture, queue) for queue in QUEUES}
    guest = fixture.client()
    guest.connection.principal = Principal("w", held)
    changing = ("produce", "consume", "manage")
    for request in asked:
        guest.send(request)
        for reply in guest.replies():
            text = str(reply)
            for queue in QUEUES:
                if not any(held.may(right, queue) for right in ("consume", "look")):
                    assert f"secret of {queue}'" not in text, (request, reply)
                if not any(held.may(right, queue) for right in OF_QUEUES):
                    rows = [row["name"] for row in reply.get("queue_list", ())]
                    assert queue not in rows
                    assert "no queue" not in str(reply.get("reason")) or request.get("queue") != queue
            if not all(held.may("produce", queue) for queue in ("a", "b")):
                assert "for a, b" not in text, "what a virtual queue stands for"
    for queue in QUEUES:
        if not any(held.may(right, queue) for right in changing):
            assert of_queue(fixture, queue) == before[queue], f"{queue} has changed"


def test_what_is_refused_is_the_same_whether_the_queue_is_there_or_not() -> None:
    fixture = filled()
    guest = fixture.client()
    guest.connection.principal = Principal("w", rights_of(["look:other"]))
    for action in (1, 2, 4, 5, 6, 11, 13, 18, 104):
        there = guest.ask(action, queue="a", data=1) if action == 1 else guest.ask(action, queue="a")
        absent = guest.ask(action, queue="z", data=1) if action == 1 else guest.ask(action, queue="z")
        assert there["error"] == absent["error"] == "not_allowed"
        assert there["reason"] == absent["reason"]
    for action in (9, 10, 12):
        guest.connection.principal = Principal("w", rights_of(["look:z", "consume:z"]))
        there, absent = (guest.ask(action, msg_id=n * 1024, retry=5) for n in (1, 99))
        assert there["error"] == absent["error"]
        assert there["reason"].replace("1024", "") == absent["reason"].replace(str(99 * 1024), "")


def test_a_virtual_queue_reaches_only_queues_that_its_producer_may_produce_to() -> None:
    fixture = filled()
    guest = fixture.client()
    for allow, code in ((["produce:virtual"], -1), (["produce:virtual", "produce:a"], -1), (["produce:?"], -1)):
        guest.connection.principal = Principal("w", rights_of(allow))
        assert guest.ask(Action.PRODUCE, queue="virtual", data=1)["code"] == code, allow
    guest.connection.principal = Principal("w", rights_of(["produce:virtual", "produce:a", "produce:b"]))
    assert len(guest.ask(Action.PRODUCE, queue="virtual", data=1)["msg_ids"]) == 2


def test_a_list_counts_and_shows_what_its_client_may_see() -> None:
    fixture = filled()
    guest = fixture.client()
    guest.connection.principal = Principal("w", rights_of(["look:a*"]))
    reply = guest.ask(Action.LIST, count=1)
    assert ([row["name"] for row in reply["queue_list"]], reply["queue_count"], reply["next"]) == (["a"], 2, "a")
    reply = guest.ask(Action.LIST, after="a")
    assert ([row["name"] for row in reply["queue_list"]], reply.get("next")) == (["ab"], None)
