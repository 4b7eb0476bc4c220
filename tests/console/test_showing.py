"""What pages make of what a client returns, and which queues they list."""

from console.showing import as_shown
from quorate.messages import ShownMessage
from tests.conftest import StartNode
from tests.console.conftest import StartConsole


def test_a_message_is_shown_with_what_it_says_and_its_data_as_produced() -> None:
    shown = as_shown(ShownMessage(7, "q", b"\xff", 1, state="ready"))
    assert (shown["data"], shown["state"], shown["msg_id"]) == (b"\xff", "ready", 7)
    assert "key" not in shown


def test_system_queues_are_listed_when_they_are_asked_for(start_node: StartNode, start_console: StartConsole) -> None:
    node = start_node()
    with node.client() as client:
        client.produce("mail", 1)
        client.configure("inner", system=True)
    console = start_console(node)
    plain = console.get("/queues").text
    assert ">mail<" in plain
    assert ">inner<" not in plain
    both = console.get("/queues", system="1").text
    assert ">mail<" in both
    assert ">inner<" in both
    assert "checked" in both
    assert "system=1" in both, "links keep it"
