"""Waits of the sync client that are ended by another thread, also over TLS; and what that leaves on the connection."""

import threading
import time
from pathlib import Path

import pytest

from quorate import Client, ConnectionFailedError, Interrupt
from quorate.confirms import Confirms, LaterConfirms
from quorate.delivered import DeliveredMessage
from tests.conftest import StartNode
from tests.faults.security import Authority


def test_an_interrupted_wait_is_over_at_once_and_the_next_request_has_its_own_answer(start_node: StartNode) -> None:
    with start_node().client() as client:
        interrupt = Interrupt()
        for n in range(100):
            timer = threading.Timer(0.001 * (n % 5), interrupt.set)
            timer.start()
            begun = time.monotonic()
            found = client.consume("none", wait=20, interrupt=interrupt)
            assert found is None
            assert time.monotonic() < begun + 5
            assert client.produce("q", n)
            timer.join()
            interrupt.clear()
        interrupt.set()
        assert client.consume_many("none", 5, wait=20, interrupt=interrupt) == []


def test_what_was_given_out_by_then_is_returned(start_node: StartNode) -> None:
    with start_node().client() as client:
        interrupt = Interrupt()
        for n in range(60):
            threading.Timer(0.002, client.produce, ("q", n)).start()
            timer = threading.Timer(0.002 + 0.0002 * (n % 10), interrupt.set)
            timer.start()
            message = client.consume("q", wait=20, interrupt=interrupt)
            timer.join()
            interrupt.clear()
            if message is None:
                message = client.consume("q", wait=20)
            assert message is not None
            assert (message.data, message.deliveries) == (n, 1), "none waits out a lease"
            message.confirm()


def test_a_wait_over_tls_is_interrupted_too(start_node: StartNode, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    node = start_node(tls=1, tls_cert=authority.issue("127.0.0.1"))
    with Client("127.0.0.1", node.port, ca=authority.ca) as client:
        for _ in range(2):  # the first wait of a connection, and a later one
            interrupt = Interrupt()
            timer = threading.Timer(0.3, interrupt.set)
            timer.start()
            begun = time.monotonic()
            assert client.consume("none", wait=20, interrupt=interrupt) is None
            assert time.monotonic() < begun + 5
            timer.join()


class Silent:
    """A client whose confirmations raise, so many times."""

    def __init__(self, error: BaseException, times: int) -> None:
        self.error, self.times = error, times
        self.confirmed: list[int] = []

    def confirm(self, messages: list[DeliveredMessage]) -> int:
        time.sleep(0.01)
        if self.times:
            self.times -= 1
            raise self.error
        self.confirmed += [message.msg_id for message in messages]
        return len(messages)


def message(msg_id: int, retry: float = 60) -> DeliveredMessage:
    return DeliveredMessage(msg_id, "q", None, 1, retry=retry, client=None)  # type: ignore[arg-type]  # nothing asks it


def test_a_thread_that_is_ended_while_it_confirms_for_others_leaves_none_waiting() -> None:
    confirms = Confirms(Silent(KeyboardInterrupt(), 1))  # type: ignore[arg-type]  # as a client
    raised: list[BaseException] = []

    def confirm(n: int) -> None:
        try:
            confirms.confirm(message(n))
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=confirm, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert any(isinstance(error, KeyboardInterrupt) for error in raised)


@pytest.mark.parametrize(("retry", "is_confirmed"), [(60.0, True), (0.02, False)])
def test_what_is_done_is_confirmed_when_the_node_is_back_within_its_lease(retry: float, is_confirmed: bool) -> None:
    client = Silent(ConnectionFailedError("away"), 2)
    told: list[int | Exception] = []
    later: LaterConfirms[DeliveredMessage] = LaterConfirms(client, lambda messages, there: told.append(there))  # type: ignore[arg-type]
    later.confirm(message(1, retry))
    assert later.flush(10)
    later.close(1)
    if is_confirmed:
        assert (client.confirmed, told) == ([1], [1])
    else:
        assert isinstance(told[0], ConnectionFailedError)
