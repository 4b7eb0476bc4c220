"""Cutting a byte stream into JSON objects, wherever the stream's pieces begin and end.

Objects follow each other with or without white space. The framer looks at brackets and strings alone; whether what
it cuts out is right inside is the codec's business. Another JSON value than an object gets one fault and is passed
over to the end of its line, or to the next `{`. But a list, or a byte that no JSON value begins with, is fatal: a
browser that was made to send an HTTP request here must not have its body obeyed, a TLS handshake not what a stranger
put into its tickets, and a list's objects not one by one. The result never depends on how the bytes were split.
"""

import re
from typing import Final

from net.protocols.codec import Fault

_STRUCTURE: Final = re.compile(rb'["{}\[\]]')
_IN_STRING: Final = re.compile(rb'["\\]')
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ONE_KIND: Final = bytes.maketrans(b"{}[]", b"()()")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"{}[]"))
_RESUME: Final = re.compile(rb"[\n{]")
_NOT_SPACE: Final = re.compile(rb"[^ \t\r\n]")
OTHER_VALUES: Final = tuple(bytes([byte]) for byte in b'"-0123456789tfn')
"""What a JSON value begins with that is neither object nor list."""


class ObjectFramer:
    """Cuts out objects of at most `bytes_max` bytes and `depth_max` levels."""

    def __init__(self, bytes_max: int, depth_max: int) -> None:
        self._bytes_max = bytes_max
        self._depth_max = depth_max
        self._buffer = bytearray()
        self._at = 0
        self._depth = 0
        self._in_string = False
        self._is_too_deep = False
        self._is_skipping = False
        self._is_dead = False

    @property
    def is_idle(self) -> bool:
        """Whether the next byte would begin something new."""
        return not self._buffer and not self._is_skipping and not self._is_dead

    @property
    def partial_bytes(self) -> int:
        """How much of an object has come that has not ended (bytes)."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes | Fault]:
        """The objects that are whole now, and the faults, in the stream's order."""
        out: list[bytes | Fault] = []
        if self._is_dead:
            return out
        buffer = self._buffer
        buffer += data
        while buffer and not self._is_dead:
            if self._is_skipping:
                end = _RESUME.search(buffer)
                if end is None:
                    buffer.clear()
                    break
                del buffer[: end.start()]
                self._is_skipping = False
            elif (not self._depth and not self._begin(out)) or (self._depth and not self._scan(out)):
                break
        return out

    def _begin(self, out: list[bytes | Fault]) -> bool:
        """Go to the first byte of the next object; False if the buffer has none."""
        buffer = self._buffer
        found = _NOT_SPACE.search(buffer)
        if found is None:
            buffer.clear()
            return False
        if found[0] == b"{":
            del buffer[: found.start()]
            self._depth = 1
            self._at = 1
            return True
        is_fatal = found[0] not in OTHER_VALUES
        reason = f"a request is a JSON object, and this begins with {_shown(found[0])}"
        out.append(Fault("bad_json", reason, is_fatal))
        del buffer[: found.start()]
        self._is_skipping = True
        self._is_dead = is_fatal
        return True

    def _scan(self, out: list[bytes | Fault]) -> bool:
        """Go on inside an object; False if the buffer ends before it does."""
        buffer = self._buffer
        at = self._at
        depth = self._depth
        in_string = self._in_string
        while at < len(buffer):
            found = (_IN_STRING if in_string else _STRUCTURE).search(buffer, at)
            if found is None:
                at = len(buffer)
                break
            at = found.end()
            character = found[0]
            if character == b"\\":
                at += 1
            elif character == b'"':
                in_string = not in_string
            elif character in b"{[":
                depth += 1
                if depth > self._depth_max:
                    self._is_too_deep = True
            else:
                depth -= 1
                if not depth:
                    break
        self._at, self._depth, self._in_string = at, depth, in_string
        if (len(buffer) if depth else at) > self._bytes_max:
            out.append(Fault("too_large", f"a request may have {self._bytes_max} bytes", is_fatal=True))
            self._is_dead = True
            buffer.clear()
            return False
        if depth:
            return False
        body = bytes(buffer[:at])
        del buffer[:at]
        if self._is_too_deep:
            self._is_too_deep = False
            out.append(Fault("bad_json", f"nested deeper than {self._depth_max} levels", body=body))
        else:
            out.append(body)
        return True


def is_deeper(data: bytes, limit: int) -> bool:
    """Whether the brackets of valid JSON go deeper than `limit` levels. Takes time in proportion to the size.

    Strings are dropped, both kinds of bracket made one, and then the innermost level is taken away again and again.
    """
    brackets = _STRINGS.sub(b"", data).translate(_ONE_KIND, _NOT_BRACKETS)
    for _ in range(limit):
        if not brackets:
            return False
        brackets = brackets.replace(b"()", b"")
    return bool(brackets)


def _shown(byte: bytes) -> str:
    return repr(byte.decode("ascii")) if 32 < byte[0] < 127 else f"the byte 0x{byte[0]:02x}"
