"""What a JSON object says as a request, or what is wrong with it.

Nearly all requests are small and usual: they are decoded, and two or three of their fields looked at. A large one is
looked at before anything is made of it, and judged in steps (`Judging`).
"""

from collections.abc import Generator
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import astuple

from net.protocols.json_framing import OPEN_LIST, QUOTE, SPACES, first_double, is_deeper, too_deep, twice
from net.protocols.json_names import rare_fault_in, topic_fault_in
from net.protocols.json_payload import UNREADABLE, plain_payload, read_on, unreadable
from net.protocols.json_shapes import Batch, ItemAsItCame, RequestAsItCame
from net.protocols.json_unknown import OF_SESSIONS, READING_ERRORS, without_unknown
from net.protocols.session import Ask, Fault, RequestLimits
from quorate.protocol import (
    BATCH_MAX,
    HEADER_BYTES_MAX,
    NO_DATA,
    Action,
    ErrorWord,
    ProduceItem,
    Request,
    name_fault,
)
from quorate.request_faults import headers_fault

SHOWN_BYTES_MAX: Final = 600
"""Of a request that is wrong, what is longer is not said in its reply."""

OPENING_BYTES: Final = frozenset(b"{[")
PLAIN_ITEM: Final = b'{"data":"'
SPACED_ITEM: Final = b'{"data": "'
"""How an item of a batch begins that has nothing but a string."""

LARGE_BODY_BYTES: Final = 32 << 10
"""A request of more bytes goes through the framer, also where it comes in one piece: what is known of it then saves to
look again, and one that is not whole is not decoded in vain."""

STEP_BYTES: Final = 512 << 10
"""So much of its payloads is looked at in one step."""

ANY_DEPTH: Final = -1
"""For how deep a request may be: it is known not to be too deep."""

DEEP: Final = "nested too deep"
NOUGHT: Final = msgspec.Raw(b"0")
"""Stands for data that are looked at apart."""

REASON_MAX: Final = 300
"""Of what a decoder says, which repeats a name of any length."""

AS_JSON: Final = (b"null", b'"json"')
"""Encodings that change nothing."""

HEADERS_TEXT_MAX: Final = 16 * HEADER_BYTES_MAX
"""Headers that may be there have no longer text, each character of it escaped; one that is has a name many times."""

_NEEDS_FULL_CHECK: Final = Fault("", "")
"""Stands for no fault: there is more to look at."""

_PLAIN: Final = Fault("", "")
"""Stands for no fault, in a request without payloads."""

ESCAPE: Final = rb"\u00"
COLON: Final = ESCAPE + b"3"
"""How a colon may be written in another way begins so, as other characters do."""


_ABSENT: Final = NO_DATA
_decode: Final = msgspec.json.Decoder(Request).decode
_fields_in: Final = msgspec.json.Decoder(RequestAsItCame).decode
_item_fields_in: Final = msgspec.json.Decoder(ItemAsItCame).decode
_count_list: Final = msgspec.json.Decoder(Batch).decode
_items_in: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_fields_of: Final = astuple
_PRODUCE: Final = int(Action.PRODUCE)
_APPEND: Final = int(Action.APPEND)
_encode: Final = msgspec.json.Encoder().encode


def decode_whole(data: bytes, limits: RequestLimits) -> Request | None:
    """Read the request that small `data` hold; None: they are wrong, or not one whole object, and a framer has to
    see."""
    try:
        request = _decode(data)
    except READING_ERRORS:
        return None
    return request if _fault_in(request, data, limits.depth_max) is None else None


def decode_request(body: bytes, limits: RequestLimits, seen: tuple[int, int]) -> Request | Ask | Fault:
    """Read the request that `body`, one whole object, holds. `seen`: by the framer, which has looked how deep it is,
    too. Where fields are ignored (see `without_unknown`), the `Ask`'s note is a list of their names."""
    if len(body) > limits.request_bytes_max:
        return Fault(ErrorWord.TOO_LARGE, f"a request may have {limits.request_bytes_max} bytes, this has {len(body)}")
    if len(body) > LARGE_BODY_BYTES:
        judging = Judging(body, limits.depth_max, seen)
        while (outcome := judging.step()) is None:
            pass
        return outcome
    read = _read(body, limits.depth_max)
    if not isinstance(read, Fault) or (known := without_unknown(body, seen[0])) is None:
        return read
    if isinstance(known, Fault):
        return known
    read = _read(known.body, limits.depth_max)
    return read if isinstance(read, Fault) else Ask(read, known.ignored)


def _read(body: bytes, depth_max: int) -> Request | Fault:
    try:
        request = _decode(body)
    except READING_ERRORS as error:
        return reading_fault(error, body, depth_max)
    return _fault_in(request, body, ANY_DEPTH) or request


def _fault_in_fields(found: Any, fields: int) -> Fault | None:
    """Whether a field stands there twice, or is none."""
    if sum([value is not UNSET for value in _fields_of(found)]) != fields:
        return Fault(ErrorWord.FIELD, "a field stands there twice, or is none", body=_named_in(found))
    return None


def _fault_in_lists(found: Any, body: bytes) -> Fault | None:
    """Whether lists or headers are longer than any may be, or text is none; raises where a list is too long."""
    for part in (found.messages, found.msg_ids, found.queues, found.delivery):
        if part is not UNSET and memoryview(part)[0] == OPEN_LIST:
            _count_list(part)
    if _have_long_headers(body, found):
        return Fault(ErrorWord.FIELD, "headers: too many, or too long", body=_named_in(found))
    return None if body.isascii() else _not_utf8(body)


def _data_and_rest(found: Any, body: bytes) -> tuple[Raw | None, bytes]:
    """Split a request's data, where they are what they stand for, from the request without them; or give all of it."""
    if found.encoding is not UNSET and bytes(found.encoding) in AS_JSON:
        found.encoding = UNSET
    data = found.data
    if data is UNSET or found.encoding is not UNSET:
        return None, body
    found.data = NOUGHT
    return data, _encode(found)


class Judging:
    """A large request, judged step by step, each of which takes some ms. The framer has `seen` it."""

    def __init__(self, body: bytes, depth_max: int, seen: tuple[int, int]) -> None:
        self._body = body
        self._depth_max = depth_max
        self._seen = seen
        self._ignored: list[str] | None = None
        self._steps = _judge(body, seen)

    def step(self) -> Request | Ask | Fault | None:
        """One step more; what came of it, None: there are more."""
        try:
            next(self._steps)
        except StopIteration as end:
            outcome = cast("Request | Fault", end.value)
        except READING_ERRORS as error:
            outcome = reading_fault(error, self._body, self._depth_max)
        else:
            return None
        if isinstance(outcome, Fault):
            return self._once_more(outcome)
        return outcome if self._ignored is None else Ask(outcome, self._ignored)

    def _once_more(self, fault: Fault) -> Fault | None:
        """Begin again with the fields that are known, if there are others."""
        known = None if self._ignored is not None else without_unknown(self._body, self._seen[0])
        if known is None or isinstance(known, Fault):
            return known or fault
        self._ignored = known.ignored
        self._body = known.body
        self._steps = _judge(known.body, (known.fields, self._seen[1]))
        return None


def _judge(body: bytes, seen: tuple[int, int]) -> Generator[None, None, Request | Fault]:
    """Read what a large request says, or what is wrong with it, in steps. Raises as a decoder does.

    One that may have very many values, or headers, is looked through before anything of it is made: a list that is too
    long, or stands there again and again, would make a million objects of 4 MiB, and hold everybody up for 0.2 s. Data
    are passed over once then, and not for each thing that is to be known of the rest.
    """
    data: Raw | None = None
    rest = body
    if seen[1] >= BATCH_MAX or _may_have_headers(body):
        found: Any = _fields_in(body)
        fault = _fault_in_fields(found, seen[0])
        if fault is not None:
            return fault
        yield
        fault = _fault_in_lists(found, body)
        if fault is not None:
            return fault
        yield
        data, rest = _data_and_rest(found, body)
    request = _decode(rest)
    yield
    fault = _fault_in_usual(request, rest, ANY_DEPTH)
    if fault is _PLAIN:
        fault = None
    if fault is _NEEDS_FULL_CHECK:
        yield
        fault = yield from _judge_more(request, rest)
    if fault is not None:
        return fault
    if data is not None and memoryview(data)[0] != QUOTE:
        text = bytes(data)
        at = 0
        while at < len(text):
            yield
            at = read_on(text, at, at + STEP_BYTES)
            if at < 0:
                return Fault(ErrorWord.FIELD, f"data: {UNREADABLE[at]}", body=rest)
    if not _has_data(request):
        _drop_unread(request)
    elif data is not None:
        request.data = data
    return request


def _judge_more(request: Request, body: bytes) -> Generator[None, None, Fault | None]:
    """As `_fault_in_more` does, and `_plain_fault_in`, in steps."""
    messages = request.messages or []
    step = len(messages) * STEP_BYTES // len(body) + 1
    if not body.isascii() and (fault := _not_utf8(body)) is not None:
        return fault
    for at in range(0, len(messages), step):
        yield
        fault = _fault_in_messages(messages[at : at + step], at, body, ANY_DEPTH)
        if fault is not None:
            return fault
    fault = _fault_in_others(request, body)
    if fault is not None:
        return fault
    yield
    if not _has_as_many(body, _encode(request)):
        yield
        found: Any = _fields_in(body)
        fault = _double_in(body, found, body)
        texts = _items_in(found.messages) if request.messages is not None else []
        for at in range(0, len(texts), step):
            yield
            fault = fault or _double_in_items(texts[at : at + step], body)
        if fault is not None:
            return fault
    if not _has_data(request):
        return None
    outer = request.encoding
    fault = _plain_fault_in_outer(request, body)
    for at in range(0, len(messages), step):
        yield
        fault = fault or _plain_fault_in_items(request, outer, at, at + step, body)
    return fault


def _fault_in(request: Request, body: bytes, depth_max: int) -> Fault | None:
    """Say what is wrong with a request that decoded; where nothing is, its payloads are what they stand for."""
    fault = _fault_in_usual(request, body, depth_max)
    if fault is _PLAIN:
        return None
    if fault is not _NEEDS_FULL_CHECK:
        if fault is None and not _has_data(request) and (request.data is not _ABSENT or request.messages is not None):
            _drop_unread(request)
        return fault
    fault = _fault_in_more(request, body, depth_max)
    if fault is None and not _has_data(request):
        _drop_unread(request)
    elif fault is None and (request.encoding is not None or request.messages is not None):
        return _plain_fault_in(request, body)
    return fault


def _has_data(request: Request) -> bool:
    """Whether it is one of those that give messages."""
    action = request.action
    return action == _PRODUCE or action == _APPEND  # a tuple is made each time


def _drop_unread(request: Request) -> None:
    """Drop what only produce and append read: it may stand in any request, and be large, and nobody is to hold it while
    that is open."""
    request.data = NO_DATA
    request.messages = None
    request.encoding = None
    request.headers = None


def _plain_fault_in(request: Request, body: bytes) -> Fault | None:
    """Turn payloads that came with an `encoding` into the bytes that they stand for."""
    outer = request.encoding
    fault = _plain_fault_in_outer(request, body)
    return fault or _plain_fault_in_items(request, outer, 0, BATCH_MAX, body)


def _plain_fault_in_outer(request: Request, body: bytes) -> Fault | None:
    if request.encoding is not None and (why := plain_payload(request)) is not None:
        return Fault(ErrorWord.FIELD, why, body=body)
    return None


def _plain_fault_in_items(request: Request, outer: str | None, begin: int, end: int, body: bytes) -> Fault | None:
    """Of the items from one place to another; `outer`: the encoding of those that have none."""
    for index, item in enumerate((request.messages or [])[begin:end], begin):
        if (outer or item.encoding) and (why := plain_payload(item, outer)) is not None:
            return Fault(ErrorWord.FIELD, f"messages[{index}].{why}", body=body)
    return None


def _fault_in_usual(request: Request, body: bytes, depth_max: int) -> Fault | None:
    """Say what is wrong with the fields that nearly all requests have; `_NEEDS_FULL_CHECK` where there may be others,
    or one twice, and `_PLAIN` where nothing is, and there is no payload.

    Each field has a colon. As many colons as fields that are known to be there: no other is, and each is there once.
    So most requests are known to be right when two or three of their fields were looked at: reading a field of a
    Struct is the costliest thing here, and none is read once no colon is left.
    """
    data = request.data
    colons = body.count(b":") - 1
    no_fault: Fault | None = _PLAIN
    if data is not _ABSENT:
        no_fault = None
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
    elif (topic := request.topic) is not None:  # what names a queue, too, is seen to have more
        colons -= 1
        if not (len(topic) < 64 and topic.isprintable()) and (why := name_fault(topic)):
            return Fault(ErrorWord.FIELD, f"topic {why}", body=body)
        if colons:
            colons -= (request.partition is not None) + (request.offset is not None)
    if not colons:
        return no_fault
    if request.msg_id is not None:
        colons -= 1
    if colons and request.retry is not None:
        colons -= 1
    if colons and request.seq is not None:
        colons -= 1
    if not colons:
        return no_fault
    colons -= (request.delay is not None) + (request.ttl is not None)
    if not colons:
        return no_fault
    colons -= (
        (request.msg_ids is not None)
        + (request.count is not None)
        + (request.wait is not None)
        + (request.priority is not None)
        + (request.full is not None)
        + (request.delivery is not None)
    )
    if not colons:
        return no_fault
    messages = request.messages
    if messages is None or data is not _ABSENT or colons != len(messages) + 1 or not body.isascii():
        return _NEEDS_FULL_CHECK
    if len(body) > LARGE_BODY_BYTES:
        return _NEEDS_FULL_CHECK  # to look at each item takes less time than to search all
    # each colon that is left stands in the beginning of an item, so there is nothing else in one
    return None if (body.count(PLAIN_ITEM) or body.count(SPACED_ITEM)) == len(messages) else _NEEDS_FULL_CHECK


def _fault_in_data(data: bytes, depth_max: int) -> str | None:
    """Say what is wrong with the value of `data`; `DEEP`: it is too deep, in its request."""
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
    """Say what is wrong with all other fields; nothing has been changed in the request yet."""
    if not body.isascii() and (fault := _not_utf8(body)) is not None:
        return fault
    again = _encode(request)
    messages = request.messages
    if messages is not None and not _are_plain(messages, again):
        fault = _fault_in_messages(messages, 0, body, depth_max)
        if fault is not None:
            return fault
    fault = _fault_in_others(request, body)
    if fault is None and not _has_as_many(body, again):
        fault = _duplicate_in(request, body, depth_max)
    return fault


def _has_as_many(body: bytes, again: bytes) -> bool:
    """Whether a request has as many colons as what was made of it: then there is no other field, and none twice."""
    return body.count(b":") == again.count(b":") and (COLON not in body or body.count(ESCAPE) == again.count(ESCAPE))


def _fault_in_others(request: Request, body: bytes) -> Fault | None:
    """Say what is wrong with the fields that few requests have, but the items of a batch."""
    if request.headers is not None and (why := headers_fault(request.headers)):
        return Fault(ErrorWord.FIELD, f"headers {why}", body=body)
    for name in OF_SESSIONS:
        if getattr(request, name) is not None:
            return Fault(ErrorWord.FIELD, f"Object contains unknown field `{name}`", body=body)
    if request.topic is not None and (fault := topic_fault_in(request, body)) is not None:
        return fault
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
        return rare_fault_in(request, body)
    return None


def _are_plain(messages: list[ProduceItem], again: bytes) -> bool:
    """Whether the items of a batch, in a request that is encoded so, have strings for their data, and no names."""
    strings = again.count(b'"data":"')
    has_names = b'"key":' in again or b'"headers":' in again
    return strings == len(messages) == again.count(b'"data":') and not has_names


def _is_nested(data: msgspec.Raw) -> bool:
    return data is not NO_DATA and memoryview(data)[0] in OPENING_BYTES


def _fault_in_messages(messages: list[ProduceItem], first: int, body: bytes, depth_max: int) -> Fault | None:
    """Say what is wrong with the items of a batch from place `first` on."""
    for index, item in enumerate(messages, first):
        if item.key is not None and (why := name_fault(item.key)):
            return Fault(ErrorWord.FIELD, f"messages[{index}].key {why}", body=body)
        if item.headers is not None and (why := headers_fault(item.headers)):
            return Fault(ErrorWord.FIELD, f"messages[{index}].headers {why}", body=body)
        # the item and the list around it are two levels more
        if item.data is not NO_DATA and memoryview(item.data)[0] != QUOTE and (why := unreadable(bytes(item.data))):
            return Fault(ErrorWord.FIELD, f"messages[{index}].data: {why}", body=body)
        looks = depth_max != ANY_DEPTH and _is_nested(item.data)
        if looks and is_deeper(bytes(item.data), depth_max - 3):
            return too_deep(depth_max)
    return None


def _duplicate_in(request: Request, body: bytes, depth_max: int) -> Fault | None:
    """Find a field that stands twice in the request or in one of its messages: the decoder takes the last of them
    silently.

    Counting is nearly always enough to know that there is none, and this is not called. Each field has a colon, and
    what the decoder found of its value has some: a colon too many is a field that it passed over. That is exact, since
    all is compared as it came, and takes the decoder's time: a field's value, whatever is in it, makes no object here.
    """
    if depth_max != ANY_DEPTH and is_deeper(body, depth_max):
        return too_deep(depth_max)  # in a value that was passed over: what was found has been looked at
    found: Any = _fields_in(body)
    fault = _double_in(body, found, body)
    if fault is None and request.messages is not None:
        fault = _double_in_items(_items_in(found.messages), body)
    return fault


def _double_in(text: bytes, found: Any, body: bytes) -> Fault | None:
    """Whether a field stands twice in an object, or a name in its headers."""
    if _has_double(text, found):
        return twice(text, body)
    if found.headers is not UNSET and (name := _double_name(found.headers)) is not None:
        return Fault(ErrorWord.FIELD, f"headers: {name[:64]!r} stands there twice", body=body)
    return None


def _double_in_items(texts: list[Raw], body: bytes) -> Fault | None:
    for text in texts:
        fault = _double_in(bytes(text), _item_fields_in(text), body)
        if fault is not None:
            return fault
    return None


def _may_have_headers(body: bytes) -> bool:
    """Whether a field of that name stands somewhere, written in any way."""
    return b'"headers"' in body or ESCAPE in body


def _have_long_headers(body: bytes, found: Any) -> bool:
    """Whether some are longer than any may be; the decoder of a request would make an object of each first."""
    if not _may_have_headers(body):
        return False
    items: list[Any] = [found]
    if found.messages is not UNSET and memoryview(found.messages)[0] == OPEN_LIST:
        try:
            items += map(_item_fields_in, _items_in(found.messages))
        except msgspec.ValidationError:
            return False  # the decoder of a request says where
    return any(one.headers is not UNSET and memoryview(one.headers).nbytes > HEADERS_TEXT_MAX for one in items)


def _double_name(headers: msgspec.Raw) -> str | None:
    """Find a name that stands twice in these headers."""
    if memoryview(headers).nbytes > HEADERS_TEXT_MAX:
        return "a name"
    return first_double(bytes(headers))


def _named_in(found: Any) -> bytes:
    """Give what a fault's reply tells of its request, without the rest of a large one."""
    named = [("action", found.action), ("queue", found.queue), ("seq", found.seq)]
    parts = [
        b'"%s":%s' % (name.encode(), bytes(text))
        for name, text in named
        if text is not UNSET and memoryview(text).nbytes < SHOWN_BYTES_MAX
    ]
    return b"{" + b",".join(parts) + b"}"


def _has_double(text: bytes, found: msgspec.Struct) -> bool:
    colons = 0
    for value in _fields_of(found):
        if value is not UNSET:
            colons += 1 + bytes(value).count(b":")
    return colons != text.count(b":")


def reading_fault(error: Exception, body: bytes, depth_max: int) -> Fault:
    """Say what a decoder has raised of a request."""
    if isinstance(error, msgspec.ValidationError):
        return _validation_fault(str(error), body)
    if isinstance(error, msgspec.DecodeError):
        return Fault(ErrorWord.BAD_JSON, _syntax_reason(str(error)), body=body)
    if isinstance(error, UnicodeDecodeError):
        return Fault(ErrorWord.BAD_JSON, f"not UTF-8: {error.reason}")
    return too_deep(depth_max)


def _syntax_reason(text: str) -> str:
    if "truncated" in text:
        return "not JSON: it ends inside a value, or a string holds half of a surrogate pair"
    return "not " + text.replace("JSON is malformed", "JSON", 1)


def _validation_fault(text: str, body: bytes) -> Fault:
    """msgspec says "Expected `int`, got `str` - at `$.msg_id`"; people want the field first."""
    what, _, where = text[:REASON_MAX].replace(" - at `key` in `$.", " - at `$.").partition(" - at `$.")
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
