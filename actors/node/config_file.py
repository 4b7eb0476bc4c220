"""A configuration file: JSON, with comments and last commas; where each of its settings stands, and what is wrong."""

import json
import re
from typing import Any, Final

_COMMENT_OR_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')


class ConfigError(Exception):
    """The configuration can't be used; `faults` are all that is wrong with it, a line each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def without_comments(text: str) -> str:
    """Blank comments and last commas out of the text, so that lines and columns stay."""

    def blank(found: re.Match[str]) -> str:
        part = found[0]
        return part if part.startswith('"') else re.sub(r"[^\n]", " ", part)

    return _LAST_COMMA.sub(blank, _COMMENT_OR_STRING.sub(blank, text))


def members(text: str) -> list[tuple[str, Any, int]]:
    """Read the top object's names, values and lines. Raises json.JSONDecodeError."""
    decoder = json.JSONDecoder()
    members: list[tuple[str, Any, int]] = []
    blank = re.compile(r"\s*")

    def skip(at: int) -> int:
        found = blank.match(text, at)
        return found.end() if found else at

    def need(character: str, at: int) -> int:
        if text[at : at + 1] != character:
            raise json.JSONDecodeError(f"{character!r} is missing", text, at)
        return skip(at + 1)

    at = need("{", skip(0))
    while text[at : at + 1] != "}":
        if members:
            at = need(",", at)
        start = at
        name, at = decoder.raw_decode(text, at)
        if not isinstance(name, str):
            raise json.JSONDecodeError("a name in quotes is missing", text, start)
        value, at = decoder.raw_decode(text, need(":", skip(at)))
        members.append((name, value, text.count("\n", 0, start) + 1))
        at = skip(at)
    if skip(at + 1) != len(text):
        raise json.JSONDecodeError("something stands behind the closing bracket", text, at + 1)
    return members
