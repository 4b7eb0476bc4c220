"""Read: messages of a partition, from one on. A machine; it works on any node, from what that knows to be committed.

| where the messages are | how they are read |
|---|---|
| in memory (`storage.partition`) | at once |
| in blocks | by the BlockReader, in a later turn |
| in blocks that this node lacks, or of a topic that it has not heard of | by the leader: the call goes there |
| nowhere yet | the call waits in the line of its partition, or is answered with none |

A read that names a position or a time is told an offset first, and goes on from that.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from actors.messages.call import Call, Client, may_consume
from actors.queues.consuming import LeftWaiters, why_not_wait
from actors.queues.delivery import Delivery
from actors.queues.wait_queues import Waiter, WaitQueues
from actors.queues.waiting import Waiting
from actors.shard.machine import ShardContext, WaitingCalls
from actors.shard.node_view import NodeView
from actors.streams.filters import LOOK_BYTES, LOOKED_IN_BLOCKS, filter_of, look
from actors.streams.finding import partition_of, topic_of
from quorate.protocol import PLAIN, Action, Code, ErrorWord, Request, done, refusal
from quorate.stream_replies import GoneReply, RawReadReplyWithFrames, ReadReply, StreamMessage
from storage.block_rows import Stored, Wanted
from storage.blocks import Kept, frame, frame_bytes
from storage.partition import Partition
from storage.records import Encoding
from storage.tails import TopicState
from storage.topics import Topics

READ_BYTES_MAX: Final = 1 << 20
"""What a reply has at most, or one message."""

COUNT_DEFAULT: Final = 100
ROW_BYTES: Final = 160
"""What a message takes in a reply beside its data, key and headers."""

SERVED_BYTES: Final = 4 << 20
"""So much is read for those who wait in one turn; some ms."""

EARLIEST: Final = "earliest"
_encode_text: Final = msgspec.json.Encoder().encode
_StreamMessage: Final = StreamMessage


class Frames(NamedTuple):
    """What a raw read gives: `frames` of so many messages, the first of them at that offset and position."""

    offset: int
    position: int
    messages: int
    frames: list[bytes]


class Reading(Waiting):
    """Of one shard."""

    def __init__(self, context: ShardContext, delivery: Delivery) -> None:
        super().__init__(context.ledger)
        self._context = context
        self._view = context.view
        self._topics = context.ledger.state.topics
        self._delivery = delivery
        self._disk = context.disk
        self._drops = 0
        self._to_serve: dict[str, None] = {}
        self._room = SERVED_BYTES

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.READ: self.read}

    @property
    def lines(self) -> WaitQueues:
        """Who waits for more of which partition."""
        return self._delivery.read_lines

    def read(self, call: Call) -> None:
        """Answer with messages, or let the client wait for some."""
        request = call.request
        if not leads(self._view):
            known = self._topics.by_name.get(request.topic or "")
            if known is None or request.fresh or (request.partition or 0) >= len(known.partitions):
                return self._context.not_here.append(_elsewhere(call))  # the leader may have heard of it, or says why
        topic = topic_of(call, self._ledger)
        partition = None if topic is None else partition_of(call, topic, self._ledger)
        if topic is None or partition is None:
            return None
        if not topic.settings.accept_read:
            reason = f"the topic {topic.name!r} is not to be read (accept_read): qctl topic configure"
            return self._refuse(call, ErrorWord.NOT_ACCEPTED, reason)
        if sum([one is not None for one in (request.offset, request.position, request.time)]) > 1:
            return self._refuse(call, ErrorWord.FIELD, "offset stands beside position or time: one of them says where")
        wait_s = request.wait or 0.0
        if wait_s > self._context.limits.wait_s_max:
            allowed = f"{self._context.limits.wait_s_max:g} are allowed"
            return self._refuse(call, ErrorWord.FIELD, f"wait is {wait_s:g} s, and {allowed}")
        if request.raw and call.is_single:
            reason = "raw: the messages do not fit into a datagram: ask over TCP"
            return self._refuse(call, ErrorWord.NOT_SUPPORTED, reason)
        return self._read(call, topic, partition)

    def _read(self, call: Call, topic: TopicState, partition: Partition) -> None:
        request = call.request
        offset = _offset_in(request, partition)
        if offset is None:
            return self._find(call, topic, partition)
        if offset < partition.first:
            reason = f"messages before offset {partition.first} are not kept any more"
            return self._gone(call, partition, ErrorWord.TRIMMED, reason, partition.first)
        if offset >= partition.settled:
            return self._wait(call, topic, partition, offset)
        if offset >= partition.held_from[0]:
            return self._answer(call, topic, partition, offset, partition.in_memory(offset))
        if self._topics.tails.is_missing(partition, offset):
            return self._missing(call)
        if self._disk.is_full:
            return self._refuse(call, ErrorWord.OVERLOADED, f"{len(self._disk)} reads are under way already")
        wanted = Wanted(partition.number, partition.index, offset=offset)
        count, size = request.count or COUNT_DEFAULT, _bytes_max(call)
        has_filter = filter_of(topic, request.group) is not None
        if has_filter:  # so much is looked at, whatever of it is accepted
            count, size = LOOKED_IN_BLOCKS, READ_BYTES_MAX
        elif request.raw:
            count = request.count or 1 << 30
        return self._disk.ask(
            call,
            wanted,
            lambda stored: self._stored(call, topic, partition, offset, stored),
            count=count,
            bytes_max=size,
            is_raw=bool(request.raw) and not has_filter,
        )

    def _missing(self, call: Call) -> None:
        """Have the leader answer; or say that this node can't yet, if it leads."""
        if leads(self._view):
            reason = "the messages are on their way to this node, which leads since a moment ago: ask again"
            return self._refuse(call, ErrorWord.NO_LEADER, reason)
        return self._context.not_here.append(_elsewhere(call))

    def _find(self, call: Call, topic: TopicState, partition: Partition) -> None:
        """Find the offset of what a position or a time names, and read on from there."""
        position, at = call.request.position, call.request.time
        held = partition.held_from[0]
        if position is not None:
            if position < partition.first_position:
                reason = f"messages before position {partition.first_position} are not kept any more"
                return self._gone(call, partition, ErrorWord.TRIMMED, reason, partition.first)
            if position >= partition.held_from[1]:
                return self._go_on(call, topic, partition, partition.find_position(position))
            wanted = Wanted(partition.number, partition.index, position=position)
        else:
            wanted = Wanted(partition.number, partition.index, at=at)
            if held <= partition.first:
                return self._go_on(call, topic, partition, partition.find_time(at or 0.0))
        if self._topics.tails.lacks_before(partition, held):
            return self._missing(call)
        if self._disk.is_full:
            return self._refuse(call, ErrorWord.OVERLOADED, f"{len(self._disk)} reads are under way already")
        return self._disk.ask(call, wanted, lambda stored: self._found(call, topic, partition, held, stored))

    def _found(self, call: Call, topic: TopicState, partition: Partition, held: int, stored: Stored) -> None:
        """Read on from what was found in blocks, or in memory where no block has it."""
        if self._topics.numbers.get(topic.number) is not topic:
            return self.read(call)  # it is gone, or the state is another one
        if stored.kept:
            offset = stored.kept[0].offset
        elif partition.held_from[0] != held:
            return self.read(call)  # blocks were stored meanwhile, which may have it
        elif call.request.position is not None:
            offset = partition.find_position(call.request.position)
        else:
            offset = partition.find_time(call.request.time or 0.0)
        return self._go_on(call, topic, partition, max(offset, partition.first))

    def _go_on(self, call: Call, topic: TopicState, partition: Partition, offset: int) -> None:
        if offset >= partition.settled:
            return self._wait(call, topic, partition, offset)  # for that time, or position
        call.request = replace(call.request, offset=offset, position=None, time=None)
        return self._read(call, topic, partition)

    def _stored(self, call: Call, topic: TopicState, partition: Partition, offset: int, stored: Stored) -> None:
        """Answer with what blocks had from that offset on."""
        if self._topics.numbers.get(topic.number) is not topic:
            return self.read(call)  # it is gone, or the state is another one
        if offset < partition.first or offset >= partition.held_from[0]:
            return self._read(call, topic, partition)  # trimmed since; or the state is another one
        if stored.kept:
            if stored.frames:
                found = Frames(offset, stored.kept[0].position, stored.messages, stored.frames)
                return self._tell_raw(call, topic, partition, found)
            return self._answer(call, topic, partition, offset, iter(stored.kept))
        if self._topics.tails.is_missing(partition, offset):
            return self._missing(call)
        following = partition.held_from[0] if stored.next is None else stored.next
        what = stored.damaged or "no block has it"
        reason = f"the message at offset {offset} can't be read ({what}); the next that can is at {following}"
        return self._gone(call, partition, ErrorWord.DAMAGED, reason, following)

    def _refuse(self, call: Call, error: str, reason: str) -> None:
        """Refuse: at once where this node does not lead, since nothing that it commits would free the reply."""
        if leads(self._view):
            self._ledger.refuse(call, error, reason)
        else:
            self._ledger.answer(call, refusal(call.request, error, reason))

    # -- replies -----------------------------------------------------------------------------------------------

    def _gone(self, call: Call, partition: Partition, error: str, reason: str, following: int) -> None:
        request = call.request
        reply = GoneReply(
            action=request.action,
            code=Code.ERROR,
            seq=request.seq,
            topic=request.topic,
            error=error,
            reason=reason,
            partition=partition.index,
            next=following,
            position=partition.first_position if following == partition.first else None,
            closed=self._is_closed(partition),
        )
        if leads(self._view):  # what was let go of may be so by a record that is not committed
            self._ledger.answer_when_committed(call, reply)
        else:
            self._ledger.answer(call, reply)

    def _is_closed(self, partition: Partition) -> bool:
        topic = self._topics.numbers.get(partition.number)
        return topic is not None and partition.index in topic.settings.closed

    def _answer(
        self,
        call: Call,
        topic: TopicState,
        partition: Partition,
        offset: int,
        kept: Iterable[Kept],
    ) -> None:
        """Answer with as many of these messages as were asked for, and fit."""
        request, its = call.request, filter_of(topic, call.request.group)
        if request.raw:
            end = min(offset, partition.settled), partition.settled_position
            if its is not None:
                looked = look(kept, its, end, READ_BYTES_MAX, unbroken=True)
                self._room -= looked.looked * LOOK_BYTES
                kept = looked.accepted
                end = end if kept else (looked.offset, looked.position)
            self._tell_raw(call, topic, partition, _framed(call, end, kept))
            return
        messages: list[StreamMessage] = []
        room, count = _bytes_max(call), request.count or COUNT_DEFAULT
        following: int | None = None
        if its is not None:
            looked = look(kept, its, (offset, 0), READ_BYTES_MAX, unbroken=False)
            kept, following = looked.accepted, looked.offset
            self._room -= looked.looked * LOOK_BYTES
        for one in kept:
            if len(messages) >= count:
                break
            message = shown(one)
            size = len(bytes(message.data)) + ROW_BYTES + _said(one)
            if messages and size > room:
                break
            room -= size
            messages.append(message)
        self._room -= _bytes_max(call) - room
        reply = done(
            request,
            ReadReply,
            queue=None,
            partition=partition.index,
            messages=messages,
            next=offset + len(messages),
            first=partition.first,
            end=partition.settled,
        )
        if following is not None:
            all_fit = len(messages) == len(looked.accepted)
            reply.next = following if all_fit else messages[-1].offset + 1
        self._ledger.answer(call, reply)

    def _tell_raw(self, call: Call, topic: TopicState, partition: Partition, found: Frames) -> None:
        """Answer with frames."""
        request = call.request
        size = sum(map(len, found.frames))
        self._room -= size
        reply = RawReadReplyWithFrames(
            action=request.action,
            code=Code.OK,
            seq=request.seq,
            topic=topic.name,
            count=found.messages,
            partition=partition.index,
            bytes=size,
            offset=found.offset,
            position=found.position,
            next=found.offset + found.messages,
            first=partition.first,
            end=partition.settled,
            first_position=partition.first_position,
            end_position=partition.settled_position,
            closed=self._is_closed(partition),
            frames=found.frames,
        )
        self._ledger.answer(call, reply)

    # -- those who wait ----------------------------------------------------------------------------------------

    def _wait(self, call: Call, topic: TopicState, partition: Partition, offset: int) -> None:
        """Let the client wait for a message at that offset, which is not there yet; or answer that there is none."""
        wait_s = call.request.wait or 0.0
        if not wait_s or call.client.has_left:
            return self._answer(call, topic, partition, offset, ())
        if (reason := why_not_wait(self._context.limits, self._delivery, call, 1)) is not None:
            return self._refuse(call, ErrorWord.OVERLOADED, reason)
        if call.request.position is None and call.request.time is None:
            call.request = replace(call.request, offset=offset)
        line = _line_of(partition)
        return self.lines.stand(Waiter(call, [line], None, self._ledger.now + wait_s))

    def grown(self, partitions: list[Partition]) -> None:
        """Answer those who wait for what is there now."""
        lines = self.lines
        if not len(lines):
            return
        for partition in partitions:
            line = _line_of(partition)
            if line in lines:
                self._to_serve[line] = None
        self._serve()

    def _serve(self) -> None:
        """Answer those who wait for what is there now; the rest in turns to come."""
        while self._to_serve and self._room > 0:
            line = next(iter(self._to_serve))
            for waiter in self.lines.in_line(line):
                if self._room <= 0:
                    return
                topic, partition = place_of(self._topics, line)
                if topic is None or partition is None or _may_be_there(waiter.call, partition):
                    self.lines.leave(waiter)
                    if may_consume(waiter.call):
                        self.read(waiter.call)
                self._room -= ROW_BYTES
            del self._to_serve[line]

    def topic_gone(self, topic: TopicState) -> None:
        """Tell those who wait for more of a topic that it is gone."""
        for partition in topic.partitions:
            line = _line_of(partition)
            if line in self.lines:
                self._to_serve[line] = None
        self._serve()

    def followed(self) -> None:
        """On a node that does not lead: tell those who wait for more of a topic that is gone."""
        if len(self.lines) and self._drops != self._topics.drops:
            self._drops = self._topics.drops
            for line in self.lines.names():
                if place_of(self._topics, line)[0] is None:
                    self._to_serve[line] = None
            self._serve()

    def begin(self) -> None:
        """With so much work to be done in the turn."""
        self._room = SERVED_BYTES

    @property
    def next_event_at(self) -> float:
        """When a wait ends, or somebody is to be answered in a turn to come."""
        return self.next_wait_at

    @property
    def next_wait_at(self) -> float:
        """The same, on a node that does not lead."""
        return self._ledger.now if self._to_serve else self.lines.next_deadline

    def pass_time(self) -> None:
        """End waits."""
        self.end_waits()

    def end_waits(self) -> None:
        """Answer more of those who wait, and those who have waited for long enough."""
        self._serve()
        for waiter in self.lines.late(self._ledger.now):
            if self._room <= 0:
                break
            self._room -= ROW_BYTES
            self.end_wait(waiter)

    def end_wait(self, waiter: Waiter) -> None:
        """Read what is there now: nothing, unless it came in this moment."""
        self.lines.leave(waiter)
        waiter.call.request = replace(waiter.call.request, wait=None)
        self.read(waiter.call)

    def withdraw(self, call: Call) -> None:
        """Out of all lines, and not read for any more."""
        super().withdraw(call)
        self._disk.withdraw(call)

    def forget(self, client: Client) -> None:
        """Answer that there is nothing; read nothing for a client that is gone."""
        super().forget(client)
        if client.is_gone:
            self._disk.forget(client)

    def take_waiting(self) -> WaitingCalls | None:
        """All of them, and those for whom blocks are being read."""
        self._to_serve.clear()
        lines, reads = self.lines, self._disk.take_calls()
        if not len(lines) and not reads:
            return None
        self._delivery.read_lines = WaitQueues()
        return _LeftReads(LeftWaiters(lines, self._ledger.now), reads)


class _LeftReads(WaitingCalls):
    """Calls that waited, and then those for which something is being read."""

    def __init__(self, waiting: LeftWaiters, reads: list[Call]) -> None:
        self._waiting = waiting
        self._reads = deque(reads)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._reads)

    def take(self) -> Call:
        """Take the next."""
        return self._waiting.take() if len(self._waiting) else self._reads.popleft()


def place_of(topics: Topics, line: str) -> tuple[TopicState | None, Partition | None]:
    """Find what those in a line wait for more of; None: it is gone."""
    number, _, index = line.partition("/")
    topic = topics.numbers.get(int(number))
    return topic, None if topic is None else topic.partitions[int(index)]


def leads(view: NodeView) -> bool:
    """Whether this node leads the shard, as far as it knows."""
    return view.leader_node_id == view.node_id


def _elsewhere(call: Call) -> Call:
    call.elsewhere = True
    return call


def _line_of(partition: Partition) -> str:
    return f"{partition.number}/{partition.index}"


def _may_be_there(call: Call, partition: Partition) -> bool:
    """Whether what a call waits for may be there now: who waits for a time, or a position, looks again."""
    offset = call.request.offset
    return not isinstance(offset, int) or offset < partition.settled


def _offset_in(request: Request, partition: Partition) -> int | None:
    """Say at which offset of the partition a request begins; None: a position or a time says it."""
    offset = request.offset
    if offset is None:
        return None if request.position is not None or request.time is not None else partition.first
    if isinstance(offset, int):
        return offset
    return partition.first if offset == EARLIEST else partition.settled


def _framed(call: Call, at: tuple[int, int], kept: Iterable[Kept]) -> Frames:
    """Make frames of as many of these messages as were asked for, and fit.

    `at`: where to go on, offset and position, if there is none.
    """
    room = _bytes_max(call)
    offset, position = at
    made: list[bytes] = []
    for one in kept:
        size = frame_bytes(one.data, one.attribute)
        if made and (size > room or len(made) >= (call.request.count or 1 << 30)):
            break
        if not made:
            offset, position = one.offset, one.position
        room -= size
        made.append(frame(one))
    return Frames(offset, position, len(made), made)


def _bytes_max(call: Call) -> int:
    asked = call.request.max_bytes
    most = min(READ_BYTES_MAX, call.reply_bytes_max)
    return most if asked is None else min(asked, most)


def _said(kept: Kept) -> int:
    """Reckon what a reply says of a message beside its data and the numbers (bytes)."""
    size = 0
    if kept.key is not None:
        size += 2 * len(kept.key)
    if kept.attribute is not None:
        size += 2 * len(kept.attribute)
    if kept.headers is not None:
        size += sum([2 * (len(name) + len(text)) + 6 for name, text in kept.headers.items()])
    return size


def shown(kept: Kept) -> StreamMessage:
    """Make a message what replies show of it."""
    encoding = kept.encoding
    data = Raw(_encode_text(kept.data.decode())) if encoding == Encoding.TEXT else Raw(kept.data)
    return _StreamMessage(
        kept.offset,
        kept.msg_id,
        data,
        kept.produced_at,
        kept.position,
        kept.key,
        PLAIN if encoding == Encoding.PLAIN else None,
        kept.headers,
        kept.attribute,
        kept.flag,
    )
