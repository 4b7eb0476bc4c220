"""What is fetched ahead is worked on by one client at a time: extended while it is asked for, given back in time."""

import asyncio
import os
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate import AsyncClient, Client, Message
from quorate.prefetched import Prefetched
from tests.conftest import StartNode

LEASE_S = 1.0


@given(st.lists(st.sampled_from([0.0, 2.0, 5.0]), max_size=6), st.lists(st.floats(0, 4), max_size=12))
def test_nothing_is_handed_out_whose_lease_is_over(retries: list[float], asked_after: list[float]) -> None:
    ahead: Prefetched[Message] = Prefetched()
    ahead.fetched([Message(n, "q", None, 1, retry=retry) for n, retry in enumerate(retries)], 10.0)
    until = {n: 10.0 + retry for n, retry in enumerate(retries)}
    now, seen = 10.0, []
    for pause in asked_after:
        now += pause
        late = ahead.to_extend(now)
        if late and now < ahead.back_at:
            ahead.extended(now)
            until.update({one.msg_id: now + lease for lease, messages in late.items() for one in messages})
        elif late:
            seen += [one.msg_id for one in ahead.give_back()]
        if not len(ahead):
            break
        message = ahead.next()
        seen.append(message.msg_id)
        assert not message.retry or until[message.msg_id] - now >= message.retry / 2, "enough of it is left to work"
    seen += [one.msg_id for one in ahead.left()]
    assert sorted(seen) == list(range(len(retries)))


def run_sync(node: Any, prefetch: int, pauses: list[float], handled: list[int]) -> None:
    with node.client() as client:
        for message, pause in zip(client.messages("q", prefetch=prefetch, wait=4), pauses, strict=False):
            with message:
                time.sleep(pause)
                handled.append(message.data)


def run_async(node: Any, prefetch: int, pauses: list[float], handled: list[int]) -> None:
    async def go() -> None:
        async with AsyncClient(port=node.port) as client:
            left = iter(pauses)
            async for message in client.messages("q", prefetch=prefetch, wait=4):
                async with message:
                    await asyncio.sleep(next(left))
                    handled.append(message.data)

    asyncio.run(go())


def both(start_node: StartNode, run: Any, pauses: list[float]) -> tuple[list[int], list[int]]:
    """What was handled by the loop, and by another consumer beside it."""
    node = start_node()
    handled: list[int] = []
    others: list[int] = []
    with node.client() as client:
        client.produce_many("q", list(range(8)), retry=LEASE_S)
        thread = threading.Thread(target=run, args=(node, 8, pauses, handled))
        thread.start()
        time.sleep(0.3)
        while thread.is_alive() or client.monitor("q")["ready"]:
            other = client.consume("q", wait=0.2)
            if other is not None:
                others.append(other.data)
                other.confirm()
        thread.join()
        assert client.monitor("q")["size"] == 0
    return handled, others


@pytest.mark.parametrize("run", [run_sync, run_async])
def test_eight_that_take_longer_than_a_lease_are_handled_once(start_node: StartNode, run: Any) -> None:
    """Six of eight were handled twice: their leases had ended while they waited for their turn."""
    handled, others = both(start_node, run, [0.4] * 20)
    assert sorted(handled + others) == list(range(8))
    assert len(handled) >= 7


@pytest.mark.parametrize("run", [run_sync, run_async])
def test_what_waits_behind_a_long_one_is_worked_on_by_others(start_node: StartNode, run: Any) -> None:
    handled, others = both(start_node, run, [0.8] + [0.0] * 20)
    assert sorted(handled + others) == list(range(8))
    assert len(others) >= 6, "they were given back before their leases ended"


def test_of_a_stopped_process_nothing_old_is_handed_out(start_node: StartNode) -> None:
    """As SIGSTOP does: neither its thread nor its caller has run."""
    with start_node().client() as client, Client(port=client._asking._nodes.address[1]) as other:
        client.produce_many("q", [1, 2, 3], retry=LEASE_S)
        messages = client.messages("q", prefetch=3, wait=0.5)
        next(messages).confirm()
        ahead = messages.gi_frame.f_locals["ahead"]  # type: ignore[attr-defined]
        with ahead._lock:
            time.sleep(1.5 * LEASE_S)
            assert other.consume_many("q", 2, wait=2)
        assert list(messages) == []


def test_a_child_gives_back_nothing_of_its_parents(start_node: StartNode) -> None:
    """It left the loop that it had inherited, and released what its parent went on handing out."""
    with start_node().client() as client:
        client.produce_many("q", list(range(6)), retry=60)
        messages = client.messages("q", prefetch=6, wait=0.5)
        next(messages).confirm()
        child = os.fork()
        if not child:
            messages.close()  # type: ignore[attr-defined]
            os._exit(0)
        os.waitpid(child, 0)
        assert client.monitor("q")["in_flight"] == 5
        assert [message.data for message in messages] == [1, 2, 3, 4, 5]
