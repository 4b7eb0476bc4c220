"""Transactions of a client: operations are gathered, and done together, all of them or none, when the block ends."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from quorate import calls, streams
from quorate.calls import Ask
from quorate.checking import checked
from quorate.messages import NEVER, RETRY_S, Key, Message, Moment, OnDuplicate
from quorate.payload import Encoder
from quorate.protocol import BATCH_MAX, Action
from quorate.replies import JsonObject
from quorate.streams import Appended

if TYPE_CHECKING:
    from quorate.topic_reading import TopicReading

T = TypeVar("T")


class Planned(Generic[T]):
    """What an operation of a transaction gives, when that is done: `result`, as the client's method of that name."""

    def __init__(self, ask: Ask[T]) -> None:
        self._ask = ask
        self._reply: JsonObject | None = None
        self._is_done = False

    @property
    def result(self) -> T:
        """What the operation gave.

        Raises RuntimeError before the transaction is done; and of one that was done by an earlier try, whose answer was
        lost, for all but its appends.
        """
        if self._reply is None:
            raise RuntimeError(
                "an earlier try has done it, and what it gave is not known any more"
                if self._is_done
                else "the transaction is not done: its block has not ended, or it failed"
            )
        return self._ask.read(self._reply)

    @property
    def asked(self) -> JsonObject:
        """The operation as it is sent."""
        return {"action": int(self._ask.action), **checked(self._ask.fields or {})}

    def became(self, reply: JsonObject | None) -> None:
        """Note that it was done, and the reply to it."""
        self._is_done = True
        self._reply = reply


class Operations:
    """What a transaction gathers. Up to 1,000 operations, all of queues and topics of one shard: `{orders}.mail` and
    `{orders}.events` are in one (docs/shards.md). Methods raise what those of `Client` do of wrong arguments.
    """

    def __init__(self, encoder: Encoder | None) -> None:
        self._encoder = encoder
        self._planned: list[Planned[Any]] = []
        self._settles: list[Message] = []
        self._is_over = False

    def _plan(self, ask: Ask[T]) -> Planned[T]:
        if self._is_over:
            raise RuntimeError("the transaction is over: begin another")
        planned = Planned(ask)
        if ask.fields is None:  # nothing is to be asked
            planned.became({})
            return planned
        if len(self._planned) >= BATCH_MAX:
            raise ValueError(f"a transaction has at most {BATCH_MAX} operations")
        self._planned.append(planned)
        return planned

    # -- queues ------------------------------------------------------------------------------------------------

    def produce(
        self,
        queue: str,
        data: Any,
        *,
        delay: Moment | None = None,
        ttl: Moment | None = NEVER,
        retry: float | None = RETRY_S,
        priority: int | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        expire: str | None = None,
        keep: bool | None = None,
        max_ready: int | None = None,
        scope: str | None = None,
        on_duplicate: OnDuplicate | None = None,
    ) -> Planned[int]:
        """As `Client.produce`."""
        options = {"delay": delay, "ttl": ttl, "retry": retry, "priority": priority, "key": key, "scope": scope}
        more = {**options, "expire": expire, "keep": keep, "max_ready": max_ready, "on_duplicate": on_duplicate}
        return self._plan(calls.produce(queue, data, headers, more, self._encoder))

    def produce_many(self, queue: str, messages: Iterable[Any], **options: Any) -> Planned[list[int]]:
        """As `Client.produce_many`."""
        return self._plan(calls.produce_many(queue, messages, options, self._encoder))

    def confirm(self, messages: Message | int | Iterable[Message | int]) -> Planned[int]:
        """Messages are done. All of them must be in flight, and those that were delivered to this client still its."""
        listed = self._listed(messages)
        return self._plan(calls.confirm(listed, held=True))

    def release(
        self, messages: Message | int | Iterable[Message | int], *, delay: float = 0.0, nack: bool | None = None
    ) -> Planned[int]:
        """Messages are given back, at once or after `delay`; all of them must be in flight."""
        return self._plan(calls.release(self._listed(messages), delay, nack))

    def bury(self, messages: Message | int | Iterable[Message | int], reason: str | None = None) -> Planned[int]:
        """Messages go to their dead letter queue; all of them must be in flight."""
        return self._plan(calls.bury(self._listed(messages), reason))

    def _listed(self, messages: Message | int | Iterable[Message | int]) -> Message | int | list[Message | int]:
        if isinstance(messages, Key):
            raise TypeError("a message is named by its id in a transaction: a key may be of any shard")
        listed = messages if isinstance(messages, Message | int) or messages is None else list(messages)
        self._settles += [one for one in (listed if isinstance(listed, list) else [listed]) if isinstance(one, Message)]
        return listed

    # -- topics ------------------------------------------------------------------------------------------------

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
    ) -> Planned[Appended]:
        """As `Client.append`. A `number` makes the whole transaction one that is done once."""
        options = {"key": key, "partition": partition, "headers": headers, "attribute": attribute}
        options |= {"producer": producer, "number": number, "expected": expected}
        return self._plan(streams.append(topic, data, options, self._encoder))

    def append_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        partition: int | None = None,
        producer: str | None = None,
        number: int | None = None,
        expected: int | None = None,
    ) -> Planned[list[Appended]]:
        """As `Client.append_many`."""
        options = {"partition": partition, "producer": producer, "number": number, "expected": expected}
        return self._plan(streams.append_many(topic, messages, options, self._encoder))

    def commit(self, reader: "TopicReading[Any]") -> Planned[dict[int, int]]:
        """Have a group go on behind the message that its reader gave last: it is done."""
        return self._plan(streams.commit(*reader.behind_current))

    def commit_positions(
        self,
        topic: str,
        group: str,
        positions: Mapping[int, int],
        *,
        member: str | None = None,
        generation: int | None = None,
    ) -> Planned[dict[int, int]]:
        """As `Client.commit_positions`."""
        return self._plan(streams.commit(topic, group, dict(positions), member, generation))

    # -- the end -----------------------------------------------------------------------------------------------

    def _ask(self) -> Ask[None]:
        """Say what is asked at the end."""
        self._is_over = True
        operations = [one.asked for one in self._planned]
        return Ask(Action.TRANSACTION, {"operations": operations} if operations else None, self._done)

    def _done(self, reply: JsonObject) -> None:
        for planned, its in zip(self._planned, reply.get("replies") or (), strict=True):
            planned.became(its)
        self._settled(is_done=True)

    def _settled(self, *, is_done: bool) -> None:
        """Tell messages whether a node knows what becomes of them."""
        for message in self._settles:
            said: list[bool] | None = getattr(message, "_said", None)
            if said is not None:
                said.append(is_done)


class Transaction(Operations):
    """A context manager: its operations are done when the block ends, and not if it raises. Made by
    `Client.transaction`.

    Raises `RefusedError`, whose `reply` has the `index` of the operation that could not be done; nothing is done then.
    `UnknownOutcomeError`: all of it may be done, or nothing.
    """

    def __init__(self, do: Callable[[Ask[None]], None], encoder: Encoder | None) -> None:
        super().__init__(encoder)
        self._do = do

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._is_over = True
            return
        try:
            self._do(self._ask())
        except BaseException:
            self._settled(is_done=False)
            raise


class AsyncTransaction(Operations):
    """As `Transaction`, for `async with`. Made by `AsyncClient.transaction`."""

    def __init__(self, do: Callable[[Ask[None]], Awaitable[None]], encoder: Encoder | None) -> None:
        super().__init__(encoder)
        self._do = do

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._is_over = True
            return
        try:
            await self._do(self._ask())
        except BaseException:
            self._settled(is_done=False)
            raise
