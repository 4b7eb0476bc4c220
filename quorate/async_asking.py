"""How the async client asks: many requests under way at once, each tried until it is answered or its time is over."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from quorate import calls
from quorate.async_connection import AsyncConnection, Reply
from quorate.credentials import Credentials
from quorate.errors import CLOSED, ConnectionFailedError, QuorateError
from quorate.lanes import Lane, Lanes
from quorate.lost import Lost, NotLetInError
from quorate.nodes import Address, Nodes
from quorate.payload import encode
from quorate.protocol import Action
from quorate.shard_map import ShardMap
from quorate.trying import LEARN_S, Trying, keeps_connection

SILENT_S: Final = 1.0
"""A node is not taken for silent sooner, however short the time-outs are."""

CLOSING_S: Final = 0.005
"""So often it is looked whether all has ended when the client closes."""

LARGE_BYTES: Final = 1 << 16
"""What is larger has a connection of its own: if the node can't take it, nothing else is lost with it."""

LONGS_MAX: Final = 16
"""So many requests with long replies are under way at once."""


_CONSUME: Final = int(Action.CONSUME)
_SHOW: Final = int(Action.SHOW)
_LEADER: Final = int(Action.LEADER)


class AsyncAsking:
    """Requests to any of `nodes`, each within `timeout_s` beyond what it asks to wait.

    `in_flight_max` of those that do not wait may be under way; more are held here until one is answered. Replies to
    consumes that nobody waits for any more go to `orphaned`. It belongs to the loop and the process of its first use.
    """

    def __init__(
        self,
        nodes: Nodes,
        shown: Credentials,
        orphaned: Callable[[Reply], None],
        *,
        timeout_s: float,
        retry_connect: bool,
        in_flight_max: int,
    ) -> None:
        self._nodes = nodes
        self._lanes = Lanes(shown, max(timeout_s, SILENT_S))
        self._map = ShardMap()
        self._orphaned = orphaned
        self._timeout_s = timeout_s
        self._retry_connect = retry_connect
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._held: deque[asyncio.Future[None]] = deque()
        self._longs = asyncio.Semaphore(LONGS_MAX)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None

    async def close(self) -> None:
        """End what waits, let everything else end, and close the connections. Nothing new may be asked.

        Raises RuntimeError away from its loop and process: a child of a fork leaves its parent's connections alone.
        """
        self._at_home()
        self._is_closed = True
        until = time.monotonic() + self._timeout_s
        try:
            self._lanes.cancel_waits()
            while (self._tasks or self._lanes.open or self._held or self._in_flight) and time.monotonic() < until:
                await asyncio.sleep(CLOSING_S)
                self._lanes.cancel_waits()
        finally:
            self._lanes.close()
            for task in self._tasks:
                task.cancel()
        await asyncio.sleep(0)  # or the loop may end before their sockets are closed

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Something that `close` waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def request(self, action: int, body: dict[str, Any], *, is_last: bool = False) -> Reply:
        """Return the reply to a request. Raises what `Client` says; RuntimeError away from its loop and process.

        When the client is closed there is none but what gives messages back, which `is_last`.
        """
        self._at_home()
        if self._is_closed and not is_last:
            raise ConnectionFailedError(CLOSED)
        if self._map.counted(time.monotonic()):
            await self._learn()
        return await self._request(action, body)

    def _at_home(self) -> None:
        loop, pid = asyncio.get_running_loop(), os.getpid()
        if self._home is None:
            self._home = (loop, pid)
        elif self._home[1] != pid:
            raise RuntimeError("this client is of the process that was forked: make another here")
        elif self._home[0] is not loop:
            raise RuntimeError("this client is of another asyncio loop: make one for each")

    async def _request(self, action: int, body: dict[str, Any]) -> Reply:
        trying = Trying(
            *(action, body, self._nodes, self._timeout_s, self._map),
            now=time.monotonic(),
            retry_connect=self._retry_connect,
        )
        reply = await self._run(trying, action)
        ended = trying.ended(reply)
        if ended is not None:
            return ended
        shown: dict[str, Any] | QuorateError
        try:
            shown = await self._request(_SHOW, trying.holder)
        except QuorateError as error:
            shown = error
        return trying.of_holder(reply, shown)

    async def _run(self, trying: Trying, action: int) -> Reply:
        """Return the last reply to what is tried."""
        while True:
            body, left_s, wait_s = trying.next(time.monotonic())
            try:
                reply = await self._ask(trying, {"action": action, **body}, left_s, wait_s)
            except NotLetInError as error:
                pause_s: float | None = trying.not_let_in(error)
            except Lost as lost:
                pause_s = trying.lost(time.monotonic(), lost)
                if self._is_closed:
                    raise ConnectionFailedError(CLOSED) from lost
            else:
                pause_s = trying.replied(time.monotonic(), reply)
                if pause_s is None:
                    return reply
                if self._is_closed and wait_s:
                    raise ConnectionFailedError(CLOSED)
            if pause_s:
                await asyncio.sleep(pause_s)

    # -- lanes -------------------------------------------------------------------------------------------------

    async def _ask(self, trying: Trying, body: dict[str, Any], left_s: float, wait_s: float) -> Reply:
        """One try, over the lane that is for such a request."""
        address = trying.direct or self._nodes.address
        connect_s = trying.connect_s(left_s)
        try:
            data = encode(body)
        except RecursionError as error:
            raise ValueError("data is nested too deep") from error
        is_consume = body["action"] == _CONSUME
        try:
            if wait_s or len(data) > LARGE_BYTES or calls.is_long(body["action"], body):
                is_shared = wait_s and not calls.is_long(body["action"], body)
                if wait_s:
                    lane = (self._lanes.wait if is_shared else self._lanes.long)(address, connect_s)
                    return await self._beside(lane, data, left_s + wait_s, is_consume=is_consume, waits=True)
                return await self._long(address, connect_s, data, left_s, is_consume=is_consume)
            return await self._worked(address, connect_s, data, left_s, is_consume=is_consume)
        except (Lost, NotLetInError):
            self._nodes.ask_elsewhere(address)
            raise

    async def _worked(
        self, address: Address, connect_s: float, data: bytes, left_s: float, *, is_consume: bool
    ) -> Reply:
        """Over the connection that all share, when it is its turn."""
        until = time.monotonic() + left_s
        if self._in_flight >= self._in_flight_max:
            await self._turn(left_s)
        else:
            self._in_flight += 1
        try:
            connection = self._lanes.open_work(address) or await self._lanes.work(address, connect_s)
        except BaseException:
            self._leave()
            raise
        left_s = max(until - time.monotonic(), 0.001)
        future = connection.ask(data, left_s, late=self._orphaned if is_consume else None, ended=self._leave)
        return await self._answered(connection, future, is_consume=is_consume, waits=False)

    async def _long(self, address: Address, connect_s: float, data: bytes, left_s: float, *, is_consume: bool) -> Reply:
        """Over a connection of its own, of which there are so many at a time."""
        until = time.monotonic() + left_s
        try:
            async with asyncio.timeout(left_s):
                await self._longs.acquire()
        except TimeoutError as error:
            raise Lost(f"{LONGS_MAX} long requests are not answered", was_sent=False) from error
        try:
            left_s = max(until - time.monotonic(), 0.001)
            lane = self._lanes.long(address, connect_s)
            return await self._beside(lane, data, left_s, is_consume=is_consume, waits=False)
        finally:
            self._longs.release()

    async def _turn(self, left_s: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(turn)
        try:
            async with asyncio.timeout(left_s):
                await turn
        except (asyncio.CancelledError, TimeoutError) as error:
            if turn.done() and not turn.cancelled():
                self._leave()  # it had got its turn
            elif turn in self._held:
                self._held.remove(turn)
            if isinstance(error, TimeoutError):
                why = f"{self._in_flight_max} requests are not answered, and no place became free in time"
                raise Lost(why, was_sent=False) from error
            raise

    def _leave(self) -> None:
        """One more may go, and takes the place."""
        while self._held:
            turn = self._held.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._in_flight -= 1

    async def _beside(self, lane: Lane, data: bytes, timeout_s: float, *, is_consume: bool, waits: bool) -> Reply:
        """Over a lane on which there is a place: what stands behind it elsewhere would be held up."""
        try:
            connection = await lane.opened()
        except BaseException:
            self._lanes.left(lane)
            raise
        future = connection.ask(
            data,
            timeout_s,
            late=self._orphaned if is_consume else None,
            ended=lambda: self._lanes.left(lane),
            waits=waits,
        )
        return await self._answered(connection, future, is_consume=is_consume, waits=waits)

    async def _answered(
        self, connection: AsyncConnection, future: "asyncio.Future[Reply]", *, is_consume: bool, waits: bool
    ) -> Reply:
        """Return the reply. When the task is cancelled the node is told, of what waits; a consume's reply is never
        dropped."""
        try:
            reply = await future
        except asyncio.CancelledError:
            if future.cancelled():
                if waits:
                    connection.cancel(future)
            elif is_consume and future.exception() is None:
                self._orphaned(future.result())  # it had come, and nobody takes it
            raise
        if "error" in reply:  # it may say that another node is to be asked from now on
            keeps_connection(self._nodes, connection.address, reply)
        return reply

    async def _learn(self) -> None:
        """Ask where the shards are. A client that is not told asks anywhere, as before."""
        limit_s = min(self._timeout_s, LEARN_S)
        trying = Trying(*(_LEADER, {}, self._nodes, limit_s), now=time.monotonic(), retry_connect=False)
        try:
            reply = await self._run(trying, _LEADER)
        except QuorateError:
            self._map.forget()
        else:
            self._map.learned(reply, time.monotonic())
