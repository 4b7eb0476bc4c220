"""JSON as Go's encoder writes it, and as its decoder takes it: what its clients and those of gmq compare.

From the documentation of Go's encoding/json: strings leave with `<`, `>`, `&`, U+2028 and U+2029 escaped, a raw value
leaves without white space, and what is no UTF-8, or half of a surrogate pair, is read as U+FFFD.
"""

import re
from typing import Final

import msgspec

_ESCAPES: Final = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}
_TO_ESCAPE: Final = re.compile(b"|".join(map(re.escape, _ESCAPES)))
_HALF: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_STRING_OR_SPACE: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[ \t\r\n]+', re.DOTALL)
_SPACE: Final = re.compile(rb"[ \t\r\n]")
_encode: Final = msgspec.json.Encoder().encode


def escaped(text: bytes) -> bytes:
    """JSON with what Go escapes in strings escaped; nowhere else is there any of that."""
    if text.isascii() and b"<" not in text and b">" not in text and b"&" not in text:
        return text
    return _TO_ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)


def string(text: str) -> bytes:
    """A string's JSON."""
    return escaped(_encode(text))


def compact(raw: bytes) -> bytes:
    """A value as it came, without the white space around and in it, its strings escaped."""
    if _SPACE.search(raw):
        raw = _STRING_OR_SPACE.sub(lambda found: found[0] if found[0].startswith(b'"') else b"", raw)
    return escaped(raw)


def readable(data: bytes) -> bytes:
    """The same JSON with U+FFFD for what is no UTF-8, and for halves of surrogate pairs."""
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode("utf-8", "replace").encode()
    if b"\\u" not in data:
        return data
    return _HALF.sub(lambda found: b"\\ufffd" if found[1] else found[0], data)


KINDS: Final = {ord('"'): "string", ord("{"): "object", ord("["): "array", ord("t"): "bool", ord("f"): "bool"}


def kind_of(raw: bytes) -> str:
    """A value's kind, as Go names it in its errors; null has none."""
    return KINDS.get(raw[0], "number")


def misfit(kind: str, wanted: str) -> str:
    """What Go says of a value of another kind than is wanted."""
    return f"json: cannot unmarshal {kind} into Go value of type {wanted}"
