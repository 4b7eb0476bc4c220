"""A taskiq broker: `broker = QuorateBroker("quorate://127.0.0.1:1111")`.

Of a task's labels `queue_name` says its queue, `delay` (s) and `priority` (higher first) are the node's. What a worker
has not acknowledged is kept in flight, also while it waits behind others, and comes again when that worker dies.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import finalize

from pydantic import PrivateAttr
from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from quorate.async_client import AsyncClient, AsyncMessage
from quorate.client import Client
from quorate.dead_letters import LAPSES_MAX, check_lapses, dead_letters_of, lapsed, reject, rest
from quorate.errors import HOPELESS, ConnectionFailedError, QuorateError, RefusedError, UnavailableError
from quorate.leases import Leases
from quorate.messages import NEVER, random_key
from quorate.packing import packed, unpacked
from quorate.texts import said_by
from quorate.turns import Turns

log = logging.getLogger("quorate.taskiq")

LEASE_S: Final = 60.0
REST_S: Final = 0.5
BRIEF_S: Final = 3.0
"""What is said by a thread has so long, and is tried again."""

WAIT_S: Final = 25.0
FAILED_PAUSE_S: Final = 1.0


class _Held(AckableMessage):
    """A message that knows when the asyncio task that runs it has ended.

    That one is who asks for `ack`: taskiq's callback, which it begins with. If anything there raises, taskiq says
    nothing to its broker.
    """

    _ended: Callable[[Any], None] | None = PrivateAttr(default=None)

    def __getattribute__(self, name: str) -> Any:
        if name == "ack":
            running, ended = asyncio.current_task(), self._ended
            if running is not None and ended is not None:
                self._ended = None
                running.add_done_callback(ended)
        return super().__getattribute__(name)


class QuorateBroker(AsyncBroker):
    """Tasks go to `queue`, or to that of their `queue_name`; a worker listens to `queue` and to `also`, in turn.

    `lease`: seconds after which the tasks of a worker that is not heard of any more begin again. Further `options` are
    those of `AsyncClient`. A task of which `max_lapses` deliveries have lapsed, since it ends its worker, goes to the
    dead letters (None: never by that). Connects when it is first used.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        queue: str = "taskiq",
        also: tuple[str, ...] = (),
        lease: float = LEASE_S,
        max_lapses: int | None = LAPSES_MAX,
        **options: Any,
    ) -> None:
        super().__init__()
        self.client = AsyncClient(url, **options)
        self.queue = queue
        self.queues = [queue, *also]
        self.lease_s = lease
        self.max_lapses = check_lapses(max_lapses)
        self.beside = Client(url, **{name: value for name, value in options.items() if name != "max_in_flight"})
        self.brief = self.beside.within(BRIEF_S)
        self.leases: Leases[AsyncMessage] = Leases(self.brief)
        self._settling: set[tuple[int, int]] = set()
        self._releasing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def shutdown(self) -> None:
        """Give back what is held, and its connections."""
        await super().shutdown()
        self._is_closed = True
        await asyncio.to_thread(self._give_back)
        await self.client.close()

    def _give_back(self) -> None:
        held = [message for message in self.leases.drop_all() if message.retry]
        try:
            if held:
                self.brief.release(held)
        except QuorateError as error:
            log.warning("%d messages come again when their leases end: %s", len(held), error)
        self.leases.close()
        self.beside.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Put the task into its queue; returns when it is on disk."""
        labels = message.labels
        delay, priority = float(labels.get("delay") or 0), int(float(labels.get("priority") or 0))
        await self.client.produce(
            str(labels.get("queue_name") or self.queue),
            packed(message.message),
            delay=delay if delay > 0 else None,
            ttl=NEVER,
            retry=self.lease_s,
            priority=priority or None,
            key=random_key(),
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks, one after the other, for ever. One that nobody takes is given back."""
        turns = Turns(self.queues)
        while True:
            try:
                message = await self.client.consume(turns.asked, wait=WAIT_S)
            except QuorateError as error:
                if isinstance(error, RefusedError) and error.error in HOPELESS:
                    raise
                log.warning("nothing can be taken, and is tried again: %s", error)
                await asyncio.sleep(FAILED_PAUSE_S)
                continue
            if message is None:
                continue
            turns.served(message.queue)
            self.leases.take([message])
            why = lapsed(message, self.max_lapses)
            if why is None:
                try:
                    data = unpacked(message.data)
                    why = self._fault(data)
                except Exception as error:  # whatever it is that somebody has put there
                    why = f"it is no task: {said_by(error)}"
            if why is not None:
                await self._settle(message, partial(self._reject, why=why))
                continue
            yield self._held(message, data)  # no name is kept for it here: when taskiq lets go of it, it is gone

    def _fault(self, data: bytes) -> str | None:
        """Say why nobody here can run it: taskiq would acknowledge it, and it would be gone."""
        task = self.formatter.loads(message=data)
        task.parse_labels()
        return None if self.find_task(task.task_name) is not None else f"there is no task {task.task_name!r} here"

    def _held(self, message: AsyncMessage, data: bytes) -> AckableMessage:
        """Make what taskiq gets of a message that is held. Where what runs it ends without a word, it is released."""
        held = _Held(data=data, ack=partial(self._settle, message, self._confirm))
        loop = asyncio.get_running_loop()
        held._ended = partial(self._begin_release, message)
        finalize(held, self._gone, loop, message).atexit = False
        return held

    def _gone(self, loop: asyncio.AbstractEventLoop, message: AsyncMessage) -> None:
        """Nobody has a message any more. In any thread, and wherever rubbish is collected: nothing is locked here."""
        if message in self.leases:
            with suppress(RuntimeError):  # the loop is closed: it comes again when its lease ends
                loop.call_soon_threadsafe(self._begin_release, message)

    def _begin_release(self, message: AsyncMessage, _task: object = None) -> None:
        """Release a message, now that what ran it has ended; unless it was acknowledged, or is just now."""
        if (message.msg_id, message.deliveries) in self._settling or message not in self.leases:
            return
        releasing = asyncio.ensure_future(self._settle(message, self._rest))
        self._releasing.add(releasing)  # the loop alone does not keep it
        releasing.add_done_callback(self._releasing.discard)

    async def _confirm(self, message: AsyncMessage) -> None:
        if not await message.confirm():
            log.warning("message %d of %s was another worker's by then", message.msg_id, message.queue)

    async def _rest(self, message: AsyncMessage) -> None:
        why = "it was not acknowledged, and nothing runs it any more"
        await asyncio.to_thread(partial(rest, nack=False), self.brief, message, why)

    async def _reject(self, message: AsyncMessage, why: str) -> None:
        log.error("message %d of %s is rejected: %s", message.msg_id, message.queue, why)
        await asyncio.to_thread(reject, self.brief, message, why, dead_letters_of(message.queue))

    async def _settle(self, message: AsyncMessage, say: Callable[[AsyncMessage], Awaitable[None]]) -> None:
        """While no node can be reached it is tried again for a lease: what is done is not to be done again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + message.retry
        delivery = (message.msg_id, message.deliveries)
        self._settling.add(delivery)
        try:
            while message.retry:
                try:
                    await say(message)
                    return
                except (ConnectionFailedError, UnavailableError) as error:
                    if loop.time() >= until or self._is_closed:
                        log.warning("message %d of %s comes again: %s", message.msg_id, message.queue, error)
                        return
                await asyncio.sleep(REST_S)
        finally:
            self._settling.discard(delivery)
            self.leases.drop(message)
