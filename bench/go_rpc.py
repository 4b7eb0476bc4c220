"""A client of gmq's, for tests and benchmarks: Go's JSON-RPC over one connection, as gmq's Python client speaks it."""

import json
import socket
from typing import Any, Self


class GmqError(Exception):
    """What a reply says in `error`."""


class Gmq:
    """One connection. Numbers its calls from 0, as Go does; waits for one reply after the other."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._lines = self._socket.makefile("rb")
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._lines.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Any bytes."""
        self._socket.sendall(data)

    def end(self) -> None:
        """Say that nothing more comes."""
        self._socket.shutdown(socket.SHUT_WR)

    def line(self) -> bytes:
        """The next reply's line; empty: the node has closed the connection."""
        return self._lines.readline()

    def begin(self, method: str, *params: Any) -> int:
        """Send a call; its number."""
        number = self._count
        self._count += 1
        self.send(json.dumps({"method": f"Service.{method}", "params": list(params), "id": number}).encode())
        return number

    def reply(self) -> dict[str, Any]:
        """The next reply."""
        line = self.line()
        if not line:
            raise ConnectionError("the node has closed the connection")
        said: dict[str, Any] = json.loads(line)
        return said

    def ask(self, method: str, *params: Any) -> Any:
        """A call's result. Raises `GmqError`."""
        number = self.begin(method, *params)
        said = self.reply()
        assert said["id"] == number, said
        if said["error"] is not None:
            raise GmqError(said["error"])
        return said["result"]

    def push(self, job: str, topic: str, body: str = "", delay: int | str = "0", ttr: int | str = "0") -> Any:
        """Push a job."""
        return self.ask("Push", {"id": job, "topic": topic, "body": body, "delay": str(delay), "TTR": str(ttr)})

    def pop(self, *topics: str) -> dict[str, str]:
        """A job. Raises `GmqError`: "empty" where none came in time."""
        found: dict[str, str] = self.ask("Pop", list(topics))
        return found

    def acknowledge(self, job: str) -> Any:
        """Say that a job is done."""
        return self.ask("Ack", job)
