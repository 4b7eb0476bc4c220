"""What becomes of an async client that ends, and of what is under way then; and of nodes that don't answer."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import pytest
import uvloop

from quorate import AsyncClient, ConnectionFailedError, QuorateError
from tests.conftest import StartNode
from tests.node import Node


def run(what: Awaitable[Any]) -> Any:
    async def within() -> Any:
        return await asyncio.wait_for(what, 60)

    return asyncio.run(within())


@pytest.mark.parametrize("retry", [60, 0])
@pytest.mark.parametrize("count", [None, 3])
def test_a_wait_that_is_cancelled_when_its_client_closes_loses_nothing(
    start_node: StartNode, retry: float, count: int | None
) -> None:
    node = start_node()

    async def go() -> None:
        async with AsyncClient("127.0.0.1", node.port) as other:
            for n in range(30):
                client = AsyncClient("127.0.0.1", node.port)
                queue = f"q{n}"
                waits = client.consume(queue, wait=30) if count is None else client.consume_many(queue, count, wait=30)
                task: asyncio.Task[Any] = asyncio.create_task(waits)
                await asyncio.sleep(0.02)
                produced = asyncio.create_task(other.produce(queue, n, retry=retry))
                await asyncio.sleep(0.0003 * (n % 10))
                task.cancel()
                got: Any = (await asyncio.gather(task, return_exceptions=True))[0]
                left = await client.close()
                await produced
                is_got = bool(got) and not isinstance(got, BaseException)
                assert is_got or left or await other.consume(queue) is not None, f"the {n}th is nowhere"

    run(go())


def test_what_is_under_way_when_a_client_closes_ends_and_takes_nothing_more(start_node: StartNode) -> None:
    node = start_node()

    async def go() -> None:
        client = AsyncClient("127.0.0.1", node.port)
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(client.consume("w", wait=60)),
            asyncio.create_task(client.consume_many("w", 3, wait=60)),
            asyncio.create_task(client.watch("w", wait=60)),
        ]
        await asyncio.sleep(0.3)
        begun = time.monotonic()
        await client.close()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert time.monotonic() < begun + 2
        assert all(isinstance(one, ConnectionFailedError) and "was closed" in str(one) for one in found)
        with pytest.raises(ConnectionFailedError, match="was closed"):
            await client.produce("w", 1)
        for steps in range(2, 30):  # whichever moment of its way it is in
            connecting = AsyncClient("127.0.0.1", node.port)
            task = asyncio.create_task(connecting.produce("w", 1))
            for _ in range(steps):
                await asyncio.sleep(0)
            await connecting.close()
            assert await task, "nobody has cancelled it"

    run(go())


def test_what_the_node_can_not_read_is_lost_alone(start_node: StartNode) -> None:
    node = start_node()

    async def go() -> None:
        async with AsyncClient("127.0.0.1", node.port) as client:
            await client.produce("q", 0)
            others = [asyncio.create_task(client.produce("q", n)) for n in range(40)]
            deep: Any = []
            for _ in range(40):
                deep = [deep]
            with pytest.raises(ValueError, match="nested deeper"):
                await client.produce("q", deep)
            with pytest.raises(QuorateError, match="too_large"):
                await client.produce("q", "x" * 5_000_000)
            assert len(set(await asyncio.gather(*others))) == 40

    run(go())


def test_a_node_that_stands_still_for_less_than_the_timeout_loses_nothing(start_node: StartNode) -> None:
    node = start_node()
    pid = node.worker_pid

    async def go() -> None:
        async with AsyncClient("127.0.0.1", node.port) as client:
            for n in range(14):  # the sixteenth asks for the map, which is not waited for so long
                await client.produce("q", n)
            os.kill(pid, signal.SIGSTOP)
            tasks = [asyncio.create_task(client.produce("q", n)) for n in range(20)]
            await asyncio.sleep(1.5)
            os.kill(pid, signal.SIGCONT)
            assert len(await asyncio.gather(*tasks)) == 20

    run(go())


def test_what_is_held_back_fails_in_its_time_too_and_a_silent_connection_is_given_up(start_node: StartNode) -> None:
    node = start_node()
    pid = node.worker_pid

    async def go() -> None:
        async with AsyncClient("127.0.0.1", node.port, timeout=1.0) as client:
            await client.produce("q", 0)
            os.kill(pid, signal.SIGSTOP)
            begun = time.monotonic()
            found = await asyncio.gather(*[client.produce("q", n) for n in range(300)], return_exceptions=True)
            assert all(isinstance(one, ConnectionFailedError) for one in found)
            assert time.monotonic() < begun + 4
            for _ in range(20):  # who waits gives up before the client does
                with pytest.raises((TimeoutError, QuorateError)):
                    async with asyncio.timeout(0.1):
                        await client.produce("q", 1)
            os.kill(pid, signal.SIGCONT)
            assert await client.produce("q", 2)
            assert client._asking._in_flight <= 1

    run(go())


def test_many_waits_share_connections_and_long_requests_take_turns(start_node: StartNode) -> None:
    node = start_node()

    async def go() -> None:
        async with AsyncClient("127.0.0.1", node.port) as client:
            tasks: list[asyncio.Task[Any]] = [asyncio.create_task(client.consume(f"w{n}", wait=30)) for n in range(200)]
            msg_id = await client.produce("q", 1)
            shown = await asyncio.gather(*[client.show(msg_id) for _ in range(200)])
            assert len(shown) == 200
            assert len(client._asking._lanes.all) <= 1 + 7 + 16
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.2)
            assert len(client._asking._lanes.all) <= 1 + 8 + 8, "those that nobody uses are closed"

    run(go())


def test_an_error_or_a_cancelled_task_is_not_replaced_when_its_message_can_not_be_released(
    start_node: StartNode,
) -> None:
    node = start_node()

    async def go() -> None:
        async with AsyncClient("127.0.0.1", node.port, timeout=0.5) as client:
            for _ in range(2):
                await client.produce("q", 1)
            first, second = [await client.consume("q") for _ in range(2)]
            assert first is not None
            assert second is not None
            node.kill()
            with pytest.raises(KeyError):
                async with first:
                    raise KeyError
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), second:
                    await asyncio.sleep(10)

    run(go())


def test_a_child_of_a_fork_leaves_the_clients_connections_alone(start_node: StartNode) -> None:
    node = start_node()

    async def go() -> None:
        async with AsyncClient("127.0.0.1", node.port) as client:
            await client.produce("q", 1)
            waits = asyncio.create_task(client.consume("w", wait=20))
            await asyncio.sleep(0.1)
            child = os.fork()
            if not child:
                try:
                    client.close().send(None)
                except RuntimeError:
                    os._exit(7)
                os._exit(1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 7
            await client.produce("w", 2)
            message = await waits
            assert message is not None
            assert message.data == 2

    run(go())


def test_it_runs_on_uvloop(start_node: StartNode) -> None:
    node = start_node()

    async def go() -> list[Any]:
        async with AsyncClient("127.0.0.1", node.port) as client:
            await asyncio.gather(*[client.produce("q", n) for n in range(100)])
            return [one.data async for one in client.messages("q", prefetch=10, wait=0.1)]

    loop = uvloop.new_event_loop()
    try:
        assert Counter(loop.run_until_complete(go())) == Counter(range(100))
    finally:
        loop.close()


def test_a_produce_after_the_node_was_started_again_behind_the_loops_back_is_done(start_node: StartNode) -> None:
    node: Node = start_node()

    async def go() -> None:
        async with AsyncClient("127.0.0.1", node.port) as client:
            await client.produce("q", 1)
            node.kill()  # the loop stands still meanwhile, and hears nothing of it
            node.start()
            assert await client.produce("q", 2)

    run(go())
