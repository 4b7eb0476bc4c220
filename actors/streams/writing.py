"""Append, and produce to a topic: which partition a message gets, and whether it is new. A machine.

A message goes to the partition that is named, else to that of its key, else to one after the other: all messages of a
request that have no key to the same. A producer that numbers its appends is told of a number that came before what it
got then; see `storage.producers`.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from actors.messages.call import Call
from actors.queues.producing import Producing
from actors.shard.machine import Machine, ShardContext
from actors.streams.finding import closed_fault, partition_fault, partition_of_key, topic_of
from quorate.protocol import (
    NO_DATA,
    PLAIN,
    TIME_MAX_S,
    Action,
    Code,
    ErrorWord,
    ProduceItem,
    Reply,
    Request,
    done,
    refusal,
)
from quorate.stream_replies import AppendReply, ConflictReply
from storage.blocks import HAS_ATTRIBUTE
from storage.message_ids import message_id
from storage.producers import Run, last_serial, runs_of
from storage.records import Append, Encoding
from storage.tails import TopicState

QUOTE: Final = ord('"')
BACKSLASH: Final = b"\\"
_decode_text: Final = msgspec.json.Decoder(str).decode
CHECK: Final = "check"
"""The command of an append that only asks whether it could be done now."""

_APPEND: Final = int(Action.APPEND)
_Append: Final = Append
_AppendReply: Final = AppendReply

NOT_OF_TOPICS: Final = ("delay", "priority", "scope", "keep", "expire", "on_duplicate", "max_ready", "replicate")
"""Fields of a produce that say something which holds for no topic. `retry` is about deliveries: it says nothing."""


class Item(NamedTuple):
    """A message that is to be appended."""

    data: bytes
    encoding: int
    key: str | None
    headers: dict[str, str] | None
    attribute: str | None
    flag: int


class Writing(Machine):
    """Of one shard. `producing` knows how much memory there is."""

    def __init__(self, context: ShardContext, producing: Producing) -> None:
        self._context = context
        self._ledger = context.ledger
        self._topics = context.ledger.state.topics
        self._producing = producing
        producing.to_topic = self.produce

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.APPEND: self.append}

    def append(self, call: Call) -> None:
        """Append the messages that a request has, all of them or none."""
        topic = topic_of(call, self._ledger)
        if topic is None:
            return
        request = call.request
        if request.command not in (None, CHECK):
            self._ledger.refuse_field(call, "command", f"is {request.command!r}: an append knows {CHECK!r} alone")
            return
        if (request.producer is None) != (request.number is None):
            missing = "producer" if request.producer is None else "number"
            self._ledger.refuse_field(call, missing, "is missing: producer and number stand together")
            return
        items = self.items(call)
        if items is not None:
            self._append(call, topic, items)

    def is_repeated(self, request: Request) -> bool:
        """Whether an append with a number came before."""
        topic = self._topics.by_name.get(request.topic or "")
        if topic is None or request.producer is None:
            return False
        seen = self._topics.producers.known.get((topic.number, request.producer))
        return (request.number or 0) <= last_serial(seen)

    def produce(self, call: Call, name: str) -> None:
        """Append what a produce to a topic has."""
        request, topic = call.request, self._topics.by_name[name]
        for place, one in (
            ("", request),
            *((f"messages[{at}].", one) for at, one in enumerate(request.messages or ())),
        ):
            field = _not_of_topics(one)
            if field is not None:
                reason = f"{name!r} is a topic: {place}{field} is for queues"
                self._ledger.refuse(call, ErrorWord.IS_A_TOPIC, reason)
                return
        if any(one is not None for one in (request.producer, request.number, request.partition, request.expected)):
            call.request = replace(request, producer=None, number=None, partition=None, expected=None)  # append's
        items = self.items(call)
        if items is not None:
            self._append(call, topic, items)

    # -- what is to be appended --------------------------------------------------------------------------------

    def items(self, call: Call) -> list[Item] | None:
        """Read the messages of a request; None if it was refused."""
        request = call.request
        if request.messages is None:
            item = self._item(call, request, request, "")
            return None if item is None else [item]
        items: list[Item] = []
        for index, one in enumerate(request.messages):
            item = self._item(call, one, request, f"messages[{index}].")
            if item is None:
                return None
            items.append(item)
        return items

    def _item(self, call: Call, one: Request | ProduceItem, outer: Request, place: str) -> Item | None:
        raw = one.data
        if raw is NO_DATA:
            self._ledger.refuse_field(call, f"{place}data", "is missing")
            return None
        data, encoding = bytes(raw), Encoding.PLAIN
        if one.encoding != PLAIN:
            encoding = Encoding.JSON
            if data[0] == QUOTE:
                text = _text(raw, data)
                if text is None:
                    self._ledger.refuse_field(call, f"{place}data", "holds half of a surrogate pair")
                    return None
                data, encoding = text, Encoding.TEXT
        allowed = self._context.limits.data_bytes_max
        if len(data) > allowed:
            reason = f"{place}data: {len(data)} bytes, and {allowed} are allowed"
            self._ledger.refuse(call, ErrorWord.TOO_LARGE, reason)
            return None
        key = outer.key if one.key is None else one.key
        headers = outer.headers if one.headers is None else one.headers
        attribute = outer.attribute if one.attribute is None else one.attribute
        flag = outer.flag if one.flag is None else one.flag
        return Item(data, encoding, key, headers or None, attribute, (flag or 0) & ~HAS_ATTRIBUTE)

    def places(self, call: Call, topic: TopicState, items: list[Item]) -> list[int] | None:
        """Say to which partition each message goes; None if it was refused."""
        request, count, settings = call.request, len(topic.partitions), topic.settings
        named = request.partition
        if not settings.accept_append:
            reason = f"nothing is to be appended to the topic {topic.name!r} (accept_append): qctl topic configure"
            self._ledger.refuse(call, ErrorWord.NOT_ACCEPTED, reason)
            return None
        if named is not None:
            fault = partition_fault(topic, named)
            if fault is not None:
                self._ledger.refuse(call, ErrorWord.WRONG_PARTITION, fault)
                return None
            places = [named] * len(items)
        else:
            turn = self._in_turn(topic)
            places = [turn if item.key is None else partition_of_key(item.key, count) for item in items]
        for place in {*places} if settings.closed else ():
            if (fault := closed_fault(topic, place)) is not None:
                self._ledger.refuse(call, ErrorWord.CLOSED, fault)
                return None
        return places

    @staticmethod
    def _in_turn(topic: TopicState) -> int:
        """Give the partition to which the next messages go that have no key: not a closed one, where another is."""
        count, closed = len(topic.partitions), topic.settings.closed
        turn = topic.turn % count
        return next((at % count for at in range(turn, turn + count) if at % count not in closed), turn)

    # -- appending ---------------------------------------------------------------------------------------------

    def _append(self, call: Call, topic: TopicState, items: list[Item]) -> None:
        request, ledger = call.request, self._ledger
        producer, serial = request.producer, request.number or 0
        if producer is not None:
            seen = self._topics.producers.known.get((topic.number, producer))
            if serial <= last_serial(seen):
                self._answer_again(call, topic, items, runs_of(seen, serial))
                return
        places = self.places(call, topic, items)
        if places is None or not self._is_expected(call, topic, places) or not self._has_room(call, items):
            return
        if producer is not None and len({*places}) > 1 and any(item.key is None for item in items):
            reason = "is given, and the messages go to several partitions, some of them in turn: name the partition"
            ledger.refuse_field(call, "number", reason)
            return
        if request.command == CHECK:
            ledger.answer_when_committed(call, done(request, AppendReply, partition=places[0]))
            return
        if request.partition is None and any(item.key is None for item in items):
            self._turn(topic, places[[item.key for item in items].index(None)])
        now, nexts = ledger.now, {place: topic.partitions[place].next for place in {*places}}
        records: list[Append] = []
        offsets: list[int] = []
        for item, place in zip(items, places, strict=True):
            offset = nexts[place]
            nexts[place] = offset + 1
            offsets.append(offset)
            records.append(
                _Append(
                    topic.name,
                    topic.number,
                    place,
                    offset,
                    item.data,
                    item.encoding,
                    now,
                    item.key,
                    item.headers,
                    item.attribute,
                    item.flag,
                    producer,
                    serial,
                )
            )
        first = ledger.state.trans_id + 1
        position = topic.partitions[places[0]].next_position
        if len(records) == 1:
            ledger.append(records[0])
        else:
            ledger.append_together(records)
        self._answer(call, places, offsets, first, position)

    def _turn(self, topic: TopicState, place: int) -> None:
        """Have the next messages without a key go to the partition behind that one.

        Only where records follow, whose undoing undoes it: what is refused leaves nothing.
        """
        state = self._ledger.state
        state.undo.was(state.trans_id + 1, topic, "turn", topic.turn)
        topic.turn = place + 1

    def _is_expected(self, call: Call, topic: TopicState, places: list[int]) -> bool:
        """Whether the first message gets the offset that the request says; refuses it if not."""
        request = call.request
        if request.expected is None:
            return True
        if len({*places}) > 1:
            self._ledger.refuse_field(call, "expected", "is given, and the messages go to several partitions")
            return False
        following = topic.partitions[places[0]].next
        if following == request.expected:
            return True
        reply = ConflictReply(
            action=request.action,
            code=Code.ERROR,
            queue=request.queue,
            seq=request.seq,
            topic=request.topic,
            error=ErrorWord.OFFSET_CONFLICT,
            reason=f"expected {request.expected}, and the next message of partition {places[0]} gets {following}",
            partition=places[0],
            next=following,
        )
        self._ledger.answer_when_committed(call, reply)
        return False

    def _has_room(self, call: Call, items: list[Item]) -> bool:
        if not self._producing.is_short(len(items), sum([len(item.data) for item in items])):
            return True
        most = self._context.limits.memory_bytes_max
        self._ledger.refuse(call, ErrorWord.LIMIT, f"the node's memory for messages is used up ({most} bytes)")
        return False

    def _answer(self, call: Call, places: list[int], offsets: list[int], first: int, position: int) -> None:
        """Answer where the messages are, which the records from `first` on append; the first one's `position`."""
        request, shard = call.request, self._topics.shard
        if request.action != _APPEND:  # a produce
            reply = Reply(action=request.action, code=0, queue=request.queue, seq=request.seq)
            if request.messages is None:
                reply.msg_id = message_id(first, shard)
            else:
                reply.msg_ids = [message_id(first + at, shard) for at in range(len(places))]
        elif request.messages is None:
            reply = _AppendReply(
                action=_APPEND,
                code=0,
                topic=request.topic,
                seq=request.seq,
                msg_id=message_id(first, shard),
                partition=places[0],
                offset=offsets[0],
                position=position,
            )
        else:
            reply = _AppendReply(
                action=_APPEND,
                code=0,
                topic=request.topic,
                seq=request.seq,
                msg_ids=[message_id(first + at, shard) for at in range(len(places))],
                partitions=places,
                offsets=offsets,
            )
        self._ledger.answer_when_committed(call, reply)

    def _answer_again(self, call: Call, topic: TopicState, items: list[Item], runs: tuple[Run, ...] | None) -> None:
        """Answer an append that came before with what it got then."""
        request = call.request
        places = None if runs is None else self._places_again(request, topic, items, runs)
        if runs is None or places is None:
            reason = f"number {request.number} of {request.producer!r} came before, and what it got is not known"
            self._ledger.answer_when_committed(call, refusal(request, ErrorWord.DUPLICATE_NUMBER, reason))
            return
        nexts = {run.partition: run.offset for run in runs}
        offsets: list[int] = []
        for place in places:
            offsets.append(nexts[place])
            nexts[place] += 1
        reply = _AppendReply(action=_APPEND, code=0, topic=request.topic, seq=request.seq, duplicate=True)
        if request.messages is None:
            reply.partition, reply.offset = places[0], offsets[0]
        else:
            reply.partitions, reply.offsets = places, offsets
        self._ledger.answer_when_committed(call, reply)

    @staticmethod
    def _places_again(
        request: Request, topic: TopicState, items: list[Item], runs: tuple[Run, ...]
    ) -> list[int] | None:
        """Say to which partitions those messages went; None: they were others, or there are more partitions now."""
        if len(runs) == 1:
            places = [runs[0].partition] * len(items)
        else:
            keys = [item.key for item in items]
            places = [partition_of_key(key, len(topic.partitions)) for key in keys if key is not None]
        counts = {run.partition: run.length for run in runs}
        return places if counts == {place: places.count(place) for place in {*places}} else None


def _text(raw: Raw, data: bytes) -> bytes | None:
    """Give the UTF-8 of a JSON string; None: it can't be said so."""
    if BACKSLASH not in data:
        return data[1:-1]
    try:
        return _decode_text(raw).encode()
    except (msgspec.DecodeError, UnicodeError):
        return None


def _not_of_topics(one: Any) -> str | None:
    """Find a field that says something which holds for no topic."""
    for name in NOT_OF_TOPICS:
        if getattr(one, name, None):
            return name
    ttl = one.ttl
    return "ttl" if ttl and ttl < TIME_MAX_S else None
