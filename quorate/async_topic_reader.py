"""Iterating over a topic with asyncio: as `quorate.topic_reader`; a task of its own says the heartbeats."""

import asyncio
import logging
import time
import weakref
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from quorate.errors import QuorateError, RefusedError, UnavailableError
from quorate.streams import (
    Share,
    TopicMessage,
    behind_gap,
    chosen_partitions,
    is_not_owner,
    is_unknown_member,
)
from quorate.topic_places import PAUSE_S
from quorate.topic_reading import TopicReading

if TYPE_CHECKING:
    from quorate.async_topic_calls import AsyncTopicCalls

log = logging.getLogger("quorate")


class AsyncTopicReader(TopicReading["AsyncTopicCalls"]):
    """As `TopicReader`. Left without `async with` or `close`, its group waits a session for it."""

    def __init__(self, client: "AsyncTopicCalls", topic: str, group: str | None, **asked: Any) -> None:
        super().__init__(client, topic, group, **asked)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- iterating ---------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._places.not_done()
        await self.close()

    async def __anext__(self) -> TopicMessage:
        if not self._begun:
            await self._begin()
        self._places.done()
        while not self._closed:
            await self._look_after_group()
            message = self._places.take()
            if message is not None:
                return message
            if self._places.is_at_end:
                break
            await self._read_some()
        await self.close()
        raise StopAsyncIteration

    async def close(self) -> None:
        """Commit where the group is, and leave it."""
        if self._closed:
            return
        self._closed = True
        self._places.done()
        self._changed.set()
        if self.group is None or not self._begun:
            return
        try:
            await self.commit()
            if self._places.has_done:  # a new leader has not heard of this member yet
                await self._heartbeat(self.group, is_first=True)
                await self.commit()
        finally:
            await self._leave(self.group)

    async def _leave(self, group: str) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        try:
            await self._client.leave_group(self._topic, group, self.member)
        except QuorateError as error:
            log.debug("leaving group %r of topic %r: %s", group, self._topic, error)

    async def commit(self) -> None:
        """As `TopicReader.commit`."""
        positions, generation = self._places.take_done(time.monotonic())
        if self.group is None or not positions:
            return
        try:
            await self._client.commit_positions(
                self._topic, self.group, positions, member=self.member, generation=generation
            )
        except QuorateError as error:
            if not is_not_owner(error):
                self._places.put_back(positions)
                raise
            log.warning("group %r of topic %r: %s", self.group, self._topic, error)
            if is_unknown_member(error):  # after its next heartbeat it is known
                self._places.put_back(positions)
            elif len(positions) > 1:
                await self._commit_each(self.group, positions, generation)
        except asyncio.CancelledError:
            self._places.put_back(positions)
            raise

    async def _commit_each(self, group: str, positions: dict[int, int], generation: int) -> None:
        """Commit what is still this member's, where some of it is another's."""
        for index, at in positions.items():
            try:
                await self._client.commit_positions(
                    self._topic, group, {index: at}, member=self.member, generation=generation
                )
            except QuorateError as error:
                if not is_not_owner(error):
                    self._places.put_back({index: at})
                    raise

    async def _begin(self) -> None:
        if self.group is None:
            chosen, ends = chosen_partitions(self._topic, await self._client.topic(self._topic), self._partitions)
            self._places.alone(chosen, None if self._follows else ends)
        else:
            await self._heartbeat(self.group, is_first=True)
            self._task = asyncio.create_task(_live(weakref.ref(self)), name=f"quorate-{self.group}")
        self._begun = True

    async def _read_some(self) -> None:
        """Read a part of the next partition, or wait a while where there is none."""
        chosen = self._places.to_read()
        if chosen is None:
            await self._pause(PAUSE_S)
            return
        index, start, wait = chosen
        try:
            part = await self._client.read_part(
                self._topic, index, start, count=self._count, wait=wait, group=self.group
            )
        except RefusedError as error:
            part = behind_gap(error)
            log.warning("%s", error)
        self._places.came(index, start, part)

    async def _pause(self, seconds: float) -> None:
        """Wait until something has changed, or for so long."""
        self._changed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    # -- the group ---------------------------------------------------------------------------------------------

    async def _look_after_group(self) -> None:
        """Commit when it is time, and let go of what is another's."""
        if self.group is None:
            return
        if self._fault is not None:
            raise self._fault
        if self._places.is_to_commit(time.monotonic()):
            await self.commit()
        if self._places.is_to_let_go:
            self._places.let_go()
            self._changed.set()

    async def _heartbeat(self, group: str, *, is_first: bool = False) -> None:
        asked_at = time.monotonic()
        owns, wait = self._places.beat(asked_at, is_first=is_first)
        async with asyncio.timeout(wait + self._places.answer_s):
            share: Share = await self._client.heartbeat(
                self._topic, group, self.member, owns, session=self._places.session, wait=wait
            )
        self._places.told(share, asked_at)
        self._changed.set()

    async def live(self, group: str) -> bool:
        """Say one heartbeat, and pause where that is needed; returns whether there is to be another."""
        try:
            await self._heartbeat(group)
        except UnavailableError as error:
            log.info("group %r of topic %r: %s", group, self._topic, error)
            await asyncio.sleep(PAUSE_S)
        except RefusedError as error:
            self._fault = error
            self._changed.set()
            return False
        except (QuorateError, TimeoutError) as error:
            log.info("group %r of topic %r: %s", group, self._topic, error)
            await asyncio.sleep(PAUSE_S)
        except Exception as error:  # whoever iterates is to know
            self._fault = error
            self._changed.set()
            return False
        if self._places.is_to_let_go and not self._closed:
            await self._pause(self._places.answer_s)
        return not self._closed


async def _live(reader: "weakref.ref[AsyncTopicReader]") -> None:
    """Say a reader's heartbeats, until it is closed or nobody has it any more."""
    while True:
        living = reader()
        if living is None or living.group is None or not await living.live(living.group):
            return
        del living
