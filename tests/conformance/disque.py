"""What the tests of Disque's protocol share: listeners, and jobs as SHOW tells them."""

from typing import Any

from bench.resp import Resp
from tests.node import Node, free_port


def listening(**more: Any) -> dict[str, Any]:
    """A listener's configuration."""
    return {"protocol": "disque", "host": "127.0.0.1", "port": free_port(), **more}


def port_of(node: Node) -> int:
    """Of its first listener."""
    return int(node.config["listeners"][0]["port"])


def shown(disque: Resp, job: str) -> dict[str, Any]:
    """What SHOW tells, by name."""
    pairs = disque.ask("SHOW", job)
    return {name.decode(): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
