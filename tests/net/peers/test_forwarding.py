"""What is forwarded arrives as it was, whatever its payloads are."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from net.peers import forwarding
from net.peers.forwarding import REPLY_KINDS, level_of, packed_call, packed_reply, unpacked_reply, unpacked_request
from net.peers.link import encoded
from net.peers.messages import Forward, ForwardAnswers, PeerMessage
from net.protocols.json_session import encode_reply
from quorate.authentication import AuthenticatedReply
from quorate.log_replies import LogReply, LogReplyWithEntries, RawLogReply
from quorate.node_replies import ClientReply, ConfigReply
from quorate.protocol import (
    NAME_BYTES_MAX,
    NO_DATA,
    PLAIN,
    Action,
    DeliveredItem,
    DeliveredReply,
    MessageView,
    PeekReply,
    ProduceItem,
    RedirectReply,
    Reply,
    Request,
    ShowReply,
    TransactionRequest,
)
from quorate.queue_replies import ListReply, QueueRow
from quorate.shard_replies import EmptyReply, ShardedClusterReply, ShardMapReply
from quorate.stream_replies import (
    AppendReply,
    CommitReply,
    ConflictReply,
    GoneReply,
    GroupReply,
    PartitionRow,
    RawReadReply,
    RawReadReplyWithFrames,
    ReadReply,
    StreamMessage,
    TopicListReply,
    TopicReply,
    TopicRow,
    TransactionReply,
)
from storage.records import BASE_LEVEL, LEVEL

VIEW = MessageView(
    msg_id=1, queue="q", data=Raw(b"\xff\x00"), state="ready", produced_at=1.0, due_at=2.0, expires_at=3.0, retry=4.0,
    priority=5, deliveries=6, trans_id=7, encoding=PLAIN, consumer="c",
)  # fmt: skip

REQUESTS = [
    Request(1, queue="q", data=Raw(b'{"a":1}'), seq="s", delay=1.5, key="k"),
    Request(1, queue="q", data=Raw(b"\x00\xff"), encoding=PLAIN),
    Request(1, queue="q", data=Raw(b""), encoding=PLAIN),
    Request(1, queue="q", messages=[ProduceItem(Raw(b"1"), priority=3), ProduceItem(Raw(b"\xc0"), encoding=PLAIN)]),
    Request(1, queue="q", messages=[ProduceItem(Raw(b""), encoding=PLAIN), ProduceItem(NO_DATA)]),
    TransactionRequest(
        31,
        seq=9,
        operations=[
            Request(1, queue="q", messages=[ProduceItem(Raw(b"1")), ProduceItem(Raw(b"\xc0"), encoding=PLAIN)]),
            Request(27, topic="t", data=Raw(b"\xff"), encoding=PLAIN, key="k"),
            Request(30, topic="t", group="g", positions={3: 4}),
        ],
    ),
    Request(2, queues=["a", "b"], wait=3.0, consumer="worker"),
    Request(7, pattern="*", after="name"),
]
REPLIES = [
    Reply(action=1, code=0, queue="q", msg_id=1024),
    Reply(action=2, code=0, queue="q", msg_id=1, data=Raw(b'"x"'), deliveries=1, seq=7),
    Reply(action=2, code=0, queue="q", msg_id=1, data=Raw(b"\xff"), encoding=PLAIN, deliveries=1),
    Reply(action=1, code=-1, error="queue_full", reason="full"),
    DeliveredReply(
        action=2, code=0, messages=[DeliveredItem(1, Raw(b"1"), "q", 1), DeliveredItem(2, Raw(b""), "q", 2)]
    ),
    PeekReply(action=11, code=0, messages=[VIEW]),
    ShowReply(action=12, code=0, msg_id=1, message=VIEW),
    ListReply(action=7, code=0, queue_list=[QueueRow("q", 1, 1, 0, 0, 0, 9, 0, False)], queue_count=1, next="q"),
    RedirectReply(action=1, code=-2, leader_node_id=2, leader_host="h", leader_port=3),
    AppendReply(action=27, code=0, topic="t", msg_ids=[1], partitions=[0], offsets=[7]),
    ReadReply(
        action=28,
        code=0,
        topic="t",
        partition=0,
        messages=[StreamMessage(7, 1, Raw(b"\xff"), 1.5, 80, encoding=PLAIN), StreamMessage(8, 2, Raw(b"1"), 1.5, 101)],
        next=9,
        first=0,
        end=9,
    ),
    RawReadReplyWithFrames(
        action=28,
        code=0,
        topic="t",
        partition=0,
        bytes=3,
        offset=7,
        position=80,
        next=9,
        first=0,
        end=9,
        first_position=0,
        end_position=120,
        frames=[b"\xff\x00", b"a"],
    ),
    GoneReply(action=28, code=-1, topic="t", error="trimmed", partition=0, next=5),
    TopicReply(action=26, code=0, topic="t", partitions=[PartitionRow(0, 1, 5, 4, 99)], keep_s=1.0),
    TopicListReply(action=26, code=0, topics=[TopicRow("t", 1, 4, 99, 0, 1.0, 5)], topic_count=1),
    GroupReply(action=29, code=0, topic="t", group="g", member="m", generation=3, owns=[1], positions={1: 5}),
    CommitReply(action=30, code=0, topic="t", group="g", positions={1: 5}),
    TransactionReply(
        action=31,
        code=0,
        replies=[
            Reply(action=3, code=0, confirmed=1),
            None,
            CommitReply(action=30, code=0, topic="t", group="g", positions={1: 5}),
        ],
    ),
    TransactionReply(
        action=31,
        code=-1,
        error="offset_conflict",
        index=0,
        refused=ConflictReply(action=27, code=-1, topic="t", partition=1, next=5),
    ),
    LogReplyWithEntries(
        action=14, code=0, shard=1, bytes=11, first_trans_id=1, last_trans_id=9, committed=9, entries=[b"\x00", b"ab"]
    ),
]


def shown(value: object) -> object:
    """With payloads as bytes, which can be compared."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, {name: shown(one) for name, one in msgspec.structs.asdict(value).items()}
    return [shown(one) for one in value] if isinstance(value, list) else value


def carried(message: PeerMessage) -> PeerMessage:
    """Over a link."""
    arrived: PeerMessage = msgspec.msgpack.decode(encoded(message), type=PeerMessage)
    return arrived


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_arrives_as_it_was(request_: Request) -> None:
    before = shown(request_)
    message = carried(Forward(1, [packed_call(5, 0, 100, request_)]))
    assert isinstance(message, Forward)
    arrived = unpacked_request(message.calls[0])
    assert shown(arrived) == before == shown(request_), "and what was sent is left as it was"


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_arrives_as_it_was(reply: Reply) -> None:
    before = shown(reply)
    message = carried(ForwardAnswers([(5, packed_reply(reply))]))
    assert isinstance(message, ForwardAnswers)
    assert shown(unpacked_reply(message.answers[0][1])) == before == shown(reply)


def test_a_transaction_with_what_no_client_could_have_asked_is_no_request() -> None:
    for wrong in (Request(2, queue="q"), Request(1, queue="a\0"), Request(1, queue="q", replicate=2)):
        call = packed_call(1, 0, 1, TransactionRequest(31, operations=[Request(1, queue="q", data=Raw(b"1")), wrong]))
        assert unpacked_request(call) is None
    call = packed_call(1, 0, 1, TransactionRequest(31, operations=[Request(1, queue="q", data=Raw(b"1"))]))
    call.request = Request(1, queue="q")
    assert unpacked_request(call) is None


def test_an_absent_payload_stays_absent() -> None:
    arrived = unpacked_request(packed_call(1, 0, 1, Request(4, queue="q")))
    assert arrived is not None
    assert arrived.data is NO_DATA


def test_payloads_that_are_not_those_of_the_messages_are_no_request() -> None:
    call = packed_call(1, 0, 1, REQUESTS[3])
    call.payloads.pop()
    call.payloads.pop()
    assert unpacked_request(call) is None


@pytest.mark.parametrize("packed", [(99, b"", []), (0, b"\xff", []), (1, packed_reply(REPLIES[4])[1], [])])
def test_what_is_no_reply_is_told(packed: tuple[int, bytes, list[bytes]]) -> None:
    with pytest.raises((ValueError, msgspec.DecodeError)):
        unpacked_reply(packed)


def test_every_kind_of_reply_has_a_number() -> None:
    kinds = {Reply}
    while (more := {sub for kind in kinds for sub in kind.__subclasses__()} | kinds) != kinds:
        kinds = more
    where_the_client_is = {AuthenticatedReply, RawLogReply, EmptyReply, ShardMapReply, ShardedClusterReply}
    where_the_client_is |= {ClientReply, ConfigReply, RawReadReply}
    assert kinds - where_the_client_is == set(REPLY_KINDS)


def test_a_log_with_payloads_comes_back_as_the_json_that_it_is() -> None:
    """Payloads are JSON's text: as msgpack they cut the link between two workers."""
    records = [
        {"trans_id": 1, "kind": "produce", "queue": "q", "data": Raw(b'{"a": [1, "x"]}')},
        {"trans_id": 2, "kind": "confirm", "msg_ids": [1024]},
    ]
    reply = LogReply(
        action=14, code=0, shard=1, records=records, first_trans_id=1, last_trans_id=2, committed=2, seq="s"
    )
    frame = encoded(ForwardAnswers([(1, packed_reply(reply))], 7))
    message = msgspec.msgpack.decode(frame, type=PeerMessage)
    assert isinstance(message, ForwardAnswers)
    again = unpacked_reply(message.answers[0][1])
    assert encode_reply(again) == encode_reply(reply)


OLD_ITEM = msgspec.defstruct(
    "OldItem",
    [
        (name, Any, None)
        for name in (
            *("data", "delay", "ttl", "retry", "priority", "key", "encoding", "headers", "expire", "keep", "scope"),
        )
    ],
    forbid_unknown_fields=True,
)
OLD_REQUEST = msgspec.defstruct(
    "OldRequest",
    [
        ("messages", list[OLD_ITEM] | None, None),  # type: ignore[valid-type]
        *(
            (name, Any, None)
            for name in (
                *("action", "queue", "data", "delay", "ttl", "retry", "priority", "key", "seq", "msg_id"),
                *("msg_ids", "queues", "pattern", "count", "wait", "replicate", "shard", "after", "max_size"),
                *("default_ttl", "default_retry", "max_deliveries", "paused", "dead_letter", "command"),
                *("node_id", "host", "port", "encoding", "consumer", "patience", "raw", "reader", "trans_id"),
                *("token", "headers", "expire", "full", "delivery", "reason", "expires_after", "state", "to"),
                *("create", "sort", "descending", "sums", "keep", "in_turn", "max_ready", "nack", "as_job"),
                *("early", "discard", "value", "scope", "held", "ttr", "asked_delay"),
            )
        ),
    ],
    forbid_unknown_fields=True,
)
"""A request as dbc96fc reads it, which is at level 5, and cuts the link for a field that it does not know."""

SAMPLES: dict[str, list[Any]] = {
    **{name: [1] for name in ("delay", "ttl", "retry", "priority", "seq", "msg_id", "count", "wait", "replicate")},
    **{name: [1] for name in ("shard", "max_size", "default_ttl", "default_retry", "max_deliveries", "node_id")},
    **{name: [1] for name in ("port", "patience", "trans_id", "delivery", "expires_after", "max_ready", "ttr")},
    **{name: ["x"] for name in ("queue", "key", "pattern", "dead_letter", "command", "host", "encoding", "consumer")},
    **{name: ["x"] for name in ("reader", "token", "reason", "state", "to", "sort", "value")},
    **{name: [True, False] for name in ("raw", "full", "create", "descending", "sums", "keep", "in_turn", "nack")},
    **{name: [True, False] for name in ("as_job", "early", "discard", "held")},
    "asked_delay": [0],
    "data": [Raw(b"1")],
    "msg_ids": [[1]],
    "queues": [["x"]],
    "messages": [
        *([ProduceItem()], [ProduceItem(), ProduceItem(headers={}), ProduceItem()], [ProduceItem(expire="drop")]),
        *([ProduceItem(expire="bury")], [ProduceItem(keep=False)], [ProduceItem(scope="all")]),
        [ProduceItem(on_duplicate="keep")],
        [ProduceItem(attribute="a")],
    ],
    "after": [7, "x", "x" * NAME_BYTES_MAX, "x" * (NAME_BYTES_MAX + 1), "é" * 140],
    "paused": [True, False, "in", "none"],
    "headers": [{}],
    "expire": ["drop", "bury"],
    "scope": ["all"],
    "on_duplicate": ["refuse", "keep", "replace"],
    "unless": [1],
    "system": [True, False],
    **{name: ["x"] for name in ("topic", "group", "member", "producer", "attribute")},
    **{name: [1] for name in ("partition", "position", "time", "max_bytes", "session", "generation", "number")},
    **{name: [1] for name in ("expected", "partitions", "keep_s", "keep_bytes", "keep_for_groups_bytes")},
    **{name: [True, False] for name in ("keep_for_groups", "force", "fresh", "accept_append", "accept_read")},
    "flag": [2],
    "xid": ["XID:1:a:b:q"],
    "closed": [[0]],
    "filters": [{"g": ["a"]}],
    "offset": [1, "earliest", "latest"],
    "owns": [[], [1]],
    "positions": [{1: 2}],
}


@pytest.mark.parametrize("field", [name for name in Request.__struct_fields__ if name != "action"])
def test_an_older_node_is_sent_nothing_that_it_can_not_read(field: str) -> None:
    for action in Action:
        for value in SAMPLES[field]:
            request = Request(action, **{field: value})
            if level_of(request) <= BASE_LEVEL:
                sent = msgspec.msgpack.encode(packed_call(1, 1, 0, request).request)
                msgspec.msgpack.decode(sent, type=OLD_REQUEST)


def test_who_knows_all_may_be_asked_all() -> None:
    for field, values in SAMPLES.items():
        for value in values:
            assert BASE_LEVEL <= level_of(Request(Action.PRODUCE, **{field: value})) <= LEVEL


def test_a_later_field_or_item_needs_the_level_that_its_row_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forwarding.REQUEST_SINCE, "held", LEVEL)
    monkeypatch.setitem(forwarding.ITEM_SINCE, "keep", LEVEL + 1)
    assert level_of(Request(Action.CONFIRM, held=True)) == LEVEL
    assert level_of(Request(Action.CONFIRM)) == BASE_LEVEL
    assert level_of(Request(Action.PRODUCE, messages=[ProduceItem(), ProduceItem(keep=True)], held=True)) == LEVEL + 1
    assert level_of(Request(Action.PRODUCE, messages=[ProduceItem(key="k")])) == BASE_LEVEL


@pytest.mark.parametrize(
    "payload",
    [
        b'oops}\n{"action":2,"code":0,"data":"forged"',
        b"",
        b"1 2",
        b'"\xff"',
        b"[" * 3000 + b"]" * 3000,
        b"nul",
        b'{"a":1',
    ],
)
def test_a_payload_that_is_not_what_its_encoding_says_is_none_that_a_client_can_have_sent(payload: bytes) -> None:
    """It was stored, and broke the stream of every JSON client that got it."""
    own = Request(1, queue="q", data=Raw(payload))
    many = Request(1, queue="q", messages=[ProduceItem(Raw(b"1")), ProduceItem(Raw(payload))])
    both = Request(1, queue="q", data=Raw(payload), messages=[ProduceItem(Raw(b"1"))])
    for request in (own, many, both):
        assert unpacked_request(packed_call(1, 1, 1000, request)) is None
    for request in (
        Request(1, queue="q", data=Raw(payload), encoding=PLAIN),
        Request(1, queue="q", messages=[ProduceItem(Raw(payload), encoding=PLAIN)]),
    ):
        assert unpacked_request(packed_call(1, 1, 1000, request)) is not None
