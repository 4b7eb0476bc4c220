"""A taskiq broker: `broker = QuorateBroker("quorate://127.0.0.1:1111")`.

Of a task's labels `queue_name` says its queue, `delay` (s) and `priority` (higher first) are the node's. What a worker
has not acknowledged is kept in flight, also while it waits behind others, and comes again when that worker dies.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, Final

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from quorate.async_client import AsyncClient, AsyncMessage
from quorate.errors import (
    HOPELESS,
    ConnectionFailedError,
    NotInFlightError,
    QuorateError,
    RefusedError,
    UnavailableError,
)
from quorate.hands import Hands
from quorate.messages import NEVER, random_key
from quorate.packing import packed, unpacked
from quorate.turns import Turns

log = logging.getLogger("quorate.taskiq")

LEASE_S: Final = 60.0
REST_S: Final = 0.5
WAIT_S: Final = 25.0
FAILED_PAUSE_S: Final = 1.0


class QuorateBroker(AsyncBroker):
    """Tasks go to `queue`, or to that of their `queue_name`; a worker listens to `queue` and to `also`, in turn.

    `lease`: seconds after which the tasks of a worker that is not heard of any more begin again. Further `options` are
    those of `AsyncClient`. Connects when it is first used.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        queue: str = "taskiq",
        also: tuple[str, ...] = (),
        lease: float = LEASE_S,
        **options: Any,
    ) -> None:
        super().__init__()
        self.client = AsyncClient(url, **options)
        self.queue = queue
        self.queues = [queue, *also]
        self.lease_s = lease
        self._hands: Hands[AsyncMessage] = Hands()
        self._extending: asyncio.Task[None] | None = None

    async def shutdown(self) -> None:
        """Give its connections back. What is held comes again when its lease ends."""
        await super().shutdown()
        if self._extending is not None:
            self._extending.cancel()
        await self.client.close()

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
        if self._extending is None:
            self._extending = asyncio.ensure_future(self._keep_extending())
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
            try:
                data = unpacked(message.data)
            except ValueError as error:
                log.error("message %d of %s is no task: %s", message.msg_id, message.queue, error)
                await self._bury(message, str(error))
                continue
            self._hands.take([message], asyncio.get_running_loop().time())
            yield AckableMessage(data=data, ack=lambda message=message: self._ack(message))

    async def _ack(self, message: AsyncMessage) -> None:
        """While no node can be reached it is tried again for a lease: what is done is not to be done again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + message.retry
        try:
            while message.retry:
                try:
                    if not await message.confirm():
                        log.warning("message %d of %s was another worker's by then", message.msg_id, message.queue)
                    return
                except (ConnectionFailedError, UnavailableError):
                    if loop.time() >= until:
                        raise
                await asyncio.sleep(REST_S)
        finally:
            self._hands.drop(message)

    async def _bury(self, message: AsyncMessage, reason: str) -> None:
        """To the dead letters; without any it stays in flight, and comes again: an error a lease, and nothing lost."""
        try:
            await message.bury(reason)
        except QuorateError as error:
            log.warning("it comes again when its lease ends: %s", error)

    async def _keep_extending(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(max(self._hands.next_at - loop.time(), 0.01), REST_S))
            for lease_s, messages in self._hands.due(loop.time()).items():
                try:
                    await self.client.extend(messages, lease_s)
                except NotInFlightError:
                    pass  # their acknowledgements tell whose they are
                except Exception as error:  # whatever it is, the other leases go on
                    log.warning("%d leases could not be extended: %s", len(messages), error)
                    self._hands.failed(messages, loop.time())
