"""A node with its console: started together, apart in their faults, ended together."""

import http.client
import os
import signal
import time
from pathlib import Path

import pytest

from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.node import free_port


def asked(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def consoles(port: int) -> list[int]:
    """Processes of a console that listens there."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, NotADirectoryError):
            continue
        if b"console" in words and any(f'"port": {port}'.encode() in word for word in words):
            found.append(int(folder.name))
    return found


@pytest.mark.slow
def test_a_node_has_its_console_which_ends_alone_and_goes_with_it(start_node: StartNode) -> None:
    port, other = free_port(), free_port()
    listeners = [{"port": port, "serves": ["console"]}, {"port": other, "serves": ["metrics", "health"]}]
    node = start_node(http_listeners=listeners)
    wait_for(lambda: asked(other, "/readyz")[0] == 200, 20)
    assert "Overview" in asked(port, "/")[1]
    assert asked(port, "/metrics")[0] == asked(other, "/")[0] == 404
    assert "quorate_messages" in asked(other, "/metrics")[1]
    [console] = consoles(port)
    os.kill(console, signal.SIGKILL)
    with node.client() as client:
        client.produce("q", 1)
    wait_for(lambda: asked(other, "/readyz")[0] == 200, 20)
    assert consoles(port) != [console]
    node.stop()
    assert consoles(port) == []


@pytest.mark.slow
def test_a_console_does_not_outlive_its_supervisor(start_node: StartNode) -> None:
    port = free_port()
    node = start_node(http_listeners=[{"port": port}])
    wait_for(lambda: asked(port, "/healthz")[0] == 200, 20)
    assert node.process is not None
    os.kill(node.process.pid, signal.SIGKILL)
    wait_for(lambda: consoles(port) == [], 20)


@pytest.mark.slow
def test_a_console_that_can_not_be_does_not_end_its_node(start_node: StartNode) -> None:
    node = start_node(http_listeners=[{"port": free_port(), "cert": "none.pem"}])
    wait_for(lambda: "the console ended with code 1" in node.log, 20)
    with node.client() as client:
        assert client.produce("q", 1)
    begun = time.monotonic()
    node.stop()
    assert time.monotonic() - begun < 5
