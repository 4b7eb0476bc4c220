"""The JSON protocol as a session: a request is one object, and its answer one line.

Nearly all input is one whole object a read; that is decoded at once. Everything else (split objects, several in one
read, garbage) goes through the framer. Both ways give the same: tests/net/protocols/test_json_session.py feeds the same
bytes whole and byte by byte.
"""

import json
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from net.protocols.json_framing import OPEN_LIST, ObjectFramer, is_deeper, too_deep
from net.protocols.json_payload import plain_payload, shown, unreadable
from net.protocols.json_shapes import Batch, ItemAsItCame, Loose, Noted, RequestAsItCame
from net.protocols.session import LARGE_BYTES, Ask, Fault, Found, RequestLimits, Session
from quorate.log_replies import LogReplyWithEntries
from quorate.protocol import (
    AFTER_BYTES_MAX,
    BATCH_MAX,
    HEADER_BYTES_MAX,
    NO_DATA,
    Action,
    Code,
    DeliveredReply,
    ErrorWord,
    PeekReply,
    ProduceItem,
    Reply,
    Request,
    ScanReply,
    ShowReply,
    name_fault,
)
from quorate.request_faults import headers_fault

NAMED_BYTES_MAX: Final = 64 << 10
"""In a request of at most so many bytes the field that stands there twice is named."""

OPENING_BYTES: Final = frozenset(b"{[")
HOLD_MESSAGES: Final = frozenset({DeliveredReply, PeekReply, ScanReply, ShowReply})
QUOTE: Final = ord('"')
SPACES: Final = b" \t\r\n"
PLAIN_ITEM: Final = b'{"data":"'
SPACED_ITEM: Final = b'{"data": "'
"""How an item of a batch begins that has nothing but a string."""

LARGE_BODY_BYTES: Final = 32 << 10
"""A request of more bytes goes through the framer, also where it comes in one piece: what is known of it then saves to
look again, and one that is not whole is not decoded in vain."""

ANY_DEPTH: Final = -1
"""For how deep a request may be: it is known not to be too deep."""

DEEP: Final = "nested too deep"
NOUGHT: Final = msgspec.Raw(b"0")
"""Stands for data that are looked at apart."""

HEADERS_TEXT_MAX: Final = 16 * HEADER_BYTES_MAX
"""Headers that may be there have no longer text, each character of it escaped; one that is has a name many times."""

_NEEDS_FULL_CHECK: Final = Fault("", "")
"""Stands for no fault: there is more to look at."""

ESCAPE: Final = rb"\u00"
OF_SESSIONS: Final = ("as_job", "ttr", "asked_delay")
"""Fields that sessions of other protocols ask by."""

COLON: Final = ESCAPE + b"3"
"""How a colon may be written in another way begins so, as other characters do."""


_USUAL: Final = Reply
_ABSENT: Final = NO_DATA
_decode: Final = msgspec.json.Decoder(Request).decode
_decode_loose: Final = msgspec.json.Decoder(Loose).decode
_fields_in: Final = msgspec.json.Decoder(RequestAsItCame).decode
_item_fields_in: Final = msgspec.json.Decoder(ItemAsItCame).decode
_count_list: Final = msgspec.json.Decoder(Batch).decode
_items_in: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_fields_of: Final = astuple
_PRODUCE: Final = int(Action.PRODUCE)
_encode: Final = msgspec.json.Encoder().encode


class JsonSession(Session):
    """One client's stream. `receive` may be called with any piece of it."""

    def __init__(self, limits: RequestLimits) -> None:
        super().__init__()
        self._limits = limits
        self._framer = ObjectFramer(limits.request_bytes_max, limits.depth_max)

    def discard(self) -> None:
        """Nothing more is received."""
        super().discard()
        self._framer = ObjectFramer(self._limits.request_bytes_max, self._limits.depth_max)

    @property
    def state(self) -> bytes | None:
        """Nothing, where the next byte begins something new: a request says all that there is to know."""
        return b"" if self._framer.is_idle else None

    def answered(self, request: Request | None, reply: Reply, note: Any = None) -> bytes | Request | Ask:
        """The reply as one line, and behind it the entries of a raw log."""
        return encode_reply(reply)

    def fault_reply(self, fault: Fault) -> Reply:
        """The reply to a fault, with the request's action, queue and seq where they can be read."""
        return fault_reply(fault)

    def receive(self, data: bytes) -> list[Found]:
        """The requests and faults that `data` completes, in order."""
        size = len(data)
        if size <= LARGE_BODY_BYTES and self._framer.is_idle and size <= self._limits.request_bytes_max:
            try:
                request = _decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass  # the framer finds out whether it is wrong or only not all there
            else:
                fault = _fault_in(request, data, self._limits.depth_max)
                if size > LARGE_BYTES:
                    self.large = {0: size}
                elif self.large:
                    self.large = {}
                return [request] if fault is None else [fault]
        frames = self._framer.feed(data)
        self.partial_bytes = self._framer.partial_bytes
        self.large = {index: len(one) for index, one in enumerate(frames) if len(one) > LARGE_BYTES}
        seen = iter(self._framer.seen)
        return [
            decode_request(frame, self._limits, next(seen)) if isinstance(frame, bytes) else frame for frame in frames
        ]


def decode_request(body: bytes, limits: RequestLimits, seen: tuple[int, int] | None = None) -> Request | Fault:
    """The request that `body`, one whole object or datagram, holds.

    `seen`: what the framer saw of it, which has looked how deep it is, too.
    """
    if len(body) > limits.request_bytes_max:
        return Fault(ErrorWord.TOO_LARGE, f"a request may have {limits.request_bytes_max} bytes, this has {len(body)}")
    try:
        if len(body) > LARGE_BODY_BYTES and (seen is None or seen[1] >= BATCH_MAX or b'"headers"' in body):
            return _decode_dense(body, limits.depth_max, seen)
        request = _decode(body)
    except msgspec.ValidationError as error:
        return _validation_fault(str(error), body)
    except msgspec.DecodeError as error:
        return Fault(ErrorWord.BAD_JSON, _syntax_reason(str(error)), body=body)
    except UnicodeDecodeError as error:
        return Fault(ErrorWord.BAD_JSON, f"not UTF-8: {error.reason}")
    except RecursionError:
        return too_deep(limits.depth_max)
    return _fault_in(request, body, ANY_DEPTH if seen is not None else limits.depth_max) or request


def _decode_dense(body: bytes, depth_max: int, seen: tuple[int, int] | None) -> Request | Fault:
    """A large request that may have very many values. Raises as a decoder does.

    It is looked through before anything of it is made: a list that is too long, or stands there again and again, would
    make a million objects of 4 MiB, and hold everybody up for 0.2 s. Data are passed over once, and not for each thing
    that is to be known of the rest.
    """
    found: Any = _fields_in(body)
    count = sum([value is not UNSET for value in _fields_of(found)])
    if count != seen[0] if seen is not None else _has_double(body, found):
        return Fault(ErrorWord.FIELD, "a field stands there twice, or is none", body=_named_in(found))
    for part in (found.messages, found.msg_ids, found.queues):
        if part is not UNSET and memoryview(part)[0] == OPEN_LIST:
            _count_list(part)
    if _have_long_headers(body, found):
        return Fault(ErrorWord.FIELD, "headers: too many, or too long", body=_named_in(found))
    if not body.isascii() and (fault := _not_utf8(body)) is not None:
        return fault
    if seen is not None:
        depth_max = ANY_DEPTH
    data = found.data
    if data is UNSET or found.encoding is not UNSET:
        request = _decode(body)
        return _fault_in(request, body, depth_max) or request
    found.data = NOUGHT
    rest = _encode(found)
    request = _decode(rest)
    fault = _fault_in(request, rest, depth_max)
    if fault is None and (why := _fault_in_data(bytes(data), depth_max)) is not None:
        fault = too_deep(depth_max) if why is DEEP else Fault(ErrorWord.FIELD, f"data: {why}", body=rest)
    if fault is None and request.action == _PRODUCE:
        request.data = data
    return fault or request


def encode_reply(reply: Reply) -> bytes:
    """The reply as one line, and behind it the entries of a raw log."""
    kind = type(reply)
    if kind is not _USUAL and kind is LogReplyWithEntries:
        return _with_entries(cast("LogReplyWithEntries", reply))
    if reply.encoding is not None or (kind is not _USUAL and kind in HOLD_MESSAGES):
        reply = shown(reply)
    return _encode(reply) + b"\n"


def _with_entries(reply: LogReplyWithEntries) -> bytes:
    """The reply's line, and each entry behind its length: put together once."""
    entries, reply.entries = reply.entries, []
    parts = [_encode(reply), b"\n"]
    for entry in entries:
        parts.append(len(entry).to_bytes(4, "big"))
        parts.append(entry)
    return b"".join(parts)


def fault_reply(fault: Fault) -> Reply:
    """The reply to a fault, with the request's action, queue and seq where they can be read."""
    reply = Reply(action=0, code=Code.ERROR, error=fault.error, reason=fault.reason)
    if fault.body:
        try:
            loose = _decode_loose(fault.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return reply
        if isinstance(loose.action, int) and not isinstance(loose.action, bool):
            reply.action = loose.action
        if isinstance(loose.queue, str) and name_fault(loose.queue) is None:
            reply.queue = loose.queue
        if isinstance(loose.seq, (int, float, str)):
            reply.seq = loose.seq
    return reply


def _fault_in(request: Request, body: bytes, depth_max: int) -> Fault | None:
    """What is wrong with a request that decoded; where nothing is, its payloads are what they stand for."""
    fault = _fault_in_usual(request, body, depth_max)
    if fault is not _NEEDS_FULL_CHECK:
        return fault
    fault = _fault_in_more(request, body, depth_max)
    if fault is None and request.action != _PRODUCE:
        _drop_unread(request)
    elif fault is None and (request.encoding is not None or request.messages is not None):
        return _plain_fault_in(request, body)
    return fault


def _drop_unread(request: Request) -> None:
    """What only produce reads may stand in any request, and be large: nobody is to hold it while that is open."""
    request.data = NO_DATA
    request.messages = None
    request.encoding = None
    request.headers = None


def _plain_fault_in(request: Request, body: bytes) -> Fault | None:
    """Turn payloads that came with an `encoding` into the bytes that they stand for."""
    outer = request.encoding
    if outer is not None and (why := plain_payload(request)) is not None:
        return Fault(ErrorWord.FIELD, why, body=body)
    for index, item in enumerate(request.messages or ()):
        if (outer or item.encoding) and (why := plain_payload(item, outer)) is not None:
            return Fault(ErrorWord.FIELD, f"messages[{index}].{why}", body=body)
    return None


def _fault_in_usual(request: Request, body: bytes, depth_max: int) -> Fault | None:
    """What is wrong with the fields that nearly all requests have; `_NEEDS_FULL_CHECK` where there may be others, or
    one twice.

    Each field has a colon. As many colons as fields that are known to be there: no other is, and each is there once.
    So most requests are known to be right when two or three of their fields were looked at; a field of a Struct is the
    costliest thing here.
    """
    data = request.data
    colons = body.count(b":") - 1
    if data is not _ABSENT:
        if not body.isascii() and (fault := _not_utf8(body)) is not None:
            return fault  # the decoder has looked at all but the payloads
        colons -= 1
        if memoryview(data)[0] != QUOTE and (why := _fault_in_data(bytes(data), depth_max)) is not None:
            return too_deep(depth_max) if why is DEEP else Fault(ErrorWord.FIELD, f"data: {why}", body=body)
    queue = request.queue
    if queue is not None:
        colons -= 1
        if not (len(queue) < 64 and queue.isprintable()) and (why := name_fault(queue)):
            return Fault(ErrorWord.FIELD, f"queue {why}", body=body)
    if not colons or (colons == 1 and (request.msg_id is not None or request.retry is not None)):
        return None
    colons -= (
        (request.msg_id is not None)
        + (request.retry is not None)
        + (request.seq is not None)
        + (request.delay is not None)
        + (request.ttl is not None)
        + (request.msg_ids is not None)
        + (request.count is not None)
        + (request.wait is not None)
        + (request.priority is not None)
        + (request.full is not None)
        + (request.delivery is not None)
    )
    if not colons:
        return None
    messages = request.messages
    if messages is None or data is not _ABSENT or colons != len(messages) + 1 or not body.isascii():
        return _NEEDS_FULL_CHECK
    if len(body) > LARGE_BODY_BYTES:
        return _NEEDS_FULL_CHECK  # to look at each item takes less time than to search all
    # each colon that is left stands in the beginning of an item, so there is nothing else in one
    return None if (body.count(PLAIN_ITEM) or body.count(SPACED_ITEM)) == len(messages) else _NEEDS_FULL_CHECK


def _fault_in_data(data: bytes, depth_max: int) -> str | None:
    """What is wrong with the value of `data`; `DEEP`: it is too deep, in its request."""
    first = data[0]
    if first == QUOTE:
        return None
    if depth_max != ANY_DEPTH and first in OPENING_BYTES and is_deeper(data, depth_max - 1):
        return DEEP
    return unreadable(data)


def _not_utf8(body: bytes) -> Fault | None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        at = error.start - (len(body) - len(body.lstrip(SPACES)))  # of the object, however its stream was cut
        return Fault(ErrorWord.BAD_JSON, f"not UTF-8: {error.reason} at byte {at}")
    return None


def _fault_in_more(request: Request, body: bytes, depth_max: int) -> Fault | None:
    """What is wrong with all other fields; nothing has been changed in the request yet."""
    if not body.isascii() and (fault := _not_utf8(body)) is not None:
        return fault
    again = _encode(request)
    messages = request.messages
    if messages is not None and (len(again) > LARGE_BODY_BYTES or not _are_plain(messages, again)):
        fault = _fault_in_messages(messages, body, depth_max)
        if fault is not None:
            return fault
    if request.headers is not None and (why := headers_fault(request.headers)):
        return Fault(ErrorWord.FIELD, f"headers {why}", body=body)
    for name in OF_SESSIONS:
        if getattr(request, name) is not None:
            return Fault(ErrorWord.FIELD, f"Object contains unknown field `{name}`", body=body)
    if (
        request.key is not None
        or request.consumer is not None
        or isinstance(request.after, str)
        or request.to is not None
        or request.queues is not None
        or request.pattern is not None
        or request.reader is not None
        or request.dead_letter is not UNSET
    ):
        fault = _rare_fault_in(request, body)
        if fault is not None:
            return fault
    if body.count(b":") == again.count(b":") and (COLON not in body or body.count(ESCAPE) == again.count(ESCAPE)):
        return None
    return _duplicate_in(request, body, depth_max)


def _are_plain(messages: list[ProduceItem], again: bytes) -> bool:
    """Whether the items of a batch, in a request that is encoded so, have strings for their data, and no names."""
    strings = again.count(b'"data":"')
    has_names = b'"key":' in again or b'"headers":' in again
    return strings == len(messages) == again.count(b'"data":') and not has_names


def _is_nested(data: msgspec.Raw) -> bool:
    return data is not NO_DATA and memoryview(data)[0] in OPENING_BYTES


def _fault_in_messages(messages: list[ProduceItem], body: bytes, depth_max: int) -> Fault | None:
    """What is wrong with the items of a batch."""
    for index, item in enumerate(messages):
        if item.key is not None and (why := name_fault(item.key)):
            return Fault(ErrorWord.FIELD, f"messages[{index}].key {why}", body=body)
        if item.headers is not None and (why := headers_fault(item.headers)):
            return Fault(ErrorWord.FIELD, f"messages[{index}].headers {why}", body=body)
        # the item and the list around it are two levels more
        if item.data is not NO_DATA and memoryview(item.data)[0] != QUOTE and (why := unreadable(bytes(item.data))):
            return Fault(ErrorWord.FIELD, f"messages[{index}].data: {why}", body=body)
        looks = depth_max != ANY_DEPTH and item.encoding is None and _is_nested(item.data)
        if looks and is_deeper(bytes(item.data), depth_max - 3):
            return too_deep(depth_max)
    return None


def _rare_fault_in(request: Request, body: bytes) -> Fault | None:
    """What is wrong with the names that few requests have."""
    names: list[tuple[str, str | None]] = [("key", request.key), ("pattern", request.pattern)]
    names += [("reader", request.reader), ("consumer", request.consumer), ("to", request.to)]
    if isinstance(request.after, str) and (why := name_fault(request.after, AFTER_BYTES_MAX)):
        return Fault(ErrorWord.FIELD, f"after {why}", body=body)
    if request.queues is not None:
        names += [(f"queues[{index}]", name) for index, name in enumerate(request.queues)]
    if isinstance(request.dead_letter, str):
        names.append(("dead_letter", request.dead_letter))
    for field, name in names:
        if name is not None and (why := name_fault(name)):
            return Fault(ErrorWord.FIELD, f"{field} {why}", body=body)
    return None


def _duplicate_in(request: Request, body: bytes, depth_max: int) -> Fault | None:
    """A field that stands twice in the request or in one of its messages: the decoder takes the last of them silently.

    Counting is nearly always enough to know that there is none, and this is not called. Each field has a colon, and
    what the decoder found of its value has some: a colon too many is a field that it passed over. That is exact, since
    all is compared as it came, and takes the decoder's time: a field's value, whatever is in it, makes no object here.
    """
    if depth_max != ANY_DEPTH and is_deeper(body, depth_max):
        return too_deep(depth_max)  # in a value that was passed over: what was found has been looked at
    found: Any = _fields_in(body)
    if _has_double(body, found):
        return _twice(body)
    items: list[Any] = [found]
    if request.messages is not None:
        texts = _items_in(found.messages)
        items += map(_item_fields_in, texts)
        if any(_has_double(bytes(text), item) for text, item in zip(texts, items[1:], strict=True)):
            return _twice(body)
    for item in items:
        if item.headers is not UNSET and (name := _double_name(item.headers)) is not None:
            return Fault(ErrorWord.FIELD, f"headers: {name[:64]!r} stands there twice", body=body)
    return None


def _have_long_headers(body: bytes, found: Any) -> bool:
    """Whether some are longer than any may be; the decoder of a request would make an object of each first."""
    if b'"headers"' not in body and ESCAPE not in body:
        return False
    items: list[Any] = [found]
    if found.messages is not UNSET and memoryview(found.messages)[0] == OPEN_LIST:
        try:
            items += map(_item_fields_in, _items_in(found.messages))
        except msgspec.ValidationError:
            return False  # the decoder of a request says where
    return any(one.headers is not UNSET and memoryview(one.headers).nbytes > HEADERS_TEXT_MAX for one in items)


def _double_name(headers: msgspec.Raw) -> str | None:
    """A name that stands twice in these headers."""
    if memoryview(headers).nbytes > HEADERS_TEXT_MAX:
        return "a name"
    found = json.loads(bytes(headers), object_pairs_hook=Noted)
    return found.twice if isinstance(found, Noted) else None


def _named_in(found: Any) -> bytes:
    """What a fault's reply tells of its request, without the rest of a large one."""
    named = [("action", found.action), ("queue", found.queue), ("seq", found.seq)]
    parts = [
        b'"%s":%s' % (name.encode(), bytes(text))
        for name, text in named
        if text is not UNSET and memoryview(text).nbytes < 600
    ]
    return b"{" + b",".join(parts) + b"}"


def _has_double(text: bytes, found: msgspec.Struct) -> bool:
    colons = 0
    for value in _fields_of(found):
        if value is not UNSET:
            colons += 1 + bytes(value).count(b":")
    return colons != text.count(b":")


def _twice(body: bytes) -> Fault:
    """Says which field it is where that is quickly found. `body` is not too deep."""
    if len(body) <= NAMED_BYTES_MAX:
        outermost = json.loads(body, object_pairs_hook=Noted, parse_int=str, parse_float=str)
        items = outermost.get("messages", ())
        for found in (outermost, *(items if isinstance(items, list) else ())):
            if isinstance(found, Noted) and found.twice is not None:
                return Fault(ErrorWord.FIELD, f"{found.twice} stands there twice", body=body)
    return Fault(ErrorWord.FIELD, "a field stands there twice", body=body)


def _syntax_reason(text: str) -> str:
    if "truncated" in text:
        return "not JSON: it ends inside a value, or a string holds half of a surrogate pair"
    return "not " + text.replace("JSON is malformed", "JSON", 1)


def _validation_fault(text: str, body: bytes) -> Fault:
    """msgspec says "Expected `int`, got `str` - at `$.msg_id`"; people want the field first."""
    what, _, where = text.partition(" - at `$.")
    field = where.rstrip("`")
    error = ErrorWord.TIME if field.split(".")[-1] in ("delay", "ttl") else ErrorWord.FIELD
    what = what.replace("`", "")
    if what.startswith("Expected array of at most"):
        return Fault(error, f"messages, msg_ids, queues: at most {BATCH_MAX} of each", body=body)
    if what.startswith("Object contains unknown field"):
        return Fault(error, f"{field + ': ' if field else ''}there is no field {what.split()[-1]}", body=body)
    if what.startswith("Object missing required field"):
        return Fault(error, f"{what.split()[-1]} is missing", body=body)
    if not field:
        return Fault(ErrorWord.BAD_JSON, f"a request is a JSON object: {what[0].lower()}{what[1:]}", body=body)
    return Fault(error, f"{field}: {what[0].lower()}{what[1:]}", body=body)
