"""JSON as Go's encoder writes it, and as its decoder takes it: what its clients and those of gmq compare.

From the documentation of Go's encoding/json: strings leave with `<`, `>`, `&`, U+2028 and U+2029 escaped, a raw value
leaves without white space, and what is no UTF-8, or half of a surrogate pair, is read as U+FFFD.
"""

import re
from typing import Final

import msgspec

_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
SIGNS: Final = b"<>&\xe2"
"""What is escaped has one of these bytes."""

_MAYBE_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF: Final = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
_SPACE: Final = re.compile(rb"[ \t\r\n]")
MENDED_MAX: Final = 1 << 20
"""In so many bytes what is no text is mended: some 25 ms, at the worst. In more there is none of that."""

_format: Final = msgspec.json.format


def escaped(text: bytes) -> bytes:
    """JSON with what Go escapes in strings escaped; nowhere else is there any of that."""
    if len(text.translate(None, SIGNS)) == len(text):  # nearly always
        return text
    for sign, escape in _ESCAPES:
        text = text.replace(sign, escape)
    return text


def compact(raw: bytes) -> bytes:
    """Read a value as it came, without the white space around and in it. Raises `msgspec.DecodeError`."""
    return raw if not _SPACE.search(raw) else _format(raw, indent=-1)


class UnreadableError(ValueError):
    """There is too much to be mended."""


def readable(data: bytes) -> bytes:
    """Put U+FFFD in the place of what is no UTF-8, and of halves of surrogate pairs, in JSON. Raises
    `UnreadableError`."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            if len(data) > MENDED_MAX:
                raise UnreadableError(f"not UTF-8, in more than {MENDED_MAX} bytes") from None
            data = data.decode("utf-8", "replace").encode()
    if b"\\u" not in data or _MAYBE_HALF.search(data) is None or b"\0" in data:  # with one it is no JSON
        return data
    if len(data) > MENDED_MAX:
        raise UnreadableError(f"surrogates in more than {MENDED_MAX} bytes")
    apart = data.replace(rb"\\", b"\0\0")  # two of them are one sign, and begin no escape
    return _HALF.sub(rb"\\ufffd", apart).replace(b"\0\0", rb"\\")


KINDS: Final = {ord('"'): "string", ord("{"): "object", ord("["): "array", ord("t"): "bool", ord("f"): "bool"}


def kind_of(raw: bytes) -> str:
    """Name a value's kind, as Go does in its errors; null has none."""
    return KINDS.get(raw[0], "number")


def misfit(kind: str, wanted: str) -> str:
    """Say what Go says of a value of another kind than is wanted."""
    return f"json: cannot unmarshal {kind} into Go value of type {wanted}"
