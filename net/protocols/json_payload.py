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

_SHAPES: Final = bytes.maketrans(b"123456789E-", b"000000000e+")
_SUSPICIOUS: Final = (b"0" * 16, b"e000", b"e+000")
"""What a number that is too large for a reader has in it, when all its digits are 0: a regular expression would take
ten times as long, for 4 MiB that is 70 ms."""
_encode = msgspec.json.Encoder().encode


def unreadable(data: bytes) -> str | None:
    """Why valid JSON could not be read by those who get it; None if it can.

    A number may have any size in JSON, but a reader's has a limit: an exponent beyond a double's, or more digits than
    Python reads. Refused when it is produced, since a reply that can't be read may take its message with it.
    """
    shapes = data.translate(_SHAPES)
    if not any(one in shapes for one in _SUSPICIOUS):
        return None
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        return str(error).partition(" - at")[0].lower()
    return None


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
