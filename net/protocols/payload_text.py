"""A payload for clients that know no others than texts."""

import base64
from typing import Final

import msgspec

from quorate.protocol import PLAIN

_text: Final = msgspec.json.Decoder(str).decode


def payload_text(data: bytes, encoding: str | None) -> str:
    """Give the string that a JSON payload is, or its text; plain bytes as UTF-8, or in base64 where they are none."""
    if encoding != PLAIN:
        return _text(data) if data[:1] == b'"' else data.decode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()
