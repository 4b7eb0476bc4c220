"""What a client does with topics: a base of `Client`, over its requests."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack

from quorate import streams
from quorate.calls import Ask
from quorate.payload import Encoder
from quorate.protocol import Action
from quorate.replies import JsonObject
from quorate.stream_replies import GroupRow, PreparedRow, TopicRow
from quorate.streams import EARLIEST, Appended, Part, Start, TopicOptions, TopicView
from quorate.topic_reader import TopicReader
from quorate.transaction import Transaction

T = TypeVar("T")


class TopicCalls:
    """Appends to topics, reads them, and manages them and their groups."""

    _encoder: Encoder | None

    @abstractmethod
    def request(self, action: int, **fields: Any) -> JsonObject:
        """See `Client`."""

    @abstractmethod
    def within(self, timeout: float) -> "TopicCalls":
        """See `Client`."""

    @abstractmethod
    def _do(self, ask: Ask[T]) -> T: ...

    def append(
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
        """Append a message to a topic; returns where it is, when a majority of the nodes' disks has it.

        It goes to `partition`, else to that of its `key`, else to one after the other. With `producer` and a `number`,
        which rises with each append, it is appended once, however often it is asked for: the client asks again by
        itself where an answer is lost. `expected`: the offset that the message is to get; else `offset_conflict`.
        """
        options = {"key": key, "partition": partition, "headers": headers, "attribute": attribute}
        options |= {"producer": producer, "number": number, "expected": expected}
        return self._do(streams.append(topic, data, options, self._encoder))

    def append_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        partition: int | None = None,
        producer: str | None = None,
        number: int | None = None,
        expected: int | None = None,
    ) -> list[Appended]:
        """Append up to 1,000 messages, all of them or none: data, or `NewTopicMessage` with key, headers, attribute."""
        options = {"partition": partition, "producer": producer, "number": number, "expected": expected}
        return self._do(streams.append_many(topic, messages, options, self._encoder))

    def read_part(
        self,
        topic: str,
        partition: int = 0,
        start: Start = EARLIEST,
        *,
        count: int = 100,
        wait: float = 0.0,
        group: str | None = None,
    ) -> Part:
        """Read up to `count` messages of one partition from `start` on; waits up to `wait` seconds for the first.

        With a `group` those that its filter accepts, if it has one.
        """
        return self._do(streams.read(topic, partition, start, count, wait, group=group))

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
    ) -> TopicReader:
        """Iterate over a topic's messages, in the order of each partition.

        With a `group` the reader is a member of it: it gets its share of the partitions, goes on where the group was
        (at `start`, where that is nowhere), and follows. A message counts as done when the next one is asked for, or
        the reader is closed; where the group is, is committed once a second, and when the reader is closed:

            with client.read("orders", group="billing") as messages:
                for message in messages:
                    bill(message.data)

        Without a group nothing is committed: it reads `partitions` (all), and ends at what was the end when it began,
        unless it is to `follow`. `session`: a member that says nothing for so long (s) is one no more.
        """
        return TopicReader(
            self, topic, group, partitions=partitions, start=start, follow=follow, session=session, count=count
        )

    def transaction(self) -> Transaction:
        """Begin a transaction: what the block gathers is done when it ends, all of it or nothing.

            with client.transaction() as transaction:
                transaction.confirm(job)
                transaction.append("{orders}.events", {"paid": job.data}, key="42")
                transaction.produce("{orders}.mail", {"to": "ada"})

        All of it is of one shard: names with the same tag are. Each message that it confirms, releases or buries must
        be in flight. What each operation gave is its `result` behind the block. Where an answer is lost, the client
        asks again if an append has a number, or a delivery is confirmed: that can't be done twice.
        """
        return Transaction(self._do, self._encoder)

    # -- topics ------------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, **options: Unpack[TopicOptions]) -> TopicView:
        """Create a topic, with 8 `partitions`, if it is not there. Raises `RefusedError` (`topic_exists`) where it is,
        with other settings.
        """
        return self._do(streams.topic(topic, "create", **streams.checked_options(options)))

    def configure_topic(self, topic: str, **options: Unpack[TopicOptions]) -> TopicView:
        """Change those settings that are given. Partitions are added, never removed; keys go to others then."""
        return self._do(streams.topic(topic, "configure", **streams.checked_options(options)))

    def topic(self, topic: str) -> TopicView:
        """Return a topic's settings, its partitions and its groups."""
        return self._do(streams.topic(topic, "show"))

    def topics(self, pattern: str | None = None) -> Iterator[TopicRow]:
        """Iterate over the topics, in the order of their names; `pattern` has shell wildcards, or is a part of it.

        Raises `RefusedError` behind the last of them when a shard could not be asked.
        """
        after: str | None = None
        while True:
            reply = self.request(Action.TOPIC, command="list", pattern=pattern, after=after)
            rows, after = streams.topic_rows(reply)
            yield from rows
            if after is None:
                break
        streams.check_whole(reply)

    def trim_topic(self, topic: str, *, partition: int | None = None, before: int | datetime | str) -> int:
        """Let go of the messages before an offset of a partition, or a time; "latest": of all. Returns how many."""
        fields = streams.start_fields(before)
        return self._do(streams.retired(topic, "trim", partition=partition, **fields))

    def remove_topic(self, topic: str) -> int:
        """Remove a topic, its messages and its groups; returns how many messages it had."""
        return self._do(streams.retired(topic, "remove"))

    # -- transactions in two phases, as MetaQ's clients ask for them ---------------------------------------------

    def prepared(self, shard: int = 0) -> list[PreparedRow]:
        """Return a shard's transactions that are prepared and not decided, the oldest first."""
        return self._do(streams.prepared(shard))

    def decide_prepared(self, xid: str, *, commit: bool, shard: int = 0) -> int:
        """Commit a prepared transaction, or roll it back, in the place of its transaction manager.

        Returns how many messages it appends. Raises `RefusedError` (`no_such_transaction`).
        """
        return self._do(streams.decide(xid, shard, commit=commit))

    # -- groups ------------------------------------------------------------------------------------------------

    def groups(self, topic: str) -> list[GroupRow]:
        """Return a topic's groups, with how far each of them is behind."""
        return self._do(streams.groups(topic, None))

    def group(self, topic: str, group: str) -> GroupRow:
        """Return a group with its place in each partition, and which member reads it."""
        return self._do(streams.groups(topic, group))[0]

    def reset_group(
        self, topic: str, group: str, to: Start, *, partition: int | None = None, force: bool = False
    ) -> dict[int, int]:
        """Have a group go on elsewhere; while members read, only with `force`. Returns its offsets by partition."""
        fields = {"partition": partition, "force": force or None, **streams.start_fields(to)}
        return self._do(streams.group(topic, group, "reset", **fields))

    def remove_group(self, topic: str, group: str, *, force: bool = False) -> None:
        """Remove a group with its offsets; while members read, only with `force`."""
        self._do(streams.group(topic, group, "remove", force=force or None))

    def commit_positions(
        self,
        topic: str,
        group: str,
        positions: dict[int, int],
        *,
        member: str | None = None,
        generation: int | None = None,
    ) -> dict[int, int]:
        """Say at which offsets a group goes on; returns where it does, which is never before where it was."""
        return self._do(streams.commit(topic, group, positions, member, generation))

    def heartbeat(
        self, topic: str, group: str, member: str, owns: Sequence[int] = (), *, session: float = 30.0, wait: float = 0.0
    ) -> streams.Share:
        """Say that a member of a group lives, and which partitions it has; returns which it is to have."""
        return self._do(streams.heartbeat(topic, group, member, [*owns], session, wait))

    def leave_group(self, topic: str, group: str, member: str) -> None:
        """Leave a group: others get what the member had."""
        self._do(streams.group(topic, group, "leave", member=member))
