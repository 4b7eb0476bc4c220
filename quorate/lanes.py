"""The connections of an async client. Work shares one; what waits, and what has a long reply, goes on others.

A node answers a connection in order but for requests with a number, and holds up what stands behind a long reply; and a
connection may have so many requests open. So there is a lane for each kind.
"""

import asyncio
from typing import Final

from quorate.async_connection import AsyncConnection
from quorate.credentials import Credentials
from quorate.nodes import Address

WAITS_MAX: Final = 32
"""A node lets a connection have 64 consumers that wait, and 32 over several shards."""

IDLE_MAX: Final = 8
"""Connections for long replies that are kept open."""


class Lanes:
    """To any number of nodes. Of one loop."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._work: dict[Address, AsyncConnection] = {}
        self._connecting: dict[Address, asyncio.Task[AsyncConnection]] = {}
        self._waits: list[AsyncConnection] = []
        self._idle: list[AsyncConnection] = []

    def open_work(self, address: Address) -> AsyncConnection | None:
        """The one that all share, if it is open."""
        connection = self._work.get(address)
        return None if connection is None or connection.is_closed else connection

    async def work(self, address: Address, timeout_s: float) -> AsyncConnection:
        """The one that all share, opened; whoever comes first connects, and the others wait for that."""
        if (connection := self.open_work(address)) is not None:
            return connection
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.ensure_future(AsyncConnection.connect(address, timeout_s, self._credentials))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connected(address, done))
        return await asyncio.shield(task)

    def _connected(self, address: Address, task: "asyncio.Task[AsyncConnection]") -> None:
        self._connecting.pop(address, None)
        if not task.cancelled() and task.exception() is None:
            self._work[address] = task.result()

    async def wait(self, address: Address, timeout_s: float) -> AsyncConnection:
        """One on which few others wait."""
        self._waits = [one for one in self._waits if not one.is_closed]
        for connection in self._waits:
            if connection.address == address and connection.open < WAITS_MAX:
                return connection
        connection = await AsyncConnection.connect(address, timeout_s, self._credentials)
        self._waits.append(connection)
        return connection

    async def long(self, address: Address, timeout_s: float) -> AsyncConnection:
        """One that nobody else uses; `give_back` when its reply is there."""
        self._idle = [one for one in self._idle if not one.is_closed]
        for connection in self._idle:
            if connection.address == address:
                self._idle.remove(connection)
                return connection
        return await AsyncConnection.connect(address, timeout_s, self._credentials)

    def give_back(self, connection: AsyncConnection) -> None:
        """It is not used any more."""
        if connection.is_closed:
            return
        if connection.open or len(self._idle) >= IDLE_MAX:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all; the next request opens one again."""
        for task in self._connecting.values():
            task.cancel()
        for connection in [*self._work.values(), *self._waits, *self._idle]:
            connection.close()
        self._work.clear()
        self._waits.clear()
        self._idle.clear()
