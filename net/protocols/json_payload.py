"""What JSON can't say of a payload as it is: plain bytes, and values that a reader would refuse.

Plain bytes are a string, marked as such: `encoding` is `utf8` where they are UTF-8, else `base64`. What a client sends
so becomes the bytes themselves, before anything else looks at it.
"""

import base64
import binascii
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace
from mypy_extensions import i64

from net.protocols.json_framing import QUOTE, string_end
from quorate.protocol import (
    NO_DATA,
    PLAIN,
    DeliveredItem,
    DeliveredReply,
    MessageView,
    PeekReply,
    ProduceItem,
    Reply,
    Request,
    ScanReply,
    ShowReply,
)
from quorate.stream_replies import ReadReply, StreamMessage

UTF8: Final = "utf8"
BASE64: Final = "base64"
JSON: Final = "json"
ENCODINGS: Final = (JSON, UTF8, BASE64)

PLUS: Final = 0x2B
MINUS: Final = 0x2D
POINT: Final = 0x2E
ZERO: Final = 0x30
NINE: Final = 0x39
LARGE_E: Final = 0x45
SMALL_E: Final = 0x65

INT_DIGITS_MAX: Final = 4300
"""So many digits, and its sign, of an integer are read (sys.int_info.default_max_str_digits)."""

MAGNITUDE_MAX: Final = 309
BEYOND_DIGITS: Final = str(2**1024 - 2**970).encode()
"""The least number that is rounded to none that a double can be: half a step above the greatest (IEEE 754)."""

BEYOND_DOUBLES: Final = -1
TOO_MANY_DIGITS: Final = -2
UNREADABLE: Final = {BEYOND_DOUBLES: "number out of range", TOO_MANY_DIGITS: "integer value out of range"}

EXPONENT_CAP: Final = 1_000_000_000

_encode = msgspec.json.Encoder().encode


def unreadable(data: bytes) -> str | None:
    """Why valid JSON could not be read by those who get it; None if it can.

    A number may have any size in JSON, but a reader's has a limit: an exponent beyond a double's, or more digits than
    Python reads. Refused when it is produced, since a reply that can't be read may take its message with it. Some ns a
    byte, compiled, whatever the bytes are; nothing is made of them.
    """
    place = read_on(data, 0, len(data))
    return None if place >= 0 else UNREADABLE[place]


def read_on(data: bytes, at: int, until: int) -> int:
    """Look at valid JSON from place `at`, between two values, up to `until`, and to the end of the value there.

    Gives the place behind that; where a number can't be read, below 0, and `UNREADABLE` has why.
    """
    place: i64 = at
    size: i64 = len(data)
    end: i64 = min(until, size)
    while place < end:
        byte: i64 = data[place]
        if byte == QUOTE:
            place = string_end(data, place + 1)
        elif ZERO <= byte <= NINE:
            begin = place
            place += 1
            while place < size and ZERO <= data[place] <= NINE:
                place += 1
            if place < size and data[place] in (POINT, SMALL_E, LARGE_E):
                place = _float_end(data, begin)
                if place < 0:
                    return BEYOND_DOUBLES
            elif place - begin + (begin > 0 and data[begin - 1] == MINUS) > INT_DIGITS_MAX:
                return TOO_MANY_DIGITS
        else:
            place += 1
    return place


def _float_end(data: bytes, begin: int) -> int:
    """Find the place behind a number with a point or an exponent that begins at `begin`; -1: no double is so large.

    Its digits, from the first on that is not 0, are 0.d1d2d3... * 10**magnitude.
    """
    place: i64 = begin
    size: i64 = len(data)
    magnitude: i64 = 0
    first: i64 = -1
    has_point = False
    while place < size:
        byte: i64 = data[place]
        if byte == POINT:
            has_point = True
        elif ZERO <= byte <= NINE:
            if first < 0 and byte != ZERO:
                first = place
            if not has_point and first >= 0:
                magnitude += 1
            elif has_point and first < 0:
                magnitude -= 1
        else:
            break
        place += 1
    if place < size and data[place] in (SMALL_E, LARGE_E):
        place += 1
        is_negative = data[place] == MINUS
        if data[place] in (MINUS, PLUS):
            place += 1
        exponent: i64 = 0
        while place < size and ZERO <= data[place] <= NINE:
            if exponent < EXPONENT_CAP:
                exponent = 10 * exponent + data[place] - ZERO
            place += 1
        magnitude += -exponent if is_negative else exponent
    if first < 0 or magnitude <= MAGNITUDE_MAX - 1:
        return place  # it is 0, or surely below 10**308
    if magnitude > MAGNITUDE_MAX or _is_beyond(data, first, place):
        return -1
    return place


def _is_beyond(data: bytes, first: int, end: int) -> bool:
    """Whether a number of the greatest magnitude, whose digits begin at `first`, is greater than a double can be."""
    beyond = BEYOND_DIGITS
    place: i64 = first
    index: i64 = 0
    count: i64 = len(beyond)
    while index < count:
        wanted: i64 = beyond[index]
        index += 1
        while place < end and data[place] == POINT:
            place += 1
        digit: i64 = ZERO  # behind its last
        if place < end and ZERO <= data[place] <= NINE:
            digit = data[place]
            place += 1
        if digit != wanted:
            return bool(digit > wanted)
    return True


def plain_payload(item: Request | ProduceItem, outer: str | None = None) -> str | None:
    """Turn data that came with an `encoding` into what it stands for; what is wrong with it, None if nothing is.

    `outer` is the request's encoding, where an item of its `messages` has none of its own.
    """
    encoding = item.encoding or outer
    if encoding not in ENCODINGS:
        return f"encoding: {encoding!r} is none of {', '.join(ENCODINGS)}"
    if encoding == JSON:
        item.encoding = None
        return None
    if item.data is NO_DATA:
        return None  # the request's own, where its messages have the data; or it is said that it is missing
    try:
        text = msgspec.json.decode(bytes(item.data), type=str)
    except msgspec.DecodeError:
        return f"data: with encoding {encoding!r} it must be a string"
    if encoding == UTF8:
        data = text.encode()
    else:
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            return f"data: not base64: {error}"
    item.data, item.encoding = Raw(data), PLAIN
    return None


Shown = TypeVar("Shown", DeliveredItem, MessageView, StreamMessage)


def _shown_payload(data: Raw) -> tuple[Raw, str]:
    plain = bytes(data)
    try:
        return Raw(_encode(plain.decode())), UTF8
    except UnicodeDecodeError:
        return Raw(_encode(base64.b64encode(plain).decode())), BASE64


def _shown_item(item: Shown) -> Shown:
    if item.encoding != PLAIN:
        return item
    data, encoding = _shown_payload(item.data)
    return replace(item, data=data, encoding=encoding)


def shown(reply: Reply) -> Reply:
    """Make the reply what JSON says, a copy where it holds plain bytes."""
    if isinstance(reply, (DeliveredReply, PeekReply, ScanReply)):
        if any(item.encoding is not None for item in reply.messages or ()):
            items: list[Any] = [*(reply.messages or ())]
            return replace(reply, messages=[_shown_item(item) for item in items])
    elif isinstance(reply, ReadReply):
        if any(item.encoding is not None for item in reply.messages):
            return replace(reply, messages=[_shown_item(item) for item in reply.messages])
    elif isinstance(reply, ShowReply):
        if reply.message is not None and reply.message.encoding is not None:
            return replace(reply, message=_shown_item(reply.message))
    elif reply.encoding == PLAIN and reply.data is not None:
        data, encoding = _shown_payload(reply.data)
        return replace(reply, data=data, encoding=encoding)
    return reply
