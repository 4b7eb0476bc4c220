"""MetaQ's lines: bytes to commands, and replies to bytes. It knows no command but by how many words and bytes it has.

    command SP params SP opaque CRLF [body]

A command is its words, divided by one blank each; blanks at its end are ignored. Of `put`, `result` and `value` a word
says how many bytes follow the line. A reply is `result code length opaque` with a text behind it, or
`value length opaque` with messages. What is no command has no answer: the connection ends.
"""

import re
from typing import Final

from net.protocols.pieces import Pieces

LINE_BYTES_MAX: Final = 4096
COMMANDS_MAX: Final = 500
"""So many commands are cut apart in one go."""

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
USUAL_DIGITS: Final = 10

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)

LENGTH_AT: Final[dict[str, int]] = {"put": 3, "result": 2, "value": 1}
"""Which word says how long the body is."""

Command = tuple[list[str], bytes]
"""Words, at least one, and the body."""


class MalformedError(Exception):
    """What came is no command."""


def number_in(word: str, most: int = INT_MAX) -> int:
    """Read a decimal number from -`most` - 1 to `most`. Raises `MalformedError`."""
    if len(word) < USUAL_DIGITS and word.isascii() and word.isdigit():  # nearly always
        return int(word)
    if not _NUMBER.fullmatch(word):
        raise MalformedError
    number = int(word)
    if not -most - 1 <= number <= most:
        raise MalformedError
    return number


def result(code: int, text: str, opaque: int) -> bytes:
    """Make a reply with a text."""
    data = text.encode()
    return b"result %d %d %d\r\n%b" % (code, len(data), opaque, data)


def value(frames: list[bytes], size: int, opaque: int) -> bytes:
    """Make a reply with messages, of so many bytes."""
    return b"".join([b"value %d %d\r\n" % (size, opaque), *frames])


class MetaqReader:
    """One client's stream. `partial_bytes`: what is held of a command that is not whole. `body_bytes_max`: of a body.

    `has_more`: there was too much to be looked at in one go: feed it again, with nothing.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self.partial_bytes = 0
        self.has_more = False
        self._body_bytes_max = body_bytes_max
        self._left = b""
        self._kept = Pieces()
        self._words: list[str] = []
        self._wanted = 0

    @property
    def is_idle(self) -> bool:
        """Whether the next byte begins a command."""
        return not (self._left or self._kept.size or self._words)

    def feed(self, data: bytes) -> list[Command]:
        """Find the commands that `data` completes.

        Raises `MalformedError` for what is none, if nothing stands before it; else with the next call.
        """
        if self._left:
            data, self._left = self._left + data, b""
        if self._kept.size:
            if not self._completes(data):
                self._kept.add(data)
                self.partial_bytes = self._kept.size
                return []
            self._kept.add(data)
            data = self._kept.take()
        found: list[Command] = []
        at, size = 0, len(data)
        self.has_more = False
        while at < size:
            if len(found) == COMMANDS_MAX:
                self.has_more = True
                break
            try:
                at = self._read_on(data, at, found)
            except MalformedError:
                if not found:
                    raise
                self.has_more = True  # what stands before it is answered
                break
            if at < 0:
                at = -at - 1
                break
        if self.has_more:
            self._left = data[at:]
        elif at < size:
            self._kept.add(data[at:])
        self.partial_bytes = self._kept.size + len(self._left)
        return found

    def _read_on(self, data: bytes, at: int, found: list[Command]) -> int:
        """Read a line or a body from there; returns where the next begins, or -1 - `at` if it is not whole."""
        if not self._words:
            end = data.find(b"\r\n", at, at + LINE_BYTES_MAX)
            if end < 0:
                if len(data) - at >= LINE_BYTES_MAX:
                    raise MalformedError
                return -1 - at
            words = _words_of(data[at:end])
            its = LENGTH_AT.get(words[0])
            if its is None:
                found.append((words, b""))
                return end + 2
            wanted = number_in(words[its]) if len(words) > its else -1
            if not 0 <= wanted <= self._body_bytes_max:
                raise MalformedError
            self._words, self._wanted = words, wanted
            at = end + 2
        if len(data) - at < self._wanted:
            return -1 - at
        words, end = self._words, at + self._wanted
        self._words, self._wanted = [], 0
        found.append((words, data[at:end]))
        return end

    def _completes(self, data: bytes) -> bool:
        """Whether what is kept is to be looked at again, with `data` behind it: not for each piece of a long body."""
        size = self._kept.size + len(data)
        if self._words:
            return size >= self._wanted
        return data.find(b"\n") >= 0 or size >= LINE_BYTES_MAX


def _words_of(line: bytes) -> list[str]:
    try:
        return line.decode().rstrip(" ").split(" ")
    except UnicodeDecodeError:
        raise MalformedError from None
