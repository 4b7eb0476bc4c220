"""A client of MetaQ's protocol, for tests and benchmarks: one connection, one command after the other."""

import socket
import struct
from typing import NamedTuple, Self

OK = 200
_HEAD = struct.Struct(">iIqi")


class Answer(NamedTuple):
    """A reply: its code, 0 for messages, its `opaque`, and what follows its line."""

    code: int
    opaque: int
    data: bytes

    @property
    def text(self) -> str:
        """What follows, as text."""
        return self.data.decode()


class Got(NamedTuple):
    """A message of a get. `position`: where it begins in its partition (bytes)."""

    position: int
    msg_id: int
    flag: int
    payload: bytes


class MetaqError(Exception):
    """A reply that is not what was asked for."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.code} {answer.text}")
        self.answer = answer


class Metaq:
    """One connection. Raises `MetaqError`, ConnectionError, TimeoutError."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._stream = self._socket.makefile("rb")
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._stream.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send any bytes."""
        self._socket.sendall(data)

    def end(self) -> None:
        """Say that nothing more comes."""
        self._socket.shutdown(socket.SHUT_WR)

    def answer(self) -> Answer:
        """Read the next reply."""
        words = self._stream.readline().split()
        if not words:
            raise ConnectionError("the node has closed the connection")
        if words[0] == b"value":
            code, size, opaque = 0, int(words[1]), int(words[2])
        else:
            code, size, opaque = int(words[1]), int(words[2]), int(words[3])
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionError("the node has closed the connection")
        return Answer(code, opaque, data)

    def ask(self, command: str, body: bytes = b"") -> Answer:
        """Send a command, whose opaque is added, and read its reply."""
        self._opaque += 1
        self.send(f"{command} {self._opaque}\r\n".encode() + body)
        answer = self.answer()
        if answer.opaque != self._opaque:
            raise ConnectionError(f"opaque {answer.opaque} instead of {self._opaque}")
        return answer

    def done(self, command: str, body: bytes = b"") -> str:
        """Do it; the text of its reply."""
        answer = self.ask(command, body)
        if answer.code != OK:
            raise MetaqError(answer)
        return answer.text

    def put(self, topic: str, payload: bytes, partition: int = -1, flag: int = 0, transaction: str = "") -> list[int]:
        """Append; id, partition and position."""
        more = f" -1 {transaction}" if transaction else ""
        text = self.done(f"put {topic} {partition} {len(payload)} {flag}{more}", payload)
        return [int(one) for one in text.split()]

    def transaction(self, key: str, kind: str, *options: str) -> str:
        """Begin or end a transaction."""
        return self.done(" ".join(["transaction", key, "session", kind, *options]))

    def get(self, topic: str, partition: int, position: int, size: int = 1 << 20, group: str = "g") -> list[Got]:
        """Read whole messages from there on; follows redirects. Of what is not there raises `MetaqError`."""
        while True:
            answer = self.ask(f"get {topic} {group} {partition} {position} {size}")
            if answer.code != 301:
                break
            position = int(answer.text)
        if answer.code:
            raise MetaqError(answer)
        return messages_in(answer.data, position)

    def offset(self, topic: str, partition: int, position: int) -> int:
        """Look up where a message begins."""
        return int(self.done(f"offset {topic} g {partition} {position}"))


def messages_in(data: bytes, position: int) -> list[Got]:
    """Read the whole messages of a reply, the first of which is at that position."""
    found: list[Got] = []
    at = 0
    while at + _HEAD.size <= len(data):
        length, _, msg_id, flag = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        if end > len(data):
            break
        found.append(Got(position + at, msg_id, flag, data[at + _HEAD.size : end]))
        at = end
    return found
