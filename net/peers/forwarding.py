"""Requests and replies between nodes: typed msgpack, whatever protocol the client speaks, without loss.

A payload is in neither: it is bytes of any encoding, and msgpack would take them for its own. It travels beside, and is
put back in its place.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from net.peers.messages import ForwardedCall, ForwardedOperation
from quorate.actions import BASE_LEVEL, LATER, STREAMS_LEVEL
from quorate.authentication import NotAllowedReply
from quorate.log_replies import LogReply, LogReplyWithEntries, PositionReply, TrimmedReply
from quorate.node_replies import DescribeReply, MetricsReply, StatusReply
from quorate.protocol import (
    AFTER_BYTES_MAX,
    NO_DATA,
    PLAIN,
    Action,
    ClusterReply,
    DeliveredReply,
    KeptReply,
    LeaderReply,
    PeekReply,
    ProduceItem,
    RedirectReply,
    Reply,
    Request,
    ScanReply,
    ShowReply,
    TransactionRequest,
    name_fault,
)
from quorate.queue_replies import ListReply, MonitorReply, MoveReply, SettingsReply
from quorate.request_faults import group_fault, group_name_fault, headers_fault, operations_fault
from quorate.stream_replies import (
    AppendReply,
    CommitReply,
    ConflictReply,
    GoneReply,
    GroupReply,
    PreparedReply,
    RawReadReplyWithFrames,
    ReadReply,
    TopicListReply,
    TopicReply,
    TransactionReply,
)

SHORT_NAME: Final = 64
"""A name of fewer characters has at most 255 bytes of UTF-8."""

_FILLER: Final = Raw(b"\xa0")
"""Stands where a payload belongs: not nil, which would be none."""

REPLY_KINDS: Final[tuple[type[Reply], ...]] = (
    *(Reply, DeliveredReply, PeekReply, ShowReply, MonitorReply, SettingsReply, ListReply),
    *(LeaderReply, RedirectReply, ClusterReply, LogReply, TrimmedReply, StatusReply, PositionReply),
    *(LogReplyWithEntries, NotAllowedReply, MoveReply, MetricsReply, ScanReply, DescribeReply, KeptReply),
    *(AppendReply, ReadReply, RawReadReplyWithFrames, GoneReply, ConflictReply, TopicReply, TopicListReply),
    *(GroupReply, CommitReply, TransactionReply, PreparedReply),
)
"""Every kind of reply that comes from another node. Its place here is its number: new ones go to the end."""

STREAM_FIELDS: Final = Request.__struct_fields__[Request.__struct_fields__.index("topic") :]
"""What requests about topics have."""

REQUEST_SINCE: Final[dict[str, int]] = {
    "on_duplicate": STREAMS_LEVEL,
    "unless": STREAMS_LEVEL,
    "system": STREAMS_LEVEL,
    **dict.fromkeys(STREAM_FIELDS, STREAMS_LEVEL),
}
"""From which feature level on nodes know a request's field: a row for each that is younger than `BASE_LEVEL`."""

ITEM_SINCE: Final[dict[str, int]] = dict.fromkeys(("on_duplicate", "attribute", "flag"), STREAMS_LEVEL)
"""The same of one of the messages of a produce."""

_REQUEST_FIELDS: Final = Request.__struct_fields__
_ITEM_FIELDS: Final = ProduceItem.__struct_fields__
assert set(_REQUEST_FIELDS[_REQUEST_FIELDS.index("asked_delay") + 1 :]) == set(REQUEST_SINCE), (
    "a new field needs its level"
)
assert {*_ITEM_FIELDS[_ITEM_FIELDS.index("scope") + 1 :]} == set(ITEM_SINCE), "which level has it?"

_encode = msgspec.msgpack.Encoder().encode
_as_json = msgspec.json.Encoder().encode
_check_json: Final = msgspec.json.Decoder(Raw).decode
HOLD_MANY: Final = (DeliveredReply, PeekReply, ScanReply, ReadReply)
_decoders: Final = tuple(msgspec.msgpack.Decoder(kind).decode for kind in REPLY_KINDS)
_numbers: Final = {kind: number for number, kind in enumerate(REPLY_KINDS)}


def packed_call(serial: int, client: int, reply_bytes_max: int, request: Request, principal: str = "") -> ForwardedCall:
    """Pack a call as it is sent to another node."""
    if isinstance(request, TransactionRequest):
        operations = [ForwardedOperation(*_packed(one)) for one in request.operations]
        plain = Request(request.action, seq=request.seq, patience=request.patience, xid=request.xid)
        return ForwardedCall(serial, client, reply_bytes_max, plain, [], principal, operations)
    return ForwardedCall(serial, client, reply_bytes_max, *_packed(request), principal)


def _packed(request: Request) -> tuple[Request, list[bytes | None]]:
    """Give a request without payloads, and those."""
    payloads: list[bytes | None] = []
    if request.token is not None:
        request = replace(request, token=None)  # no other node is to know it
    if request.data is not NO_DATA:
        payloads.append(bytes(request.data))
        request = replace(request, data=_FILLER)
    if request.messages is not None:
        payloads += [None if item.data is NO_DATA else bytes(item.data) for item in request.messages]
        request = replace(request, messages=[replace(item, data=_FILLER) for item in request.messages])
    return request, payloads


def level_of(request: Request) -> int:
    """Say which feature level a node has that can be asked that: an older one would take it for this node's fault."""
    if isinstance(request, TransactionRequest):
        return max([LATER[request.action], *map(level_of, request.operations)])
    level = LATER.get(request.action, BASE_LEVEL)
    for field, since in REQUEST_SINCE.items():
        if since > level and getattr(request, field) is not None:
            level = since
    for item in (request.messages or ()) if ITEM_SINCE else ():
        for field, since in ITEM_SINCE.items():
            if since > level and getattr(item, field) is not None:
                level = since
    return level


def unpacked_request(call: ForwardedCall) -> Request | None:
    """Unpack the request of a call that another node sent; None if it is none that a client could have sent it."""
    if not call.operations:
        return _unpacked(call.request, call.payloads)
    plain, operations = call.request, [_unpacked(one.request, one.payloads) for one in call.operations]
    known = [one for one in operations if one is not None]
    if plain.action != Action.TRANSACTION or len(known) < len(operations) or operations_fault(known):
        return None
    return TransactionRequest(plain.action, seq=plain.seq, patience=plain.patience, xid=plain.xid, operations=known)


def _unpacked(request: Request, payloads: list[bytes | None]) -> Request | None:
    """Unpack one request; None if it is none."""
    if not has_fit_names(request) or not _are_fit(request, payloads):
        return None
    if request.messages is None and len(payloads) < 2:  # nearly all
        data = payloads[0] if payloads else None
        request.data = NO_DATA if data is None else Raw(data)
        return request
    items = request.messages or ()
    has_own = len(payloads) == len(items) + 1
    if not has_own and len(payloads) != len(items):
        return None
    own = payloads[0] if has_own else None
    request.data = NO_DATA if own is None else Raw(own)
    for item, one in zip(items, payloads[has_own:], strict=True):
        item.data = NO_DATA if one is None else Raw(one)
    return request


def _are_fit(request: Request, payloads: list[bytes | None]) -> bool:
    """Whether every payload is what its encoding says: it is stored as it is, and others get those bytes."""
    for at, data in enumerate(payloads):
        if data is None:
            continue
        item = at - (len(payloads) - len(request.messages or ()))
        encoding = request.encoding if item < 0 or request.messages is None else request.messages[item].encoding
        if encoding == PLAIN:
            continue
        try:
            _check_json(data)
            if not data.isascii():
                data.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
    return True


def has_fit_names(request: Request) -> bool:
    """Whether every name in it may be used; a client's session has seen to that, and whoever forwards it may lie."""
    queue = request.queue
    if queue is not None and not (len(queue) < SHORT_NAME and queue.isprintable()) and name_fault(queue):
        return False
    if request.headers is not None and headers_fault(request.headers):
        return False
    if (
        request.key is None
        and request.consumer is None
        and request.messages is None
        and request.queues is None
        and request.pattern is None
        and request.reader is None
        and request.after is None
        and request.to is None
        and request.topic is None
        and request.group is None
        and request.member is None
        and request.producer is None
        and request.dead_letter is UNSET
    ):
        return True  # nearly always
    names = [request.key, request.pattern, request.consumer, request.reader, request.to, *(request.queues or ())]
    names += [item.key for item in request.messages or ()]
    names.append(request.topic)
    if request.group is not None and group_fault(request.group):
        return False
    if any(name is not None and group_name_fault(name) for name in (request.member, request.producer)):
        return False
    if any(item.headers is not None and headers_fault(item.headers) for item in request.messages or ()):
        return False
    if isinstance(request.dead_letter, str):
        names.append(request.dead_letter)
    if isinstance(request.after, str) and name_fault(request.after, AFTER_BYTES_MAX):
        return False
    return all(name is None or name_fault(name) is None for name in names)


PackedReply = tuple[int, bytes, list[bytes]]
"""A reply's kind, the reply without payloads, its payloads."""

_decode_packed: Final = msgspec.msgpack.Decoder(PackedReply).decode


def packed_reply(reply: Reply) -> PackedReply:
    """Pack a reply as it is sent back."""
    if type(reply) is Reply and reply.data is None:  # nearly all
        return 0, _encode(reply), []
    payloads: list[bytes] = []
    stripped: Any = reply
    if reply.data is not None:
        payloads.append(bytes(reply.data))
        stripped = replace(stripped, data=None)
    if isinstance(reply, HOLD_MANY):
        if reply.messages is not None:
            payloads += [bytes(item.data) for item in reply.messages]
            stripped = replace(stripped, messages=[replace(item, data=_FILLER) for item in reply.messages])
    elif isinstance(reply, LogReply):
        payloads += [_as_json(record) for record in reply.records]  # they hold payloads, which are JSON's text
        stripped = replace(stripped, records=[])
    elif isinstance(reply, LogReplyWithEntries):
        payloads += [bytes(entry) for entry in reply.entries]
        stripped = replace(stripped, entries=[])
    elif isinstance(reply, RawReadReplyWithFrames):
        payloads += [bytes(frames) for frames in reply.frames]
        stripped = replace(stripped, frames=[])
    elif isinstance(reply, TransactionReply):
        its = [*(reply.replies or ()), *(() if reply.refused is None else (reply.refused,))]
        payloads += [b"" if one is None else _encode(packed_reply(one)) for one in its]
        stripped = replace(stripped, replies=None, refused=None)
    elif isinstance(reply, ShowReply) and reply.message is not None:
        payloads.append(bytes(reply.message.data))
        stripped = replace(stripped, message=replace(reply.message, data=_FILLER))
    return _numbers[type(reply)], _encode(stripped), payloads


def unpacked_reply(packed: PackedReply) -> Reply:
    """Unpack the reply that another node sent back. Raises msgspec.DecodeError, ValueError for what is none."""
    number, data, payloads = packed
    if not 0 <= number < len(_decoders):
        raise ValueError(f"there is no reply of kind {number}")
    reply = _decoders[number](data)
    if not payloads and type(reply) is Reply:
        return reply
    rest = iter(payloads)
    try:
        if type(reply) is Reply and payloads:
            reply.data = Raw(next(rest))
        elif isinstance(reply, HOLD_MANY):
            for item in reply.messages or ():
                item.data = Raw(next(rest))
        elif isinstance(reply, LogReply):
            reply.records += map(Raw, rest)
        elif isinstance(reply, LogReplyWithEntries):
            reply.entries = list(rest)
        elif isinstance(reply, RawReadReplyWithFrames):
            reply.frames = list(rest)
        elif isinstance(reply, TransactionReply):
            its = [unpacked_reply(_decode_packed(one)) if one else None for one in rest]
            reply.refused = its.pop() if its and reply.index is not None else None
            reply.replies = its or None
        elif isinstance(reply, ShowReply) and reply.message is not None:
            reply.message.data = Raw(next(rest))
    except StopIteration:
        raise ValueError("a reply lacks a payload") from None
    if isinstance(reply, ClusterReply) and not all(map(_is_member_row, reply.members)):
        raise ValueError("a member without its number and address")
    if isinstance(reply, (StatusReply, MetricsReply)) and not all(map(_is_shard_row, reply.shards)):
        raise ValueError("a shard without its number")
    return reply


def _is_member_row(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("node_id"), int) and isinstance(row.get("port"), int)


def _is_shard_row(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("shard"), int)
