"""Fields that no request has, in what the original's clients ask: it looks at none that it does not know."""

from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from net.protocols.json_framing import twice
from net.protocols.session import Fault
from quorate.protocol import Request, name_fault

OF_SESSIONS: Final = ("as_job", "ttr", "asked_delay")
"""Fields that sessions of other protocols ask by."""

NAMES_KNOWN: Final = frozenset(Request.__struct_fields__) - frozenset(OF_SESSIONS)
IGNORING: Final = frozenset({b"1", b"2", b"3", b"4", b"7", b"8"})
"""The original's actions, as a request has them: of these unknown fields are ignored, as it does."""

IGNORED_MAX: Final = 16
IGNORED_NAME_MAX: Final = 64
"""So many unknown fields are ignored, with names of so many characters: their client is told them again."""

READING_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoders raise on what they read."""

_texts_in: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_encode: Final = msgspec.json.Encoder().encode


class KnownFields(NamedTuple):
    """A request without the fields that are `ignored`; `fields`: so many are left."""

    body: bytes
    ignored: list[str]
    fields: int


def without_unknown(body: bytes, fields: int) -> KnownFields | Fault | None:
    """Take from a request that was refused what the original ignores: fields that no request has.

    `fields`: so many the framer has seen. None: there are none such, or it is a request of another action than the
    original's, or there are too many.
    """
    if fields > IGNORED_MAX + len(NAMES_KNOWN):
        return None
    try:
        found = _texts_in(body)
    except READING_ERRORS:
        return None
    if bytes(found.get("action", b"")) not in IGNORING:
        return None
    ignored = [name for name in found if name not in NAMES_KNOWN]
    if not ignored or len(ignored) > IGNORED_MAX:
        return None
    if any(len(name) > IGNORED_NAME_MAX or ":" in name or name_fault(name) for name in ignored):
        return None
    if _encode(found).count(b":") != body.count(b":"):
        return twice(body, body)
    for name in ignored:
        del found[name]
    return KnownFields(_encode(found), ignored, len(found))
