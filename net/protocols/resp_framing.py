"""RESP, Redis's wire protocol: bytes to lists of arguments, and values to bytes. It knows no command.

A request is an array of bulk strings, or a line of words as a person types it. Nearly all that comes is whole requests;
those are cut apart in one go. What is not whole is kept as its arguments come, with a bound on all of it together.
Facts: redis.io/docs/latest/develop/reference/protocol-spec.
"""

from typing import Final, NamedTuple

from net.protocols.pieces import Pieces

ARGUMENTS_MAX: Final = 1_048_576
INLINE_BYTES_MAX: Final = 64 << 10
ARGUMENT_BYTES: Final = 50
"""What an argument takes in memory beside its bytes."""

REQUESTS_MAX: Final = 200
STEPS_MAX: Final = 1000
"""So many requests, and so many arguments and lines of others, are cut apart in one go."""

INLINE_STEP_BYTES: Final = 16
"""A line counts as one step more for each so many bytes: words of one letter take as long as arguments do."""

HEAD_BYTES_MAX: Final = 32
"""A count or a length has fewer digits."""

ERROR_BYTES_MAX: Final = 512

TLS_BEGINS: Final = 0x16
ARRAY: Final = ord("*")
BULK: Final = ord("$")
SPACES: Final = b" \t\r\n\v\f\0"
QUOTES: Final = (ord('"'), ord("'"))
ESCAPED: Final = {ord("n"): b"\n", ord("r"): b"\r", ord("t"): b"\t", ord("b"): b"\b", ord("a"): b"\a"}
HEX: Final = frozenset(b"0123456789abcdefABCDEF")

Arguments = list[bytes]


class Broken(NamedTuple):
    """What came is no request, and nothing behind it can be read; `why` None: it is none of this protocol's clients."""

    why: str | None


NOT_OURS: Final = Broken(None)


class RespReader:
    """One client's stream. `partial_bytes`: what is held of a request that is not whole. `bytes_max`: of a request.

    `has_more`: there was too much to be looked at in one go: feed it again, with nothing.
    """

    def __init__(self, bytes_max: int) -> None:
        self.partial_bytes = 0
        self.has_more = False
        self._bytes_max = bytes_max
        self._buffer = b""
        self._at = 0
        self._kept = Pieces()
        self._wanted = 0
        self._is_line = False
        self._arguments: Arguments = []
        self._missing = 0
        self._held = 0
        self._is_first = True

    @property
    def is_idle(self) -> bool:
        """Whether the next byte begins a request."""
        return not self._buffer and not self._kept.size and not self._missing

    def feed(self, data: bytes) -> list[Arguments | Broken]:
        """Find the requests that `data` completes, each with one argument at least. Behind a `Broken` nothing may be
        fed."""
        if self._is_first and data:
            self._is_first = False
            if data[0] == TLS_BEGINS:
                return [NOT_OURS]
        found: list[Arguments | Broken] = []
        at = 0
        if self.is_idle:
            at = _whole_requests(data, found, self._bytes_max)
            if at == len(data):
                self.partial_bytes = 0
                return found
            if at:
                data = data[at:]
        if self._kept.size:
            if not self._completes(data):
                self._kept.add(data)
                self.partial_bytes = self._kept.size + self._held
                return found
            self._kept.add(data)
            data = self._kept.take()
        if data:
            self._buffer, self._at = self._buffer[self._at :] + data if self._buffer else data, 0
        self._read_on(found)
        self.partial_bytes = len(self._buffer) - self._at + self._kept.size + self._held
        return found

    def _completes(self, data: bytes) -> bool:
        """Whether what is kept is to be looked at again, with `data` behind it: not for each piece of something long,
        which would take time in proportion to the square of its length."""
        size = self._kept.size + len(data)
        if self._is_line:
            return data.find(b"\n") >= 0 or size > INLINE_BYTES_MAX
        return size >= self._wanted

    def _read_on(self, found: list[Arguments | Broken]) -> None:
        """Take what is whole from the buffer, and of the rest as many arguments as there are.

        What is not whole is kept; so is not what there was no time for: `has_more`.
        """
        at, steps, buffer = self._at, 0, self._buffer
        self.has_more = False
        while at < len(buffer):
            steps += 1
            if steps > STEPS_MAX:
                self.has_more = True
                self._at = at
                return
            self._wanted, self._is_line = 0, False
            begun = at
            if not self._missing and buffer[at] != ARRAY:
                step = self._inline(buffer, at, found)
                steps += (step - begun) // INLINE_STEP_BYTES
            elif self._missing:
                step = self._argument(buffer, at, found)
            else:
                step = self._begin(buffer, at, found)
            if step < 0:
                break
            at = step
        self._buffer, self._at = b"", 0
        if at < len(buffer) and not (found and isinstance(found[-1], Broken)):
            self._kept.add(buffer[at:] if at else buffer)

    def _broken(self, found: list[Arguments | Broken], why: str) -> int:
        found.append(Broken(why))
        self._arguments, self._missing, self._held = [], 0, 0
        return -1

    def _begin(self, buffer: bytes, at: int, found: list[Arguments | Broken]) -> int:
        """Read the head of an array: its count. Gives the place behind it; -1: it is not there yet, or broken."""
        end = buffer.find(b"\r\n", at, at + HEAD_BYTES_MAX)
        if end < 0:
            is_long = len(buffer) - at >= HEAD_BYTES_MAX
            return self._broken(found, "invalid multibulk length") if is_long else -1
        count = _number(buffer[at + 1 : end])
        if count is None or count > ARGUMENTS_MAX:
            return self._broken(found, "invalid multibulk length")
        self._missing = max(count, 0)
        return end + 2

    def _argument(self, buffer: bytes, at: int, found: list[Arguments | Broken]) -> int:
        """Read the next argument."""
        if buffer[at] != BULK:
            return self._broken(found, f"expected '$', got '{_shown(buffer[at : at + 1])}'")
        end = buffer.find(b"\r\n", at, at + HEAD_BYTES_MAX)
        if end < 0:
            is_long = len(buffer) - at >= HEAD_BYTES_MAX
            return self._broken(found, "invalid bulk length") if is_long else -1
        size = _number(buffer[at + 1 : end])
        if size is None or size < 0 or size > self._bytes_max:
            return self._broken(found, "invalid bulk length")
        if self._held + size + ARGUMENT_BYTES > self._bytes_max + ARGUMENTS_MAX:
            return self._broken(found, "too big request")
        last = end + 2 + size
        if len(buffer) < last + 2:
            self._wanted = last + 2 - at
            return -1
        self._arguments.append(buffer[end + 2 : last])
        self._held += size + ARGUMENT_BYTES
        self._missing -= 1
        if not self._missing:
            found.append(self._arguments)
            self._arguments, self._held = [], 0
        return last + 2

    def _inline(self, buffer: bytes, at: int, found: list[Arguments | Broken]) -> int:
        """Read a line of words."""
        end = buffer.find(b"\n", at, at + INLINE_BYTES_MAX + 1)
        if end < 0:
            self._is_line = True
            is_long = len(buffer) - at > INLINE_BYTES_MAX
            return self._broken(found, "too big inline request") if is_long else -1
        words = split_words(buffer[at:end])
        if words is None:
            return self._broken(found, "unbalanced quotes in request")
        if words and words[0].lower() in (b"post", b"host:"):
            found.append(NOT_OURS)  # a browser's: what follows was written by a page
            return -1
        if words:
            found.append(words)
        return end + 1


KNOWN_LENGTHS: Final = 256
_LENGTHS: Final = [b"$%d" % length for length in range(KNOWN_LENGTHS)]
"""What stands before an argument of that length; nearly all are short."""

_COUNTS: Final = {b"*%d" % count: count for count in range(1, 64)}
"""What an array of so many begins with; nearly all are short."""


def _whole_requests(data: bytes, found: list[Arguments | Broken], bytes_max: int) -> int:
    """Cut apart the requests at the beginning of `data` that are whole arrays; gives the place behind them.

    The pieces between the line ends are the arguments, where none of them holds one itself; then their lengths fit.
    """
    if len(data) > bytes_max:
        return 0
    pieces = data.split(b"\r\n")
    index, at, last = 0, 0, len(pieces) - 1
    while index < last:
        head = pieces[index]
        count = _COUNTS.get(head, 0)
        if not count:
            if not 2 <= len(head) <= HEAD_BYTES_MAX or head[0] != ARRAY or not head[1:].isdigit():
                break
            count = int(head[1:])
        stop = index + 1 + 2 * count
        if not count or stop > last or len(found) >= REQUESTS_MAX:
            break
        lengths, arguments = pieces[index + 1 : stop : 2], pieces[index + 2 : stop : 2]
        size = len(head) + 2 + 4 * count
        for place in range(count):
            length, argument = lengths[place], arguments[place]
            there = len(argument)
            if length != (_LENGTHS[there] if there < KNOWN_LENGTHS else b"$%d" % there):
                return at
            size += len(length) + there
        found.append(arguments)
        at += size
        index = stop
    return at


def _number(digits: bytes) -> int | None:
    """Read a whole number as the wire has it; None: it is none."""
    if digits.isdigit() or (digits[:1] == b"-" and digits[1:].isdigit()):
        return int(digits)
    return None


def split_words(line: bytes) -> Arguments | None:
    """Split the words of a line, with quotes as a shell has them; None: they do not end, or end within a word."""
    if line.find(b'"') < 0 and line.find(b"'") < 0 and line.find(b"\0") < 0:
        return line.split()  # nearly always, and several times as fast
    words: Arguments = []
    at, end = 0, len(line)
    while True:
        while at < end and line[at] in SPACES:
            at += 1
        if at == end:
            return words
        word = bytearray()
        while at < end and line[at] not in SPACES:
            if line[at] in QUOTES:
                at = _quoted(line, at, word)
                if at < 0 or (at < end and line[at] not in SPACES):
                    return None
            else:
                word.append(line[at])
                at += 1
        words.append(bytes(word))


def _quoted(line: bytes, at: int, word: bytearray) -> int:
    """Add what stands within quotes from `at` on; gives the place behind them, -1: there is no end."""
    quote = line[at]
    at += 1
    while at < len(line):
        byte = line[at]
        if byte == quote:
            return at + 1
        if byte == 0x5C and at + 1 < len(line):  # a backslash
            follows = line[at + 1]
            digits = line[at + 2 : at + 4]
            if quote == QUOTES[0] and follows == 0x78 and len(digits) == 2 and HEX.issuperset(digits):
                word.append(int(digits, 16))
                at += 4
            elif quote == QUOTES[0]:
                word += ESCAPED.get(follows, bytes((follows,)))
                at += 2
            elif follows == quote:
                word.append(quote)
                at += 2
            else:
                word.append(byte)
                at += 1
        else:
            word.append(byte)
            at += 1
    return -1


def _shown(data: bytes) -> str:
    text = data.decode("latin-1")
    return text if text.isprintable() else "?"


# -- values to bytes ---------------------------------------------------------------------------------------------------

OK: Final = b"+OK\r\n"
EMPTY: Final = b"*0\r\n"


def bulk(data: bytes) -> bytes:
    """Encode a string of any bytes."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def simple(text: bytes) -> bytes:
    """Encode a short string without line breaks."""
    return b"+%b\r\n" % text


def integer(number: int) -> bytes:
    """Encode a whole number."""
    return b":%d\r\n" % number


def array(items: list[bytes]) -> bytes:
    """Encode a list of what is encoded already."""
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def strings(items: list[bytes]) -> bytes:
    """Encode a list of strings."""
    return array([bulk(item) for item in items])


def error(text: str) -> bytes:
    """Encode an error: a word in capitals and a sentence; whatever else a line can't hold is replaced."""
    shown = "".join([character if character.isprintable() else "?" for character in text[:ERROR_BYTES_MAX]])
    return b"-%b\r\n" % shown.encode("utf-8", "replace")
