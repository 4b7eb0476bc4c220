"""Reception: what clients are told of themselves and each other."""

from actors.node.private_files import rights_of
from net.protocols import BESIDE
from quorate.protocol import Action
from tests.actors.gateway.listener_fixture import ListenerFixture


def test_a_client_is_listed_by_the_protocol_that_it_speaks_whichever_port_it_came_by() -> None:
    node = ListenerFixture({"operator": rights_of(["operate"])})
    first, second = node.client("operator"), node.client()
    first.connection.protocol, second.connection.protocol = "json", "json" + BESIDE
    assert [one["protocol"] for one in first.ask(Action.CLIENT, command="list")["clients"]] == ["json", "json"]
