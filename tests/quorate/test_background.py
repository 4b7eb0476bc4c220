"""Where the system has no thread to give, the next message asks again."""

import threading
import time
from collections.abc import Callable

import pytest

from quorate import ConnectionFailedError
from quorate.confirms import LaterConfirms
from quorate.leases import Leases
from quorate.taking import Taker
from tests.cluster import wait_for
from tests.conftest import StartNode


@pytest.fixture
def fail_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The next thread can't be started."""

    def arm() -> None:
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            monkeypatch.setattr(threading.Thread, "start", start)
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)

    return arm


def test_confirmations_go_on(start_node: StartNode, fail_once: Callable[[], None]) -> None:
    """From then on everybody believed that the thread ran: all came again."""
    with start_node().client() as client:
        told: list[object] = []
        confirms: LaterConfirms = LaterConfirms(client, lambda messages, there: told.append(there))  # type: ignore[type-arg]
        client.produce_many("q", [1, 2], retry=60)
        first, second = client.consume_many("q", 2)
        fail_once()
        confirms.confirm(first)
        assert told == [1], "it was asked at once"
        confirms.confirm(second)
        wait_for(lambda: told == [1, 1])
        assert client.monitor("q")["size"] == 0
        confirms.close(5)


def test_leases_go_on(start_node: StartNode, fail_once: Callable[[], None]) -> None:
    with start_node().client() as client:
        leases: Leases = Leases(client)  # type: ignore[type-arg]
        client.produce_many("q", [1, 2], retry=1.5)
        first, second = client.consume_many("q", 2)
        fail_once()
        leases.take([first])
        leases.take([second])
        time.sleep(2.5)
        assert client.monitor("q")["in_flight"] == 2
        leases.close()


def test_taking_begins_when_it_is_asked_again(start_node: StartNode, fail_once: Callable[[], None]) -> None:
    with start_node().client() as client:
        client.produce("q", 1)
        found: list[object] = []
        taker = Taker(client, lambda: 4, found.extend, found.append)
        fail_once()
        with pytest.raises(ConnectionFailedError, match="thread"):
            taker.set_queues(["q"])
        taker.set_queues(["q"])
        wait_for(lambda: len(found) == 1)
        taker.close(5)
