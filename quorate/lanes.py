"""The connections of an async client. Work shares one; what waits, and what has a long reply, goes on others.

A node answers a connection in order but for requests with a number, and holds up what stands behind a long reply; and a
connection may have so many requests open. So there is a lane for each kind.
"""

import asyncio
from typing import Final

from quorate.async_connection import AsyncConnection
from quorate.credentials import Credentials
from quorate.lost import Lost
from quorate.nodes import Address

WAITS_MAX: Final = 32
"""A node lets a connection have 64 consumers that wait, and 32 over several shards."""

IDLE_MAX: Final = 8
"""Connections for long replies that are kept open, and those for waits on which nobody waits."""


class Lane:
    """A connection that is open or opens, with so many `users`."""

    def __init__(self, address: Address, task: "asyncio.Task[AsyncConnection]") -> None:
        self.address = address
        self.task = task
        self.users = 0

    @property
    def connection(self) -> AsyncConnection | None:
        """Once it is open."""
        task = self.task
        return task.result() if task.done() and not task.cancelled() and task.exception() is None else None

    @property
    def is_usable(self) -> bool:
        """Whether it opens, or is open, to new requests."""
        connection = self.connection
        return not self.task.done() if connection is None else not (connection.is_closed or connection.is_silent)

    @property
    def is_silent(self) -> bool:
        """Whether it is open for the requests that it has, but gets no new ones."""
        connection = self.connection
        return connection is not None and connection.is_silent and not connection.is_closed

    async def opened(self) -> AsyncConnection:
        """Its connection. Raises `Lost`, `NotLetInError`."""
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError:
            here = asyncio.current_task()
            if self.task.cancelled() and not (here is not None and here.cancelling()):
                raise Lost("the client was closed", was_sent=False) from None  # nobody has cancelled who waits
            raise

    def close(self) -> None:
        """Open or not."""
        connection = self.connection
        if connection is not None:
            connection.close()
        else:
            self.task.cancel()


class Lanes:
    """To any number of nodes. Of one loop."""

    def __init__(self, credentials: Credentials, silent_s: float) -> None:
        self._credentials = credentials
        self._silent_s = silent_s
        self._work: dict[Address, Lane] = {}
        self._waits: list[Lane] = []
        self._longs: list[Lane] = []
        self._silent: list[Lane] = []

    def _open(self, address: Address, timeout_s: float) -> Lane:
        connecting = AsyncConnection.connect(address, timeout_s, self._credentials, self._silent_s)
        return Lane(address, asyncio.ensure_future(connecting))

    def open_work(self, address: Address) -> AsyncConnection | None:
        """Return the one that all share, if it is open."""
        lane = self._work.get(address)
        return lane.connection if lane is not None and lane.is_usable else None

    async def work(self, address: Address, timeout_s: float) -> AsyncConnection:
        """Return the one that all share, opened; whoever comes first connects, and the others wait for that."""
        lane = self._work.get(address)
        if lane is None or not self._usable([lane]):
            lane = self._work[address] = self._open(address, timeout_s)
        return await lane.opened()

    def wait(self, address: Address, timeout_s: float) -> Lane:
        """One on which few others wait, with a place on it: `left` gives that back."""
        self._waits = self._usable(self._waits)
        lane = next((one for one in self._waits if one.address == address and one.users < WAITS_MAX), None)
        if lane is None:
            lane = self._open(address, timeout_s)
            self._waits.append(lane)
        lane.users += 1
        return lane

    def long(self, address: Address, timeout_s: float) -> Lane:
        """One that nobody else uses: `left` gives it back."""
        self._longs = self._usable(self._longs)
        lane = next((one for one in self._longs if one.address == address and not one.users), None)
        if lane is None:
            lane = self._open(address, timeout_s)
            self._longs.append(lane)
        lane.users += 1
        return lane

    def _usable(self, lanes: list[Lane]) -> list[Lane]:
        """Give those of the lanes that take new requests; the silent ones are kept until they are closed."""
        self._silent = [one for one in [*self._silent, *lanes] if one.is_silent]
        return [one for one in lanes if one.is_usable]

    def left(self, lane: Lane) -> None:
        """Free a place; of connections that nobody uses some are kept."""
        lane.users -= 1
        for lanes in (self._waits, self._longs):
            idle = [one for one in lanes if not one.users]
            for one in idle[IDLE_MAX:]:
                one.close()
                lanes.remove(one)

    @property
    def all(self) -> list[Lane]:
        """Every connection."""
        return [*self._work.values(), *self._waits, *self._longs, *self._silent]

    @property
    def open(self) -> int:
        """How many requests are not answered, and how many connections open at the moment."""
        connections = [lane.connection for lane in self.all]
        opening = sum(1 for lane in self.all if not lane.task.done())
        return opening + sum(one.open for one in connections if one is not None and not one.is_closed)

    def cancel_waits(self) -> None:
        """Nobody is to wait any longer."""
        for lane in self.all:
            if (connection := lane.connection) is not None:
                connection.cancel_waits()

    def close(self) -> None:
        """Close all."""
        for lane in self.all:
            lane.close()
        self._work.clear()
        self._waits.clear()
        self._longs.clear()
        self._silent.clear()
