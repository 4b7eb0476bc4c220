"""A client of RESP for benchmarks and tests: one socket, commands as words, replies as Python's values."""

import socket
from typing import Any


class Resp:
    """Strings are bytes, errors are `RespError` values, nil is None."""

    def __init__(self, port: int, timeout_s: float = 20.0) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._stream = self.sock.makefile("rb")

    def __enter__(self) -> "Resp":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self.sock.close()

    def send(self, *words: str | bytes | int) -> None:
        """One command."""
        arguments = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.sock.sendall(b"*%d\r\n" % len(arguments) + b"".join([b"$%d\r\n%b\r\n" % (len(a), a) for a in arguments]))

    def ask(self, *words: str | bytes | int) -> Any:
        """One command's reply."""
        self.send(*words)
        return self.read()

    def line(self, text: str) -> Any:
        """The reply to a command of words that have no blanks."""
        return self.ask(*text.split())

    def read(self) -> Any:
        """The next reply. Raises ConnectionError if there is none."""
        line = self._stream.readline()
        if not line:
            raise ConnectionError("the node has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return RespError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"_" or rest == b"-1":
            return None
        if kind == b"$":
            return self._stream.read(int(rest) + 2)[:-2]
        if kind == b"%":
            return {self.read(): self.read() for _ in range(int(rest))}
        assert kind == b"*", line
        return [self.read() for _ in range(int(rest))]


class RespError(str):
    """What stands behind the minus."""

    __slots__ = ()
