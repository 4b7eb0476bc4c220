"""A protocol of lines that needs all that a session may do: what JSON does not, and others will."""

from typing import Any

from net.protocols.session import Ask, Close, Fault, Found, Say, Session
from quorate.protocol import Action, Code, ErrorWord, Reply, Request

LINE_MAX = 60


class LineSession(Session):
    """`USE q`, `GET`, `TWICE` (two requests, one answer), `PING`, `QUIT`; the queue that is used is remembered."""

    def __init__(self, *, is_ordered: bool = True) -> None:
        super().__init__(is_ordered=is_ordered)
        self._buffer = b""
        self._queue = "none"
        self._is_over = False

    @property
    def state(self) -> bytes | None:
        return None if self._buffer or self._is_over else self._queue.encode()

    def resume(self, state: bytes) -> None:
        self._queue = state.decode()

    def discard(self) -> None:
        super().discard()
        self._buffer = b""

    def receive(self, data: bytes) -> list[Found]:
        found: list[Found] = []
        self._buffer += data
        while (not self._is_over and (end := self._buffer.find(b"\n")) >= 0) or len(self._buffer) > LINE_MAX:
            line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
            one = Fault(ErrorWord.TOO_LARGE, "a long line", is_fatal=True) if end < 0 or end > LINE_MAX else None
            found.append(one or self._one(line.decode(errors="replace")))
            if isinstance(found[-1], Close) or one is not None:
                self._is_over, self._buffer = True, b""
        self.partial_bytes = len(self._buffer)
        return found

    def _one(self, line: str) -> Found:
        word, _, rest = line.partition(" ")
        if word == "USE" and rest:
            self._queue = rest
            return Say(b"OK\n")
        if word == "GET":
            return Request(Action.CONSUME, queue=self._queue)
        if word == "TWICE":
            return Ask(Request(Action.MONITOR, queue=self._queue), ("first", self._queue))
        if word == "PING":
            return Say(b"PONG\n")
        return Close() if word == "QUIT" else Fault(ErrorWord.BAD_JSON, "no such word")

    def answered(self, request: Request | None, reply: Reply, note: Any = None) -> bytes | Request | Ask:
        if reply.code != Code.OK:
            return f"-{reply.error}\n".encode()
        if note is not None and note[0] == "first":
            return Ask(Request(Action.LIST, pattern=note[1]), ("second", reply.msg_id))
        if note is not None:
            return f"{note[1]} and {reply.msg_id}\n".encode()
        return f"{reply.msg_id}\n".encode()

    def fault_reply(self, fault: Fault) -> Reply:
        return Reply(action=0, code=Code.ERROR, error=fault.error, reason=fault.reason)
