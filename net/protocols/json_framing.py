"""Cutting a byte stream into JSON objects, wherever the stream's pieces begin and end.

Objects follow each other with or without white space. The framer looks at brackets and strings alone; whether what
it cuts out is right inside is the session's business. Another JSON value than an object gets one fault and is passed
over to the end of its line, or to the next `{`. But a list, or a byte that no JSON value begins with, is fatal: a
browser that was made to send an HTTP request here must not have its body obeyed, a TLS handshake not what a stranger
put into its tickets, and a list's objects not one by one. The result never depends on how the bytes were split.

An object that nests too deep is answered as soon as that is seen, and the rest of it is passed over, unbuffered.
"""

import re
from typing import Final

import msgspec
from mypy_extensions import i64

from net.protocols.pieces import Pieces
from net.protocols.session import Fault
from quorate.protocol import ErrorWord

_RESUME: Final = re.compile(rb"[\n{]")
_NOT_SPACE: Final = re.compile(rb"[^ \t\r\n]")
OTHER_VALUES: Final = tuple(bytes([byte]) for byte in b'"-0123456789tfn')
"""What a JSON value begins with that is neither object nor list."""

SPACES: Final = b" \t\r\n"
_decode_text: Final = msgspec.json.Decoder(str).decode

QUOTE: Final = 0x22
COMMA: Final = 0x2C
COLON: Final = 0x3A
BACKSLASH: Final = 0x5C
OPEN_LIST: Final = 0x5B
CLOSE_LIST: Final = 0x5D
OPEN_OBJECT: Final = 0x7B
CLOSE_OBJECT: Final = 0x7D

SHORT_STRING: Final = 24
"""So many bytes of a string are looked at one by one before its end is searched for: a search costs as much."""

STEP_MAX: Final = 4096

NEAR: Final = 128
"""So many bytes of a string that has come whole are looked at one by one before its end is searched for."""

OBJECTS_MAX: Final = 200
"""So many objects and faults are given at once: the rest of a read that holds very many waits for the next turn."""

NAMED_BYTES_MAX: Final = 64 << 10
"""In a request of at most so many bytes the field that stands there twice is named."""


def string_end(data: bytes, at: int) -> int:
    """Find the place behind a string's closing quote; `at` is in it, not behind a backslash that counts. It must end.

    Takes time in proportion to the string, however many escapes it has.
    """
    place: i64 = at
    size: i64 = len(data)
    quote: i64 = -1
    while True:
        near: i64 = min(place + NEAR, size)
        while place < near:
            byte: i64 = data[place]
            if byte == QUOTE:
                return place + 1
            place += 2 if byte == BACKSLASH else 1
        if place >= size:
            return size
        if quote < place:  # found once, however many escapes stand before it
            quote = data.find(b'"', place)
            if quote < 0:
                return size
        escape: i64 = data.find(b"\\", place, quote)
        if escape < 0:
            return quote + 1
        place = escape


def first_double(text: bytes) -> str | None:
    """Find the first name that stands twice in an object, however it is written each time. `text` is valid JSON.

    Takes some ns a byte, and of the values makes nothing.
    """
    seen: set[str] = set()
    place: i64 = 0
    size: i64 = len(text)
    depth: i64 = 0
    while place < size:
        byte: i64 = text[place]
        place += 1
        if byte == QUOTE:
            begin = place - 1
            place = string_end(text, place)
            if depth == 1:
                end = place
                while place < size and text[place] in SPACES:
                    place += 1
                if place < size and text[place] == COLON:
                    name = _decode_text(text[begin:end])
                    if name in seen:
                        return name
                    seen.add(name)
        elif byte in (OPEN_OBJECT, OPEN_LIST):
            depth += 1
        elif byte in (CLOSE_OBJECT, CLOSE_LIST):
            depth -= 1
    return None


class Brackets:
    """How deep a stream of JSON is, byte after byte: brackets and strings are looked at, and nothing else.

    `depth`: levels that are open; `deepest`: the most there were; `fields`: those of the outermost object, `commas`:
    those of all that is in it. Some ns a byte, compiled, whatever the bytes are.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.deepest = 0
        self.fields = 0
        self.commas = 0
        self._in_string = False
        self._is_escaped = False

    def pass_over(self, data: bytes, at: int, end: int) -> int:
        """Go on at place `at` until no level is open any more, or to place `end`; the place behind that.

        The first byte must be an opening bracket where no level is open.
        """
        place: i64 = at
        size: i64 = end
        depth: i64 = self.depth
        deepest: i64 = self.deepest
        fields: i64 = self.fields
        commas: i64 = self.commas
        in_string = self._in_string
        if self._is_escaped and place < size:
            self._is_escaped = False
            place += 1
        quote: i64 = -1
        step: i64 = SHORT_STRING
        while place < size:
            if in_string:
                searched: i64 = place + step
                while place < size:
                    byte: i64 = data[place]
                    if byte == QUOTE:
                        in_string = False
                        break
                    if byte == BACKSLASH:
                        place += 1
                    place += 1
                    if place >= searched and place < size:
                        if quote < place:  # found once, however many escapes stand before it
                            quote = data.find(b'"', place, size)
                            if quote < 0:
                                quote = size
                        escape: i64 = data.find(b"\\", place, quote)
                        found: i64 = quote if escape < 0 else escape
                        # where searches find something near, they are rarer
                        step = min(2 * step, STEP_MAX) if found - place < step else SHORT_STRING
                        place = found
                        searched = place + step
                place += 1
                continue
            byte = data[place]
            place += 1
            if byte == QUOTE:
                in_string = True
            elif byte == COMMA:
                if depth > 1:
                    commas += 1
            elif byte == COLON:
                if depth == 1:
                    fields += 1
            elif byte in (OPEN_OBJECT, OPEN_LIST):
                depth += 1
                if depth > deepest:
                    deepest = depth
            elif byte in (CLOSE_OBJECT, CLOSE_LIST):
                depth -= 1
                if depth <= 0:
                    break
        self.depth, self.deepest, self._in_string = depth, deepest, in_string
        self.fields, self.commas = fields, commas
        if in_string and place > size + 1:
            self._is_escaped = True  # the piece ends behind a backslash
        return min(place, size)


class ObjectFramer:
    """Cuts out objects of at most `bytes_max` bytes and `depth_max` levels.

    `seen`: of each object that was given last, how many fields it has, and how many commas what is in it.
    """

    def __init__(self, bytes_max: int, depth_max: int) -> None:
        self._bytes_max = bytes_max
        self._depth_max = depth_max
        self._brackets = Brackets()
        self._kept = Pieces()
        self._rest = b""
        self._rest_at = 0
        self._size = 0
        self._is_too_deep = False
        self._is_skipping = False
        self._is_dead = False
        self.seen: list[tuple[int, int]] = []

    @property
    def is_idle(self) -> bool:
        """Whether the next byte would begin something new."""
        return not (self._is_skipping or self._is_dead or self._brackets.depth or self._rest)

    @property
    def has_more(self) -> bool:
        """Whether there was more than is given at once: feed it again, with nothing."""
        return bool(self._rest)

    @property
    def partial_bytes(self) -> int:
        """How much has come of what has not been given (bytes)."""
        return self._kept.size + len(self._rest) - self._rest_at

    def feed(self, data: bytes) -> list[bytes | Fault]:
        """Find the objects that are whole now, and the faults, in the stream's order, `OBJECTS_MAX` at most."""
        out: list[bytes | Fault] = []
        self.seen = []
        at = 0
        if self._rest:
            if data:
                data = self._rest[self._rest_at :] + data
            else:
                data, at = self._rest, self._rest_at
            self._rest, self._rest_at = b"", 0
        size = len(data)
        while at < size and not self._is_dead:
            if len(out) >= OBJECTS_MAX:
                self._rest, self._rest_at = data, at
                break
            if self._is_skipping:
                found = _RESUME.search(data, at)
                if found is None:
                    break
                at = found.start()
                self._is_skipping = False
            elif self._brackets.depth:
                at = self._go_on(data, at, out)
            else:
                found = _NOT_SPACE.search(data, at)
                if found is None:
                    break
                at = self._begin(data, found.start(), out)
        return out

    def _begin(self, data: bytes, at: int, out: list[bytes | Fault]) -> int:
        """Look at the first byte of something new; the place behind what was looked at."""
        first = data[at : at + 1]
        if first == b"{":
            return self._go_on(data, at, out)
        is_fatal = first not in OTHER_VALUES
        reason = f"a request is a JSON object, and this begins with {_shown(first)}"
        out.append(Fault("bad_json", reason, is_fatal))
        self._is_skipping = True
        self._is_dead = is_fatal
        return at + 1 if first == b"\n" else at

    def _go_on(self, data: bytes, at: int, out: list[bytes | Fault]) -> int:
        """Inside an object, or at its beginning; the place behind what was looked at."""
        brackets = self._brackets
        most = at + self._bytes_max - self._size + 1  # what is behind that is of no account, however it was cut
        end = brackets.pass_over(data, at, min(len(data), most))
        self._size += end - at
        if brackets.deepest > self._depth_max and not self._is_too_deep:
            self._is_too_deep = True
            self._kept.clear()
            out.append(too_deep(self._depth_max))
        if self._size > self._bytes_max:
            out.append(Fault("too_large", f"a request may have {self._bytes_max} bytes", is_fatal=True))
            self._is_dead = True
            self._kept.clear()
            return end
        if not brackets.depth:
            if not self._is_too_deep:
                piece = _cut(data, at, end)
                if self._kept.size:
                    self._kept.add(piece)
                    piece = self._kept.take()
                out.append(piece)
                self.seen.append((brackets.fields, brackets.commas))
            self._is_too_deep = False
            self._size = brackets.deepest = brackets.fields = brackets.commas = 0
        elif not self._is_too_deep:
            self._kept.add(_cut(data, at, end))
        return end


def _cut(data: bytes, at: int, end: int) -> bytes:
    """Cut that out, or give all as it is: compiled code would copy it once more, and much may come."""
    return data if at == 0 and end == len(data) else data[at:end]


def too_deep(depth_max: int) -> Fault:
    """Said before the object is whole, so it tells nothing of what is in it."""
    return Fault("bad_json", f"nested deeper than {depth_max} levels")


def is_deeper(data: bytes, limit: int) -> bool:
    """Whether the brackets of valid JSON go deeper than `limit` levels. Takes time in proportion to the size."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False  # nearly always
    brackets = Brackets()
    brackets.pass_over(data, 0, len(data))
    return brackets.deepest > limit


def _shown(byte: bytes) -> str:
    return repr(byte.decode("ascii")) if 32 < byte[0] < 127 else f"the byte 0x{byte[0]:02x}"


def twice(text: bytes, body: bytes) -> Fault:
    """Says which field of `text` it is where that is quickly found."""
    name = first_double(text) if len(body) <= NAMED_BYTES_MAX else None
    return Fault(ErrorWord.FIELD, f"{name or 'a field'} stands there twice", body=body)
