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
from quorate.errors import QuorateError, refused
from quorate.lanes import Lanes
from quorate.lost import Lost, NotLetInError
from quorate.nodes import Address, Nodes
from quorate.payload import from_wire
from quorate.protocol import Action
from quorate.shard_map import ShardMap
from quorate.trying import Trying, keeps_connection

LEARN_S: Final = 1.0
DIRECT_S: Final = 0.5
"""For so long a shard's own port is tried, before the request goes by any node."""

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
        self._lanes = Lanes(shown)
        self._map = ShardMap()
        self._orphaned = orphaned
        self._timeout_s = timeout_s
        self._retry_connect = retry_connect
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._held: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None

    async def close(self) -> None:
        """Close the connections; what is given back at the moment is waited for."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._timeout_s)
        self._lanes.close()
        await asyncio.sleep(0)  # or the loop may end before their sockets are closed

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that `close` waits for, and nobody else."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def request(self, action: int, body: dict[str, Any]) -> Reply:
        """The reply to a request. Raises what `Client` says; RuntimeError away from its loop and process."""
        self._at_home()
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
        held: dict[str, Any] | QuorateError
        try:
            shown = (await self._request(_SHOW, {"queue": body["queue"], "key": body["key"]}))["message"]
            held = {**shown, "data": from_wire(shown)}
        except QuorateError as error:
            held = error
        if trying.is_ours(int(reply["msg_id"]), held):
            return {**reply, "code": 0}  # the first try had been done before its answer was lost
        raise refused(reply)

    async def _run(self, trying: Trying, action: int) -> Reply:
        """The last reply to what is tried."""
        while True:
            body, left_s, wait_s = trying.next(time.monotonic())
            try:
                reply = await self._ask(trying, {"action": action, **body}, left_s, wait_s)
            except NotLetInError as error:
                pause_s: float | None = trying.not_let_in(error)
            except Lost as lost:
                pause_s = trying.lost(time.monotonic(), lost)
            else:
                pause_s = trying.replied(time.monotonic(), reply)
                if pause_s is None:
                    return reply
            if pause_s:
                await asyncio.sleep(pause_s)

    # -- lanes -------------------------------------------------------------------------------------------------

    async def _ask(self, trying: Trying, body: dict[str, Any], left_s: float, wait_s: float) -> Reply:
        """One try, over the lane that is for such a request."""
        address = trying.direct or self._nodes.address
        connect_s = trying.connect_s(left_s) if trying.direct is None else min(trying.connect_s(left_s), DIRECT_S)
        try:
            if calls.is_long(body["action"], body):
                return await self._long(address, connect_s, body, left_s + wait_s)
            if wait_s:
                connection = await self._lanes.wait(address, connect_s)
                return await self._answered(connection, body, left_s + wait_s, waits=True)
            return await self._worked(address, connect_s, body, left_s)
        except (Lost, NotLetInError):
            self._nodes.ask_elsewhere(address)
            raise

    async def _worked(self, address: Address, connect_s: float, body: dict[str, Any], timeout_s: float) -> Reply:
        """Over the connection that all share, when it is its turn."""
        if self._in_flight >= self._in_flight_max:
            await self._turn()
        else:
            self._in_flight += 1
        try:
            connection = self._lanes.open_work(address) or await self._lanes.work(address, connect_s)
            return await self._answered(connection, body, timeout_s, waits=False)
        finally:
            self._leave()

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # it had got its turn
            raise

    def _leave(self) -> None:
        """One more may go, and takes the place."""
        while self._held:
            turn = self._held.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._in_flight -= 1

    async def _long(self, address: Address, connect_s: float, body: dict[str, Any], timeout_s: float) -> Reply:
        """Over a connection of its own: what stands behind it would be held up."""
        connection = await self._lanes.long(address, connect_s)
        try:
            return await self._answered(connection, body, timeout_s, waits="wait" in body)
        finally:
            if connection.open and not connection.is_closed:
                self.spawn(self._end(connection))  # what was cancelled on it is answered soon
            else:
                self._lanes.give_back(connection)

    async def _end(self, connection: AsyncConnection) -> None:
        until = time.monotonic() + self._timeout_s
        while connection.open and not connection.is_closed and time.monotonic() < until:
            await asyncio.sleep(0.01)
        self._lanes.give_back(connection)

    async def _answered(
        self, connection: AsyncConnection, body: dict[str, Any], timeout_s: float, *, waits: bool
    ) -> Reply:
        """The reply. When the task is cancelled the node is told, of what waits; a consume's reply is never dropped."""
        is_consume = body["action"] == _CONSUME
        future = connection.ask(body, timeout_s, self._orphaned if is_consume else None)
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
