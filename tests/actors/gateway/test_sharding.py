"""Which shard does what, and what several shards' answers come to."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.gathers import ClusterRows, ConfirmSum, Listed, Measured, MembersInSync, NodeStatus
from actors.gateway.sharding import SEVERAL, Part, Sharding
from actors.messages.call import Call
from actors.messages.sorting import cursor, position, rank
from quorate.node_replies import MetricsReply, StatusReply
from quorate.protocol import Action, ClusterReply, Code, ErrorWord, Reply, Request, TransactionRequest, refusal
from quorate.queue_replies import ListReply, QueueRow
from quorate.shard_replies import ShardedClusterReply
from quorate.shards import shard_of_queue
from tests.actors.cranked import Probe, ref

SHARDS = 4
SHARDING = Sharding(SHARDS, 2)


class Asker:
    """A client."""

    has_left = is_gone = False

    has_ended = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Not in these tests."""


def call(request: Request, reply_bytes_max: int = 4 << 20) -> Call:
    return Call(request, Asker(), 0, ref(Probe()), reply_bytes_max)


def queue_in(shard: int, after: int = 0) -> str:
    return next(f"q{n}" for n in range(after, 1000) if shard_of_queue(f"q{n}", SHARDS) == shard)


def test_a_queue_and_a_message_are_in_one_shard() -> None:
    for shard in range(SHARDS):
        queue = queue_in(shard)
        for action in (Action.PRODUCE, Action.CONSUME, Action.MONITOR, Action.PEEK, Action.CLEAR, Action.LEADER):
            assert SHARDING.shard_of(Request(action, queue=queue)) == shard
        for action in (Action.CONFIRM, Action.SHOW, Action.EXTEND):
            assert SHARDING.shard_of(Request(action, msg_id=7 * 1024 + shard)) == shard
            named = Request(action, msg_id=7 * 1024 + shard, queue=queue_in((shard + 1) % SHARDS))
            assert SHARDING.shard_of(named) == shard, "the message says it, not the queue that the client names"
        assert SHARDING.shard_of(Request(Action.LOG, shard=shard)) == shard


def test_a_transaction_is_of_one_shard_or_is_refused_with_the_shards_of_its_names() -> None:
    def asked(*operations: Request) -> TransactionRequest:
        return TransactionRequest(Action.TRANSACTION, operations=list(operations))

    for shard in range(SHARDS):
        together = asked(
            Request(Action.CONFIRM, msg_id=7 * 1024 + shard),
            Request(Action.RELEASE, msg_ids=[9 * 1024 + shard, 11 * 1024 + shard]),
            Request(Action.APPEND, topic=queue_in(shard)),
            Request(Action.PRODUCE, queue=queue_in(shard, 50)),
        )
        assert SHARDING.shard_of(together) == shard
        assert SHARDING.fault(together) is not None, "it is not asked of one that is in one shard"
    apart = asked(Request(Action.APPEND, topic=queue_in(0)), Request(Action.CONFIRM, msg_ids=[1024, 1025]))
    assert SHARDING.shard_of(apart) == SEVERAL
    fault = SHARDING.fault(apart)
    assert fault is not None
    assert fault.error == ErrorWord.SEVERAL_SHARDS
    assert f"{queue_in(0)!r} in shard 0, message 1025 in shard 1" in str(fault.reason)
    by_key = asked(Request(Action.APPEND, topic=queue_in(0)), Request(Action.CONFIRM, key="k", scope="all"))
    assert SHARDING.shard_of(by_key) == SEVERAL


def test_what_names_nothing_that_there_is_is_refused_somewhere() -> None:
    assert SHARDING.shard_of(Request(Action.CONFIRM, msg_id=1024 + 900)) == 2
    assert SHARDING.shard_of(Request(Action.PRODUCE)) == 2
    assert SHARDING.shard_of(Request(Action.LOG)) == 0
    lost = Request(Action.LOG, shard=SHARDS)
    assert SHARDING.shard_of(lost) == SEVERAL
    fault = SHARDING.fault(lost)
    assert fault is not None
    assert fault.error == ErrorWord.FIELD


def test_a_dead_letter_queue_is_in_the_same_shard_or_refused() -> None:
    queue, near, far = queue_in(1), queue_in(1, 500), queue_in(3)
    assert SHARDING.shard_of(Request(Action.CONFIGURE, queue=queue, dead_letter=near)) == 1
    assert SHARDING.shard_of(Request(Action.CONFIGURE, queue=queue, dead_letter=None)) == 1
    request = Request(Action.CONFIGURE, queue=queue, dead_letter=far)
    assert SHARDING.shard_of(request) == SEVERAL
    fault = SHARDING.fault(request)
    assert fault is not None
    assert "{tag}" in str(fault.reason)
    tagged = Request(Action.CONFIGURE, queue="{x}.in", dead_letter="{x}.dead")
    assert SHARDING.shard_of(tagged) == shard_of_queue("x", SHARDS)


def test_queues_are_grouped_in_their_order_of_preference() -> None:
    first, second, third = queue_in(0), queue_in(0, 300), queue_in(1)
    groups = SHARDING.groups(Request(Action.CONSUME, queues=[first, second, third, first]))
    assert groups == [(0, [first, second]), (1, [third])]
    assert SHARDING.groups(Request(Action.CONSUME, queues=[first, third, second])) == [
        (0, [first]),
        (1, [third]),
        (0, [second]),
    ]


def test_ids_are_asked_of_their_shards_and_summed() -> None:
    ids = [1024, 1025, 2048, 2049, 1024]
    asked = call(Request(Action.CONFIRM, msg_ids=ids, seq="s"))
    parts = SHARDING.of_messages(asked.request)
    assert [(part.shard, part.request.msg_ids) for part in parts] == [(0, [1024, 2048]), (1, [1025, 2049])]
    gathered = ConfirmSum(asked, parts)
    is_complete: list[bool] = []
    for order, count in ((1, 1), (0, 2)):
        gathered.answer(order, parts[order].request, Reply(action=3, code=0, confirmed=count))
        is_complete.append(gathered.is_complete)
    assert is_complete == [False, True]
    reply = gathered.reply()
    assert (reply.code, reply.confirmed, reply.seq) == (Code.OK, 3, "s")


@pytest.mark.parametrize(
    ("errors", "error"),
    [
        ((None, ErrorWord.NOT_IN_FLIGHT), None),
        ((ErrorWord.NO_SUCH_MESSAGE, ErrorWord.NOT_IN_FLIGHT), ErrorWord.NOT_IN_FLIGHT),
        ((ErrorWord.NOT_IN_FLIGHT, ErrorWord.NO_SUCH_MESSAGE), ErrorWord.NOT_IN_FLIGHT),
        ((ErrorWord.NO_SUCH_MESSAGE, ErrorWord.NO_LEADER), ErrorWord.NO_LEADER),
        ((None, ErrorWord.NO_LEADER), ErrorWord.UNKNOWN_OUTCOME),
        ((None, ErrorWord.UNKNOWN_OUTCOME), ErrorWord.UNKNOWN_OUTCOME),
    ],
)
def test_a_part_that_was_not_done_is_told(errors: tuple[str | None, ...], error: str | None) -> None:
    asked = call(Request(Action.RELEASE, msg_ids=[1024, 1025]))
    gathered = ConfirmSum(asked, SHARDING.of_messages(asked.request))
    for order, word in enumerate(errors):
        request = gathered.parts[order].request
        is_done = Reply(action=9, code=0, released=1)
        gathered.answer(order, request, is_done if word is None else refusal(request, word, "why"))
    assert gathered.reply().error == error


def rows(*names: str) -> list[QueueRow]:
    return [QueueRow(name, 1, 1, 0, 0, 0, 9, 0, False) for name in names]


def listed(request: Request, *replies: Any) -> Reply:
    gathered = Listed(call(request), SHARDING.every(request)[: len(replies)])
    for order, reply in enumerate(replies):
        gathered.answer(order, request, reply)
    return gathered.reply()


def page(names: str, total: int, following: str | None = None) -> ListReply:
    return ListReply(action=7, code=0, queue_list=rows(*names), queue_count=total, next=following)


def test_a_list_is_of_all_shards_in_the_order_of_the_names() -> None:
    reply = listed(Request(Action.LIST), page("ad", 2), page("bc", 2))
    assert isinstance(reply, ListReply)
    assert [row.name for row in reply.queue_list] == list("abcd")
    assert (reply.queue_count, reply.next, reply.partial) == (4, None, False)


def test_a_list_gives_no_name_behind_one_that_a_shard_has_not_given_yet() -> None:
    reply = listed(Request(Action.LIST, count=3), page("ace", 9, "e"), page("bfg", 3))
    assert isinstance(reply, ListReply)
    assert [row.name for row in reply.queue_list] == list("abc")
    assert reply.next == "c"
    reply = listed(Request(Action.LIST, count=2), page("ab", 9, "b"), page("xy", 2))
    assert isinstance(reply, ListReply)
    assert [row.name for row in reply.queue_list] == list("ab")
    reply = listed(Request(Action.LIST, count=5), page("ab", 9, "b"), page("cde", 3))
    assert isinstance(reply, ListReply)
    assert ([row.name for row in reply.queue_list], reply.next) == (list("ab"), "b")


def test_a_list_goes_on_behind_a_page_of_which_all_queues_are_gone() -> None:
    """A shard has chosen them while it looked through its names, and they were removed before it answered."""
    reply = listed(Request(Action.LIST, count=2), page("", 9, "b"), page("cd", 2))
    assert isinstance(reply, ListReply)
    assert ([row.name for row in reply.queue_list], reply.next) == ([], "b")
    request = Request(Action.LIST, sort="size", descending=True, count=1)
    ranked = listed(request, page("", 9, cursor(-3.0, "b")), page("x", 1))
    assert isinstance(ranked, ListReply)
    assert ([row.name for row in ranked.queue_list], ranked.next) == ([], cursor(-3.0, "b"))
    alone = listed(request, page("", 9, cursor(-3.0, "b")))
    assert isinstance(alone, ListReply)
    assert alone.next == cursor(-3.0, "b")


def test_a_list_never_goes_back_though_a_row_has_moved_forward_since_it_was_chosen() -> None:
    request = Request(Action.LIST, sort="size", count=1, after=cursor(5.0, "x"))
    moved = ListReply(action=7, code=0, queue_list=rows("y"), queue_count=2, next=cursor(6.0, "y"))
    reply = listed(request, moved, page("", 0))
    assert isinstance(reply, ListReply)
    assert ([row.name for row in reply.queue_list], reply.next) == (["y"], cursor(6.0, "y"))


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=12),
    st.sampled_from(["name", "size"]),
    st.booleans(),
    st.integers(1, 4),
)
def test_pages_of_a_sorted_list_over_shards_are_a_plain_sort_of_all(
    queues: list[tuple[int, int]], sort: str, down: bool, count: int
) -> None:
    """Each shard gives the first `count` behind the place, of its own."""
    all_rows = [(shard, QueueRow(f"q{n:02}", size, 0, 0, 0, 0, 0, 0, False)) for n, (shard, size) in enumerate(queues)]

    def place(row: QueueRow) -> tuple[float, str]:
        return (0.0, row.name) if sort == "name" else (rank(float(row.size), is_descending=down), row.name)

    is_reversed = down and sort == "name"
    wanted = [row.name for _, row in sorted(all_rows, key=lambda one: place(one[1]), reverse=is_reversed)]

    def answer(shard: int, after: str | None) -> ListReply:
        own = sorted((row for at, row in all_rows if at == shard), key=place, reverse=is_reversed)
        if after is not None:
            behind = (0.0, after) if sort == "name" else position(after)
            assert behind is not None
            own = [row for row in own if (place(row) < behind if is_reversed else place(row) > behind)]
        reply = ListReply(action=7, code=0, queue_list=own[:count], queue_count=len(own))
        if len(own) > count:
            reply.next = own[count - 1].name if sort == "name" else cursor(*place(own[count - 1]))
        return reply

    found: list[str] = []
    after: str | None = None
    while True:
        request = Request(Action.LIST, sort=sort, descending=down, count=count, after=after)
        reply = listed(request, answer(0, after), answer(1, after))
        assert isinstance(reply, ListReply)
        found += [row.name for row in reply.queue_list]
        after = reply.next
        if after is None:
            break
    assert found == wanted


def test_a_nodes_numbers_are_the_rows_of_all_its_workers_and_say_whose_are_missing() -> None:
    request = Request(Action.NODE_METRICS)
    parts = SHARDING.every(request)

    def measured(*answers: Reply) -> Reply:
        gathered = Measured(call(request), parts)
        for order, answer in enumerate(answers):
            gathered.answer(order, request, answer)
        return gathered.reply()

    def row(shard: int) -> MetricsReply:
        return MetricsReply(
            action=109, code=0, node_id=1, version="1", shards=[{"shard": shard}], seconds=(), records=()
        )

    away = refusal(request, ErrorWord.NO_LEADER, "away")
    whole = measured(*[row(part.shard) for part in parts])
    assert isinstance(whole, MetricsReply)
    assert [one["shard"] for one in whole.shards] == [part.shard for part in parts]
    some = measured(row(0), *[away] * (len(parts) - 1))
    assert isinstance(some, MetricsReply)
    assert (some.partial, some.missing_shards) == (True, [part.shard for part in parts[1:]])
    assert measured(*[away] * len(parts)).error == ErrorWord.NO_LEADER


def test_a_list_without_a_shard_says_so_and_one_without_any_is_refused() -> None:
    request = Request(Action.LIST)
    away = refusal(request, ErrorWord.NO_LEADER, "away")
    reply = listed(request, page("ab", 2), away)
    assert isinstance(reply, ListReply)
    assert (reply.partial, reply.missing_shards, len(reply.queue_list)) == (True, [1], 2)
    assert listed(request, away, away).error == ErrorWord.NO_LEADER
    assert listed(request, page("ab", 2), refusal(request, ErrorWord.FIELD, "after")).error == ErrorWord.FIELD


def test_a_status_sums_the_workers_and_says_which_does_not_run() -> None:
    request = Request(Action.NODE_STATUS)
    gathered = NodeStatus(call(request), [Part(shard, request) for shard in range(3)], 1, {2: "its data are damaged"})
    for shard in (1, 0):
        gathered.answer(
            shard,
            request,
            StatusReply(
                action=108, code=0, node_id=1, node_type=1, version="1", pid=10 + shard, uptime_s=1.0,
                resident_bytes=100, connections=2, requests=3, shards=[{"shard": shard}], limits_reached=[f"l{shard}"],
            ),
        )  # fmt: skip
    gathered.answer(2, request, refusal(request, ErrorWord.NO_LEADER, "no node could be asked"))
    reply = gathered.reply()
    assert isinstance(reply, StatusReply)
    assert reply.pid == 11, "of the worker that was asked"
    assert (reply.connections, reply.requests, reply.resident_bytes) == (4, 6, 200)
    assert [row["shard"] for row in reply.shards] == [0, 1, 2]
    assert reply.shards[2]["fault"] == "its data are damaged"
    assert (reply.partial, reply.missing_shards, reply.limits_reached) == (True, [2], ["l0", "l1"])


@pytest.mark.parametrize(
    "action",
    [Action.PRODUCE, Action.CONSUME, Action.MONITOR, Action.CONFIGURE, Action.CLEAR, Action.REMOVE, Action.PEEK],
)
def test_a_field_that_means_nothing_moves_no_request(action: Action) -> None:
    for shard in range(SHARDS):
        for more in ({"msg_id": 7}, {"msg_ids": [1, 2, 3]}, {"shard": 1}):
            assert SHARDING.shard_of(Request(action, queue=queue_in(shard), **more)) == shard, more


def test_a_queue_does_not_say_whose_log_is_meant() -> None:
    assert SHARDING.shard_of(Request(Action.POSITION, queue=queue_in(3), shard=1)) == 1
    assert SHARDING.shard_of(Request(Action.LIST, queue=queue_in(3))) == SEVERAL


def test_the_members_are_shard_0s_and_every_shard_has_its_leader() -> None:
    assert SHARDING.shard_of(Request(Action.CLUSTER, command="nonsense")) == 0
    assert SHARDING.shard_of(Request(Action.NODE_INIT)) == 0
    for every in (None, "status", "upgrade", "balance", "add", "remove"):
        asked = Request(Action.CLUSTER, command=every)
        assert (SHARDING.shard_of(asked), SHARDING.fault(asked)) == (SEVERAL, None)
    assert SHARDING.shard_of(Request(Action.CLUSTER, command="transfer", shard=3)) == 3
    for shard in (None, SHARDS):
        unclear = Request(Action.CLUSTER, command="transfer", shard=shard)
        assert SHARDING.shard_of(unclear) == SEVERAL
        refused = SHARDING.fault(unclear)
        assert refused is not None
        assert refused.error == ErrorWord.FIELD
        assert "There are 4" in (refused.reason or "")


def test_a_clusters_status_has_a_row_for_each_shard_and_says_which_is_missing() -> None:
    asked = call(Request(Action.CLUSTER, command="status"))
    spread = ClusterRows(asked, SHARDING.every(asked.request))
    for order, part in enumerate(spread.parts):
        member = {"node_id": 1, "host": "h", "port": 7 + part.shard, "role": "voter", "lag": part.shard}
        reply = ClusterReply(action=15, code=Code.OK, leader_node_id=order, members=[member], level=3)
        refused = refusal(part.request, ErrorWord.NO_LEADER, "nobody leads")
        spread.answer(order, part.request, refused if part.shard == 2 else reply)
    whole = spread.reply()
    assert isinstance(whole, ShardedClusterReply)
    assert whole.members[0]["port"] == 7
    assert [row.get("leader_node_id") for row in whole.shards] == [0, 1, None, 3]
    assert whole.shards[3]["members"] == [{"node_id": 1, "role": "voter", "lag": 3}]
    assert whole.shards[2]["fault"] == "nobody leads"
    assert (whole.partial, whole.missing_shards) == (True, [2])


def roles_of(*roles: str) -> list[dict[str, Any]]:
    return [{"node_id": n, "host": "h", "port": n, "role": role} for n, role in enumerate(roles, 1) if role]


@pytest.mark.parametrize(
    ("node_id", "others", "says"),
    [
        (4, roles_of("voter", "voter", "voter"), None),
        (4, roles_of("voter", "voter", "catching up"), None),
        (4, roles_of("voter", "voter", "voter", "voter"), None),
        (2, roles_of("voter"), None),
        (2, None, None),
        (2, roles_of("voter", "", "voter", "voter"), "shard 1 still has node 4, which was removed"),
        (5, roles_of("voter", "voter", "voter", "wanted"), "shard 1 still has node 4, which was removed"),
    ],
)
def test_the_members_change_when_all_shards_have_followed_the_last_change(
    node_id: int, others: list[dict[str, Any]] | None, says: str | None
) -> None:
    asked = call(Request(Action.CLUSTER, command="remove", node_id=node_id))
    following = MembersInSync(asked, [Part(shard, asked.request) for shard in (0, 1)])
    own = roles_of("voter", "voter", "voter")
    following.answer(0, asked.request, ClusterReply(action=15, code=Code.OK, leader_node_id=1, members=own))
    reply: Reply = refusal(asked.request, ErrorWord.NO_LEADER, "nobody leads")
    if others is not None:
        reply = ClusterReply(action=15, code=Code.OK, leader_node_id=1, members=others)
    following.answer(1, asked.request, reply)
    if says is None:
        assert following.fault is None
    else:
        assert says in (following.fault or "")
        assert says in (following.reply().reason or "")


def test_a_list_without_a_shard_that_does_not_answer_is_partial() -> None:
    asked = call(Request(Action.LIST))
    listed = Listed(asked, SHARDING.every(asked.request))
    for order, part in enumerate(listed.parts):
        reply: Reply = ListReply(action=7, code=Code.OK, queue_list=[*rows(f"q{order}")], queue_count=1)
        if part.shard == 1:
            reply = refusal(part.request, ErrorWord.UNKNOWN_OUTCOME, "the worker of shard 1 did not answer in time")
        listed.answer(order, part.request, reply)
    whole = listed.reply()
    assert isinstance(whole, ListReply)
    assert (whole.queue_count, whole.partial, whole.missing_shards) == (3, True, [1])
