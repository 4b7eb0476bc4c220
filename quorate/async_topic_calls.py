"""What an `AsyncClient` does with topics: its base, over its requests."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack

from quorate import streams
from quorate.async_topic_reader import AsyncTopicReader
from quorate.calls import Ask
from quorate.payload import Encoder
from quorate.protocol import Action
from quorate.replies import JsonObject
from quorate.stream_replies import GroupRow, PreparedRow, TopicRow
from quorate.streams import EARLIEST, Appended, Part, Start, TopicOptions, TopicView
from quorate.transaction import AsyncTransaction

T = TypeVar("T")


class AsyncTopicCalls:
    """As `TopicCalls`."""

    _encoder: Encoder | None

    @abstractmethod
    async def request(self, action: int, **fields: Any) -> JsonObject:
        """As `Client.request`."""

    @abstractmethod
    async def _do(self, ask: Ask[T]) -> T: ...

    async def append(
        self,
        topic: str,
        data: Any,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: dict[str, str] | None = None,
        attribute: str | None = None,
        producer: str | None = None,
        number: int | None = None,
        expected: int | None = None,
    ) -> Appended:
        """As `Client.append`."""
        options = {"key": key, "partition": partition, "headers": headers, "attribute": attribute}
        options |= {"producer": producer, "number": number, "expected": expected}
        return await self._do(streams.append(topic, data, options, self._encoder))

    async def append_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        partition: int | None = None,
        producer: str | None = None,
        number: int | None = None,
        expected: int | None = None,
    ) -> list[Appended]:
        """As `Client.append_many`."""
        options = {"partition": partition, "producer": producer, "number": number, "expected": expected}
        return await self._do(streams.append_many(topic, messages, options, self._encoder))

    async def read_part(
        self,
        topic: str,
        partition: int = 0,
        start: Start = EARLIEST,
        *,
        count: int = 100,
        wait: float = 0.0,
        group: str | None = None,
    ) -> Part:
        """As `Client.read_part`."""
        return await self._do(streams.read(topic, partition, start, count, wait, group=group))

    def read(
        self,
        topic: str,
        group: str | None = None,
        *,
        partitions: Sequence[int] | None = None,
        start: Start = EARLIEST,
        follow: bool | None = None,
        session: float = 30.0,
        count: int = 100,
    ) -> AsyncTopicReader:
        """As `Client.read`."""
        return AsyncTopicReader(
            self, topic, group, partitions=partitions, start=start, follow=follow, session=session, count=count
        )

    def transaction(self) -> AsyncTransaction:
        """As `Client.transaction`, for `async with`."""
        return AsyncTransaction(self._do, self._encoder)

    # -- topics ------------------------------------------------------------------------------------------------

    async def create_topic(self, topic: str, **options: Unpack[TopicOptions]) -> TopicView:
        """As `Client.create_topic`."""
        return await self._do(streams.topic(topic, "create", **streams.checked_options(options)))

    async def configure_topic(self, topic: str, **options: Unpack[TopicOptions]) -> TopicView:
        """As `Client.configure_topic`."""
        return await self._do(streams.topic(topic, "configure", **streams.checked_options(options)))

    async def topic(self, topic: str) -> TopicView:
        """As `Client.topic`."""
        return await self._do(streams.topic(topic, "show"))

    async def topics(self, pattern: str | None = None) -> AsyncIterator[TopicRow]:
        """As `Client.topics`."""
        after: str | None = None
        while True:
            reply = await self.request(Action.TOPIC, command="list", pattern=pattern, after=after)
            rows, after = streams.topic_rows(reply)
            for row in rows:
                yield row
            if after is None:
                break
        streams.check_whole(reply)

    async def trim_topic(self, topic: str, *, partition: int | None = None, before: int | datetime | str) -> int:
        """As `Client.trim_topic`."""
        fields = streams.start_fields(before)
        return await self._do(streams.retired(topic, "trim", partition=partition, **fields))

    async def remove_topic(self, topic: str) -> int:
        """As `Client.remove_topic`."""
        return await self._do(streams.retired(topic, "remove"))

    # -- transactions in two phases, as MetaQ's clients ask for them ---------------------------------------------

    async def prepared(self, shard: int = 0) -> list[PreparedRow]:
        """As `Client.prepared`."""
        return await self._do(streams.prepared(shard))

    async def decide_prepared(self, xid: str, *, commit: bool, shard: int = 0) -> int:
        """As `Client.decide_prepared`."""
        return await self._do(streams.decide(xid, shard, commit=commit))

    # -- groups ------------------------------------------------------------------------------------------------

    async def groups(self, topic: str) -> list[GroupRow]:
        """As `Client.groups`."""
        return await self._do(streams.groups(topic, None))

    async def group(self, topic: str, group: str) -> GroupRow:
        """As `Client.group`."""
        return (await self._do(streams.groups(topic, group)))[0]

    async def reset_group(
        self, topic: str, group: str, to: Start, *, partition: int | None = None, force: bool = False
    ) -> dict[int, int]:
        """As `Client.reset_group`."""
        fields = {"partition": partition, "force": force or None, **streams.start_fields(to)}
        return await self._do(streams.group(topic, group, "reset", **fields))

    async def remove_group(self, topic: str, group: str, *, force: bool = False) -> None:
        """As `Client.remove_group`."""
        await self._do(streams.group(topic, group, "remove", force=force or None))

    async def commit_positions(
        self,
        topic: str,
        group: str,
        positions: dict[int, int],
        *,
        member: str | None = None,
        generation: int | None = None,
    ) -> dict[int, int]:
        """As `Client.commit_positions`."""
        return await self._do(streams.commit(topic, group, positions, member, generation))

    async def heartbeat(
        self, topic: str, group: str, member: str, owns: Sequence[int] = (), *, session: float = 30.0, wait: float = 0.0
    ) -> streams.Share:
        """As `Client.heartbeat`."""
        return await self._do(streams.heartbeat(topic, group, member, [*owns], session, wait))

    async def leave_group(self, topic: str, group: str, member: str) -> None:
        """As `Client.leave_group`."""
        await self._do(streams.group(topic, group, "leave", member=member))
