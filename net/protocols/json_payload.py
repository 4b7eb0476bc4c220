"""What JSON can't say of a payload as it is: plain bytes, and values that a reader would refuse.

Plain bytes are a string, marked as such: `encoding` is `utf8` where they are UTF-8, else `base64`. What a client sends
so becomes the bytes themselves, before anything else looks at it.
"""

import base64
import binascii
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace
from mypy_extensions import i64

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

UTF8: Final = "utf8"
BASE64: Final = "base64"
JSON: Final = "json"
ENCODINGS: Final = (JSON, UTF8, BASE64)

QUOTE: Final = 0x22
BACKSLASH: Final = 0x5C
PLUS: Final = 0x2B
MINUS: Final = 0x2D
POINT: Final = 0x2E
ZERO: Final = 0x30
NINE: Final = 0x39
LARGE_E: Final = 0x45
SMALL_E: Final = 0x65

NEAR: Final = 24
"""So many bytes of a string are looked at one by one before its end is searched for."""

INT_DIGITS_MAX: Final = 4300
"""So many digits, and its sign, of an integer are read (sys.int_info.default_max_str_digits)."""

MAGNITUDE_MAX: Final = 309
BEYOND_DIGITS: Final = str(2**1024 - 2**970).encode()
"""The least number that is rounded to none that a double can be: half a step above the greatest (IEEE 754)."""

EXPONENT_CAP: Final = 1_000_000_000

_encode = msgspec.json.Encoder().encode


def unreadable(data: bytes) -> str | None:
    """Why valid JSON could not be read by those who get it; None if it can.

    A number may have any size in JSON, but a reader's has a limit: an exponent beyond a double's, or more digits than
    Python reads. Refused when it is produced, since a reply that can't be read may take its message with it. Some ns a
    byte, compiled, whatever the bytes are; nothing is made of them.
    """
    place: i64 = 0
    size: i64 = len(data)
    near: i64 = 0
    while place < size:
        byte: i64 = data[place]
        if byte == QUOTE:
            place += 1
            near = place + NEAR
            if near > size:
                near = size
            while place < near and data[place] != QUOTE:
                place += 2 if data[place] == BACKSLASH else 1
            place = place + 1 if place < near else _string_end(data, place)
        elif ZERO <= byte <= NINE:
            begin = place
            place += 1
            while place < size and ZERO <= data[place] <= NINE:
                place += 1
            if place < size and data[place] in (POINT, SMALL_E, LARGE_E):
                place = _float_end(data, begin)
                if place < 0:
                    return "number out of range"
            elif place - begin + (begin > 0 and data[begin - 1] == MINUS) > INT_DIGITS_MAX:
                return "integer value out of range"
        else:
            place += 1
    return None


def _string_end(data: bytes, at: int) -> int:
    """The place behind a long string's closing quote; place `at` is in it, and not behind a backslash that counts."""
    place: i64 = at
    size: i64 = len(data)
    while place < size:
        quote: i64 = data.find(b'"', place)
        escape: i64 = data.find(b"\\", place, quote)
        if escape < 0:
            return quote + 1
        place = escape
        near: i64 = min(place + NEAR, size)
        while place < near and data[place] != QUOTE:
            place += 2 if data[place] == BACKSLASH else 1
        if place < near:
            return place + 1
    return size


def _float_end(data: bytes, begin: int) -> int:
    """The place behind a number with a point or an exponent that begins at `begin`; -1: no double is so large.

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
    place: i64 = first
    for wanted in BEYOND_DIGITS:
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


def _shown_payload(data: Raw) -> tuple[Raw, str]:
    plain = bytes(data)
    try:
        return Raw(_encode(plain.decode())), UTF8
    except UnicodeDecodeError:
        return Raw(_encode(base64.b64encode(plain).decode())), BASE64


def _shown_item(item: DeliveredItem | MessageView) -> DeliveredItem | MessageView:
    if item.encoding != PLAIN:
        return item
    data, encoding = _shown_payload(item.data)
    return replace(item, data=data, encoding=encoding)


def shown(reply: Reply) -> Reply:
    """The reply as JSON says it, a copy where it holds plain bytes."""
    if isinstance(reply, (DeliveredReply, PeekReply, ScanReply)):
        if any(item.encoding is not None for item in reply.messages or ()):
            return replace(reply, messages=[_shown_item(item) for item in reply.messages or ()])
    elif isinstance(reply, ShowReply):
        if reply.message is not None and reply.message.encoding is not None:
            return replace(reply, message=_shown_item(reply.message))
    elif reply.encoding == PLAIN and reply.data is not None:
        data, encoding = _shown_payload(reply.data)
        return replace(reply, data=data, encoding=encoding)
    return reply
