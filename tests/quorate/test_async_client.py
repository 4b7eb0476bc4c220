"""The async client against real nodes: many requests at once, and what becomes of them when tasks are cancelled."""

import asyncio
import json
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quorate import (
    AsyncClient,
    AsyncMessage,
    ConnectionFailedError,
    DuplicateKeyError,
    NotInFlightError,
    QueueFullError,
    RefusedError,
    UnknownOutcomeError,
)
from quorate.async_connection import AsyncConnection
from quorate.credentials import NOTHING
from quorate.errors import ProtocolViolationError
from tests.cluster import Cluster
from tests.conftest import StartNode


def run(what: Awaitable[Any]) -> Any:
    async def within() -> Any:
        return await asyncio.wait_for(what, 60)

    return asyncio.run(within())


def test_a_message_goes_through(start_node: StartNode) -> None:
    port = start_node().port

    async def go() -> None:
        async with AsyncClient("127.0.0.1", port, consumer="w") as client:
            msg_id = await client.produce("mail", {"to": "ada"}, priority=3, key="k", headers={"a": "b"})
            assert (await client.show(msg_id)).headers == {"a": "b"}
            message = await client.consume(["other", "mail"], wait=5)
            assert message is not None
            assert (message.msg_id, message.data, message.headers, message.key) == (
                msg_id,
                {"to": "ada"},
                {"a": "b"},
                "k",
            )
            assert (message.retry, message.priority, message.deliveries) == (60, 3, 1)
            assert message.expires_at > time.time() + 10**9
            await message.extend(100)
            await message.release()
            again = await client.consume("mail")
            assert again is not None
            with pytest.raises(NotInFlightError, match="delivered again"):
                await message.release()
            assert not await message.confirm(), "that delivery is another's"
            assert await again.confirm()
            ids = await client.produce_many("mail", [1, 2, 3])
            assert [one.data for one in await client.consume_many("mail", 10)] == [1, 2, 3]
            assert await client.confirm(ids) == 3
            assert await client.queues("m*") == ["mail"]
            assert (await client.monitor("mail"))["size"] == 0

    run(go())


def test_refusals_have_their_kinds(start_node: StartNode) -> None:
    port = start_node().port

    async def go() -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            first = await client.produce("q", 1, key="k")
            with pytest.raises(DuplicateKeyError) as held:
                await client.produce("q", 2, key="k")
            assert held.value.msg_id == first
            await client.configure("q", max_size=1, dead_letter="dead")
            with pytest.raises(QueueFullError):
                await client.produce("q", 2)
            async with asyncio.timeout(5):
                message = await client.consume("q")
            assert message is not None
            await message.bury("why")
            dead = await client.consume("dead")
            assert dead is not None
            assert dead.dead is not None
            assert dead.dead["reason"] == "why"
            assert (await client.settings("q")).dead_letter == "dead"

    run(go())


def test_many_requests_are_under_way_at_once_and_waits_hold_up_nothing(start_node: StartNode) -> None:
    port = start_node().port

    async def go() -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            waits = [asyncio.create_task(client.consume(f"w{n % 50}", wait=30)) for n in range(100)]
            lists = [asyncio.create_task(client.consume_many("none", 5, wait=30)) for _ in range(3)]
            await asyncio.sleep(0.1)
            ids = await asyncio.gather(*[client.produce("q", n) for n in range(1000)])
            assert len(set(ids)) == 1000
            for n in range(100):
                await client.produce(f"w{n % 50}", n)
            got = await asyncio.gather(*waits)
            assert sorted(message.data for message in got if message is not None) == list(range(100))
            await client.produce_many("none", [1] * 3)
            await client.produce_many("none", [1] * 15)
            assert all(await asyncio.gather(*lists))

    run(go())


@pytest.mark.parametrize("retry", [60, 0])
def test_under_random_cancels_no_message_is_lost_and_none_waits_out_a_lease(start_node: StartNode, retry: int) -> None:
    """A thousand messages, and consumers that are cancelled at any moment; with retry 0 what is kept comes, too."""
    port = start_node().port
    count = 1000
    got: Counter[int] = Counter()

    async def consumer(client: AsyncClient, draw: random.Random) -> None:
        ways: list[Callable[[], Awaitable[Any]]] = [
            lambda: client.consume("q", wait=2),
            lambda: client.consume("q"),
            lambda: client.consume_many("q", 5, wait=2),
        ]
        while sum(got.values()) < count:
            task = asyncio.ensure_future(draw.choice(ways)())
            await asyncio.sleep(draw.random() * 0.004)
            if draw.random() < 0.5:
                task.cancel()
            try:
                found = await task
            except asyncio.CancelledError:
                continue
            for message in found if isinstance(found, list) else [found] if found is not None else []:
                got[message.data] += 1
                if retry:
                    await message.confirm()

    async def go() -> None:
        draw = random.Random(5)
        async with AsyncClient("127.0.0.1", port) as client:
            consumers = [asyncio.create_task(consumer(client, random.Random(n))) for n in range(8)]
            for n in range(count):
                await client.produce("q", n, retry=retry)
                if draw.random() < 0.1:
                    await asyncio.sleep(0.001)
            await asyncio.wait_for(asyncio.gather(*consumers), 30)
            assert await client.close() == []

    run(go())
    assert set(got) == set(range(count))
    assert set(got.values()) == {1}


def test_a_wait_that_is_cancelled_takes_no_message(start_node: StartNode) -> None:
    port = start_node().port

    async def go() -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            task = asyncio.create_task(client.consume("q", wait=30))
            await asyncio.sleep(0.1)
            assert (await client.status())["shards"][0]["waiting_consumers"] == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await client.produce("q", 1)
            assert (await client.monitor("q"))["ready"] == 1
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.consume("none", wait=30)

    run(go())


def test_a_produce_that_is_cancelled_is_left_to_end(start_node: StartNode) -> None:
    port = start_node().port

    async def go() -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            await client.produce("q", 0)
            tasks = [asyncio.create_task(client.produce("q", n)) for n in range(1, 200)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in results)
            left = await client.produce("q", 200)
            assert left
            size = (await client.monitor("q"))["size"]
            assert 2 <= size <= 201
            assert client._asking._in_flight == 0

    run(go())


def test_what_a_loop_has_taken_and_not_handed_out_goes_back(start_node: StartNode) -> None:
    port = start_node().port

    async def go() -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            await client.produce_many("a", [1, 2, 3, 4])
            await client.produce_many("b", [5, 6])
            seen = []
            messages = client.messages(["a", "b"], prefetch=2)
            async for message in messages:
                async with message:
                    seen.append(message.data)
                if len(seen) == 5:
                    break
            await messages.aclose()  # type: ignore[attr-defined]
            assert seen == [1, 2, 5, 6, 3], "in turn"
        async with AsyncClient("127.0.0.1", port) as client:
            again = await client.consume("a")
            assert again is not None
            assert (again.data, again.deliveries) == (4, 2)
            assert [one.data async for one in client.messages("none", wait=0.1)] == []

    run(go())


def test_a_block_that_raises_gives_its_message_back(start_node: StartNode) -> None:
    port = start_node().port

    async def go() -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            await client.produce("q", 1)
            message = await client.consume("q")
            assert message is not None
            with pytest.raises(ZeroDivisionError):
                async with message:
                    raise ZeroDivisionError
            again = await client.consume("q")
            assert again is not None
            assert again.deliveries == 2
            async with again:
                await again.release(delay=100)
            assert (await client.monitor("q"))["delayed"] == 1

    run(go())


def test_it_belongs_to_its_loop_and_to_its_process(start_node: StartNode) -> None:
    port = start_node().port
    client = AsyncClient("127.0.0.1", port)
    run(_refused(client))
    with pytest.raises(RuntimeError, match="another asyncio loop"):
        run(client.monitor("q"))
    pid = os.fork()
    if pid == 0:
        try:
            run(client.monitor("q"))
        except RuntimeError as error:
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


async def _refused(client: AsyncClient) -> None:
    with pytest.raises(RefusedError, match="no queue"):
        await client.monitor("q")
    await client.close()


def test_a_node_that_comes_back_is_found_and_one_that_does_not_is_told(start_node: StartNode) -> None:
    node = start_node()

    async def go() -> None:
        async with AsyncClient("127.0.0.1", node.port, timeout=20) as client:
            await client.produce("q", 1, key="k")
            waiting = asyncio.create_task(client.consume("other", wait=20))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.start)
            await client.produce("other", "x", key="x")
            message = await waiting
            assert message is not None, "a wait is repeated where the node has come back"
        async with AsyncClient("127.0.0.1", 1, timeout=0.3) as client:
            with pytest.raises(ConnectionFailedError):
                await client.monitor("q")

    run(go())


def test_a_cluster_is_asked_where_it_is_led(cluster: Cluster) -> None:
    nodes = [("127.0.0.1", node.port) for node in cluster.nodes.values()]

    async def go() -> None:
        async with AsyncClient(nodes=nodes, timeout=20) as client:
            await asyncio.gather(*[client.produce("q", n, key=str(n)) for n in range(50)])
            await asyncio.to_thread(lambda: cluster.leader().kill())
            await asyncio.gather(*[client.produce("q", n, key=str(n)) for n in range(50, 100)])
            got: set[int] = set()
            async for message in client.messages("q", prefetch=20, wait=1):
                async with message:
                    got.add(message.data)
            assert got == set(range(100))

    run(go())


class Fake:
    """A node that answers each line with what `reply` makes of it."""

    def __init__(self, reply: Callable[[dict[str, Any]], bytes]) -> None:
        self._reply = reply

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *raised: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(self._reply(json.loads(line)))
        writer.close()


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"17\n", b'{"action":4,"code":0,"size":5}\n', b'{"action":4,"code":0,"seq":999}\n']
)
def test_what_is_no_reply_to_a_request_is_an_error(line: bytes) -> None:
    async def go() -> None:
        async with Fake(lambda request: line) as port, AsyncClient("127.0.0.1", port, timeout=1) as client:
            with pytest.raises(ProtocolViolationError):
                await client.monitor("q")

    run(go())


def test_requests_of_one_turn_leave_in_one_write_and_are_answered_by_their_numbers() -> None:
    async def go() -> None:
        seen: list[int] = []

        def reply(request: dict[str, Any]) -> bytes:
            seen.append(request["seq"])
            if len(seen) < 3:
                return b""
            return b"".join(b'{"action":1,"code":0,"seq":%d,"msg_id":%d}\n' % (one, one) for one in reversed(seen))

        async with Fake(reply) as port:
            connection = await AsyncConnection.connect(("127.0.0.1", port), 5, NOTHING, 5)
            writes: list[bytes] = []
            transport = connection._transport
            assert transport is not None
            true = transport.write

            def write(data: Any) -> None:
                writes.append(bytes(data))
                true(data)

            transport.write = write  # type: ignore[method-assign]
            futures = [connection.ask(b'{"action":1}', 5) for _ in range(3)]
            assert [(await one)["msg_id"] for one in futures] == [1, 2, 3]
            assert len(writes) == 1
            connection.close()

    run(go())


def test_an_answer_that_does_not_come_in_time_is_lost_to_who_waits_alone() -> None:
    """What may have been done is told so; others on the same connection have theirs."""

    def reply(request: dict[str, Any]) -> bytes:
        return b"" if request["action"] == 9 else b'{"action":4,"code":0,"size":5,"seq":%d}\n' % request["seq"]

    async def go() -> None:
        async with Fake(reply) as port, AsyncClient("127.0.0.1", port, timeout=0.5) as client:
            missing = asyncio.create_task(client.release(5))
            for _ in range(10):
                assert (await client.monitor("q"))["size"] == 5
                await asyncio.sleep(0.1)
            with pytest.raises(UnknownOutcomeError, match="no answer in time"):
                await missing

    run(go())


def test_a_message_that_nobody_can_give_back_is_told_at_the_end(
    start_node: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    port = start_node().port

    async def go() -> list[AsyncMessage]:
        client = AsyncClient("127.0.0.1", port)
        client._orphaned(
            {
                "code": 0,
                "message": {
                    "msg_id": 5,
                    "queue": "q",
                    "data": "x",
                    "deliveries": 1,
                    "retry": 0,
                    "state": "taken",
                    "produced_at": 0.0,
                    "due_at": 0.0,
                    "expires_at": 0.0,
                },
            }
        )
        assert [one.data for one in await client.consume_many(["other", "q"], 5)] == ["x"]
        client._orphaned(
            {
                "code": 0,
                "message": {
                    "msg_id": 6,
                    "queue": "q",
                    "data": "y",
                    "deliveries": 1,
                    "retry": 0,
                    "state": "taken",
                    "produced_at": 0.0,
                    "due_at": 0.0,
                    "expires_at": 0.0,
                },
            }
        )
        return await client.close()

    with caplog.at_level(logging.WARNING, "quorate"):
        left = run(go())
    assert [one.data for one in left] == ["y"]
    assert "nobody has got them" in caplog.text
