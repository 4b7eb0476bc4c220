"""Connections of the async client to nodes that pause, or stay silent: a server here answers when it is told to."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from quorate.async_connection import AsyncConnection
from quorate.credentials import Credentials
from quorate.lanes import Lanes
from quorate.lost import Lost

SILENT_S = 0.5


class Pausing:
    """A node that reads, and answers nothing until it goes on."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.connections: list[asyncio.Task[Any] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(asyncio.current_task())
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                await self.goes_on.wait()
                writer.write(b'{"code":0,"seq":%d}\n' % json.loads(line)["seq"])
        writer.transport.abort()


async def silent_for(connection: AsyncConnection) -> None:
    async with asyncio.timeout(10):
        while not connection.is_silent:
            await asyncio.sleep(0.01)


async def closed(connection: AsyncConnection) -> None:
    async with asyncio.timeout(10):
        while not connection.is_closed:
            await asyncio.sleep(0.01)


async def with_a_pausing_node(go: Any) -> None:
    node = Pausing()
    async with asyncio.timeout(20), await asyncio.start_server(node.serve, "127.0.0.1", 0) as server:
        lanes = Lanes(Credentials(), SILENT_S)
        try:
            await go(node, lanes, server.sockets[0].getsockname()[:2])
        finally:
            lanes.close()
            node.goes_on.set()
            await asyncio.gather(*filter(None, node.connections))
            await asyncio.sleep(0.01)


def test_what_was_asked_shortly_before_a_connection_is_found_silent_is_answered() -> None:
    """A produce that came as a paused node went on was lost with the connection, its outcome unknown."""

    async def go(node: Pausing, lanes: Lanes, address: tuple[str, int]) -> None:
        connection = await lanes.work(address, 5.0)
        overdue = connection.ask(b'{"action":1}', 0.1)
        with pytest.raises(Lost, match="no answer in time"):
            await overdue
        lately = connection.ask(b'{"action":1}', 5.0)
        await silent_for(connection)
        assert lanes.open_work(address) is None, "it gets no new requests"
        assert await lanes.work(address, 5.0) is not connection
        assert connection in [lane.connection for lane in lanes.all], "it is closed with the client"
        node.goes_on.set()
        assert (await lately)["code"] == 0
        await closed(connection)
        assert len(node.connections) == 2

    asyncio.run(with_a_pausing_node(go))


def test_a_silent_connection_is_closed_under_a_long_wait_when_nothing_new_comes() -> None:
    async def go(node: Pausing, lanes: Lanes, address: tuple[str, int]) -> None:
        lane = lanes.wait(address, 5.0)
        connection = await lane.opened()
        waits = connection.ask(b'{"action":2}', 60.0, waits=True)
        overdue = connection.ask(b'{"action":2}', 0.1, waits=True)
        with pytest.raises(Lost, match="no answer in time"):
            await overdue
        begun = asyncio.get_running_loop().time()
        with pytest.raises(Lost, match="was closed"):
            await waits
        assert asyncio.get_running_loop().time() < begun + 4 * SILENT_S

    asyncio.run(with_a_pausing_node(go))
