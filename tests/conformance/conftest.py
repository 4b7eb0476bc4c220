"""Real nodes for clients of Disque's."""

from collections.abc import Iterator

import pytest

from bench.resp import Resp
from tests.conformance.disque import listening, port_of
from tests.conftest import StartNode
from tests.node import Node


@pytest.fixture
def disque_node(start_node: StartNode) -> Node:
    """One with a listener for them, on which DEBUG is there."""
    return start_node(listeners=[listening(debug=True)])


@pytest.fixture
def disque(disque_node: Node) -> Iterator[Resp]:
    """A client of that node."""
    with Resp(port_of(disque_node)) as client:
        yield client
