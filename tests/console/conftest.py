"""A console beside a node, and who asks it as a browser does."""

import http.client
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.node import Node

QCTL = str(Path(sys.executable).with_name("qctl"))


class Answer:
    """Of the console."""

    def __init__(self, reply: http.client.HTTPResponse) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.body = reply.read()

    @property
    def text(self) -> str:
        return self.body.decode()


class Console:
    """One that runs. `cookie` is sent along."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process = process
        self.port = port
        self.cookie: str | None = None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            if self.cookie is not None:
                named.setdefault("Cookie", f"quorate_console_{self.port}={self.cookie}")
            connection.request(method, path, body or None, named)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str, **fields: Any) -> Answer:
        return self.ask("GET", path + (f"?{urlencode(fields, doseq=True)}" if fields else ""))

    def post(self, path: str, **fields: Any) -> Answer:
        form = urlencode(fields, doseq=True).encode()
        kind = "application/x-www-form-urlencoded"
        return self.ask("POST", path, form, Content_Type=kind, Origin=self.origin, Sec_Fetch_Site="same-origin")

    def log_in(self, token: str) -> Answer:
        answer = self.post("/login", token=token, back="/queues")
        if answer.status == 303:
            self.cookie = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
        return answer


def asked(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def told(sample: Any) -> tuple[str, ...]:
    """A metric's name, and its labels' values in the order of their names."""
    return (sample.name, *(value for _, value in sorted(sample.labels.items())))


StartConsole = Callable[..., Console]


@pytest.fixture
def start_console() -> Iterator[StartConsole]:
    """Start one for a node; all are stopped at the end."""
    started: list[Console] = []

    def start(node: Node, *words: str) -> Console:
        command = [QCTL, "console", "--url", f"quorate://127.0.0.1:{node.port}", "--http-port", "0", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        console = Console(process, int(line.rstrip().rstrip("/").rpartition(":")[2]))
        started.append(console)
        return console

    yield start
    for console in started:
        console.process.terminate()
        assert console.process.wait(10) == 0
        assert console.process.stdout is not None
        console.process.stdout.close()
