"""What is done to topics as a whole: create, configure, show, list, trim, remove. And retention. A machine.

Retention: every `LOOK_S` the leader looks which messages are older than a topic keeps them, or beyond its bytes, and
says in one record for a topic up to which offset its partitions go. Of what stands in blocks whole blocks go; which
offset that is, the BlockReader finds.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from actors.messages.call import Call, rows_in_reply
from actors.messages.patterns import Pattern
from actors.shard.machine import Machine, ShardContext
from actors.streams.coordinator import Coordinator
from actors.streams.finding import no_such_topic, partition_fault, topic_of
from actors.streams.grouping import Grouping
from actors.streams.places import Finder, Place
from actors.streams.reading import Reading
from actors.streams.views import group_row, partition_row, topic_row
from quorate.actions import Right
from quorate.protocol import Action, ErrorWord, done
from quorate.stream_replies import TopicListReply, TopicReply
from storage.block_rows import Wanted
from storage.partition import Partition
from storage.queue_state import NEVER
from storage.records import STREAMS_LEVEL, DropTopic, Retire, Topic
from storage.tails import TopicState

ValueT = TypeVar("ValueT")

LOOK_S: Final = 5.0
KEEP_S: Final = 7 * 86_400.0
KEEP_BYTES: Final = 1 << 30
GROUPS_BYTES: Final = 10 << 30
PARTITIONS: Final = 8
PARTITIONS_MAX: Final = 10_000
"""Of all topics of a shard."""

BLOCK_SLACK_BYTES: Final = 65_536
"""Bytes are looked at when there are so many too many: whole blocks go."""

CREATE: Final = "create"
CONFIGURE: Final = "configure"
SHOW: Final = "show"
LIST: Final = "list"
TRIM: Final = "trim"
REMOVE: Final = "remove"


class TopicAdmin(Machine):
    """Does it for one shard."""

    def __init__(
        self, context: ShardContext, finder: Finder, coordinator: Coordinator, reading: Reading, grouping: Grouping
    ) -> None:
        self._context = context
        self._ledger = context.ledger
        self._topics = context.ledger.state.topics
        self._coordinator = coordinator
        self.finder = finder
        self._reading = reading
        self._grouping = grouping
        self._looks_at = 0.0
        self._commands: dict[str | None, Callable[[Call], None]] = {
            CREATE: self._create,
            CONFIGURE: self._configure,
            SHOW: self._show,
            LIST: self._list,
            TRIM: self._trim,
            REMOVE: self._remove,
        }

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.TOPIC: self.topic}

    def topic(self, call: Call) -> None:
        """Do what a command says."""
        command = self._commands.get(call.request.command)
        if command is None:
            wanted = ", ".join(str(one) for one in self._commands)
            self._ledger.refuse_field(call, "command", f"{call.request.command!r} is none of {wanted}")
        else:
            command(call)

    # -- settings ----------------------------------------------------------------------------------------------

    def _create(self, call: Call) -> None:
        request, ledger = call.request, self._ledger
        name = request.topic
        if name is None:
            return ledger.refuse_field(call, "topic", "is missing")
        if ledger.level < STREAMS_LEVEL:
            reason = f"topics need feature level {STREAMS_LEVEL}; the cluster has {ledger.level}: qctl cluster upgrade"
            return ledger.refuse(call, ErrorWord.NOT_SUPPORTED, reason)
        if name in ledger.state.queues:
            return ledger.refuse(call, ErrorWord.IS_A_QUEUE, f"{name!r} is a queue")
        user = next((queue for queue in ledger.state.queues.values() if queue.dead_letter == name), None)
        if user is not None:
            reason = f"{name!r} is where the dead letters of {user.name!r} go"
            return ledger.refuse(call, ErrorWord.IS_A_QUEUE, reason)
        known = self._topics.by_name.get(name)
        asked = Topic(
            name,
            self._topics.next_number if known is None else known.number,
            request.partitions or PARTITIONS,
            _or(request.keep_s, KEEP_S),
            _or(request.keep_bytes, KEEP_BYTES),
            bool(request.keep_for_groups),
            _or(request.keep_for_groups_bytes, GROUPS_BYTES),
            ledger.now if known is None else known.settings.made_at,
        )
        if known is not None and known.settings != asked:
            reason = f"there is a topic {name!r} already, with other settings: configure changes them"
            return ledger.refuse(call, ErrorWord.TOPIC_EXISTS, reason)
        if known is None and self._topics.partition_count + asked.partitions > PARTITIONS_MAX:
            return self._too_many(call)
        if known is None:
            if _has_odd_braces(name):
                return ledger.refuse_field(call, "topic", "has braces that are no tag: one {tag} may stand in it")
            ledger.append(asked)
        return self._answer(call, self._topics.by_name[name])

    def _too_many(self, call: Call) -> None:
        reason = f"a shard has {PARTITIONS_MAX} partitions at most, and {self._topics.partition_count} are there"
        self._ledger.refuse(call, ErrorWord.LIMIT, reason)

    def _configure(self, call: Call) -> None:
        request, ledger = call.request, self._ledger
        topic = topic_of(call, ledger)
        if topic is None:
            return None
        held = topic.settings
        partitions = _or(request.partitions, held.partitions)
        if partitions < held.partitions:
            fault = f"is {partitions}, and there are {held.partitions}: partitions are added, and never removed"
            return ledger.refuse_field(call, "partitions", fault)
        if self._topics.partition_count + partitions - held.partitions > PARTITIONS_MAX:
            return self._too_many(call)
        asked = Topic(
            topic.name,
            topic.number,
            partitions,
            _or(request.keep_s, held.keep_s),
            _or(request.keep_bytes, held.keep_bytes),
            _or(request.keep_for_groups, held.keep_for_groups),
            _or(request.keep_for_groups_bytes, held.keep_for_groups_bytes),
            held.made_at,
        )
        if asked != held:
            ledger.append(asked)
            self._grouping.partitions_changed(topic)
        self._looks_at = 0.0
        return self._answer(call, topic)

    def _answer(self, call: Call, topic: TopicState, retired: int | None = None) -> None:
        """Answer with a topic as it is now."""
        settings = topic.settings
        reply = done(
            call.request,
            TopicReply,
            queue=None,
            partitions=[partition_row(partition) for partition in topic.partitions],
            keep_s=settings.keep_s,
            keep_bytes=settings.keep_bytes,
            keep_for_groups=settings.keep_for_groups,
            keep_for_groups_bytes=settings.keep_for_groups_bytes,
            made_at=settings.made_at,
            retired=retired,
        )
        if call.request.command == SHOW:
            reply.groups = [
                group_row(topic, name, group, self._coordinator.owners(topic, name), self._ledger.now)
                for name, group in sorted(topic.groups.items())
            ]
        self._ledger.answer_when_committed(call, reply)

    def _show(self, call: Call) -> None:
        topic = topic_of(call, self._ledger)
        if topic is not None:
            self._answer(call, topic)

    def _list(self, call: Call) -> None:
        """List the topics that the client may look at, in the order of their names."""
        request, rights = call.request, call.principal.rights
        matches = Pattern(request.pattern).matches
        names = sorted(name for name in self._topics.by_name if matches(name) and rights.may(Right.LOOK, name))
        after = request.after
        behind = [name for name in names if not isinstance(after, str) or name > after]
        chosen = behind[: rows_in_reply(call)]
        reply = done(
            request,
            TopicListReply,
            queue=None,
            topics=[topic_row(self._topics.by_name[name]) for name in chosen],
            topic_count=len(names),
            next=chosen[-1] if len(chosen) < len(behind) else None,
        )
        self._ledger.answer_when_committed(call, reply)

    def _remove(self, call: Call) -> None:
        ledger = self._ledger
        topic = topic_of(call, ledger)
        if topic is None:
            return
        messages = sum([one.settled - one.first for one in topic.partitions])
        ledger.append(DropTopic(topic.name, topic.number))
        self._grouping.topic_gone(topic)
        self._reading.topic_gone(topic)
        ledger.answer_when_committed(call, done(call.request, TopicReply, queue=None, retired=messages))

    # -- trimming ----------------------------------------------------------------------------------------------

    def _trim(self, call: Call) -> None:
        """Let go of the messages before an offset of a partition, or before a time, of one partition or of all."""
        request, ledger = call.request, self._ledger
        topic = topic_of(call, ledger)
        if topic is None:
            return None
        if request.partition is not None and (fault := partition_fault(topic, request.partition)) is not None:
            return ledger.refuse(call, ErrorWord.WRONG_PARTITION, fault)
        if (request.offset is None) == (request.time is None):
            return ledger.refuse_field(call, "offset", "or time, one of them, says what is trimmed: all before that")
        if isinstance(request.offset, int) and request.partition is None and len(topic.partitions) > 1:
            return ledger.refuse_field(call, "partition", "is missing: an offset is one of a partition")
        chosen = topic.partitions if request.partition is None else [topic.partitions[request.partition]]
        if self.finder.is_full:
            return ledger.refuse(call, ErrorWord.OVERLOADED, "too much is being read")
        return _Trimming(self, call, topic, chosen).begin()

    def trimmed(self, call: Call, topic: TopicState, places: dict[int, Place]) -> None:
        """Note where partitions begin now, for a call."""
        if self._topics.numbers.get(topic.number) is not topic:
            return self._ledger.refuse(call, ErrorWord.NO_SUCH_TOPIC, no_such_topic(topic.name))
        retired = self._retire(topic, places)
        return self._answer(call, topic, retired)

    def _retire(self, topic: TopicState, places: dict[int, Place]) -> int:
        """Make the record that partitions begin at those places; returns how many messages go."""
        later = {
            index: place
            for index, place in sorted(places.items())
            if topic.partitions[index].first < place.offset <= topic.partitions[index].settled
        }
        retired = sum([place.offset - topic.partitions[index].first for index, place in later.items()])
        if later:
            record = Retire(topic.name, topic.number, [], [], [], [])
            for index, place in later.items():
                record.partitions.append(index)
                record.offsets.append(place.offset)
                record.positions.append(place.position)
                record.ats.append(place.at)
            self._ledger.append(record)
        return retired

    # -- retention ---------------------------------------------------------------------------------------------

    @property
    def next_event_at(self) -> float:
        """When it is looked at again what is kept for too long."""
        return self._looks_at if self._topics.by_name else NEVER

    def pass_time(self) -> None:
        """Let go of what topics do not keep any more."""
        if self._looks_at > self._ledger.now or not self._topics.by_name:
            return
        self._looks_at = self._ledger.now + LOOK_S
        for topic in self._topics.by_name.values():
            self._look(topic)

    def _look(self, topic: TopicState) -> None:
        """Look what of a topic is to go, and have it go when that is found."""
        settings, now = topic.settings, self._ledger.now
        found: dict[int, Place] = {}
        waits = [0]
        asked: list[tuple[Partition, Wanted]] = []
        for partition in topic.partitions:
            if partition.first >= partition.settled:
                continue
            size = partition.settled_position - partition.first_position
            if settings.keep_bytes and size > settings.keep_bytes + BLOCK_SLACK_BYTES:
                position = partition.settled_position - settings.keep_bytes
                asked.append((partition, Wanted(partition.number, partition.index, position=position)))
            elif settings.keep_s and partition.first_at < now - settings.keep_s - LOOK_S:
                asked.append((partition, Wanted(partition.number, partition.index, at=now - settings.keep_s)))
        waits[0] = len(asked)

        def note(partition: Partition, place: Place) -> None:
            waits[0] -= 1
            found[partition.index] = self._held_for_groups(topic, partition, place)
            if not waits[0] and self._topics.numbers.get(topic.number) is topic:
                self._retire(topic, found)

        for partition, wanted in asked:
            if self.finder.is_full:
                return  # with the next look
            self.finder.find(None, partition, wanted, partial(note, partition))

    def _held_for_groups(self, topic: TopicState, partition: Partition, place: Place) -> Place:
        """Give where a partition is to begin, where messages that groups have not read are kept for them."""
        settings = topic.settings
        if not settings.keep_for_groups or not topic.groups:
            return place
        slowest = min([group.offsets.get(partition.index, 0) for group in topic.groups.values()])
        size = partition.settled_position - partition.first_position
        if slowest >= place.offset or size > (settings.keep_for_groups_bytes or size):
            return place
        return Place(partition.first, partition.first_position, partition.first_at)


class _Trimming:
    """A trim that is asked for, of partitions that are looked at one after the other."""

    def __init__(self, admin: TopicAdmin, call: Call, topic: TopicState, partitions: list[Partition]) -> None:
        self._admin = admin
        self._call = call
        self._topic = topic
        self._left = partitions[:]
        self._places: dict[int, Place] = {}

    def begin(self) -> None:
        """Look at the first."""
        self._next()

    def _next(self) -> None:
        """Look at the next one, or have all of them trimmed."""
        while self._left:
            partition = self._left.pop()
            request = self._call.request
            if isinstance(request.offset, int):
                wanted = Wanted(partition.number, partition.index, offset=request.offset)
                if request.offset <= partition.first:
                    continue
            elif request.offset is not None:
                at = partition.settled if request.offset == "latest" else partition.first
                wanted = Wanted(partition.number, partition.index, offset=at)
            else:
                wanted = Wanted(partition.number, partition.index, at=request.time)
            self._admin.finder.find(self._call, partition, wanted, partial(self._note, partition))
            return
        self._admin.trimmed(self._call, self._topic, self._places)

    def _note(self, partition: Partition, place: Place) -> None:
        self._places[partition.index] = place
        self._next()


def _or(asked: ValueT | None, held: ValueT) -> ValueT:
    return held if asked is None else asked


def _has_odd_braces(name: str) -> bool:
    """Whether a name has braces otherwise than as one tag: a topic's retry and dead letter queues are named by it."""
    if "{" not in name and "}" not in name:
        return False
    begin, end = name.find("{"), name.find("}")
    return name.count("{") != 1 or name.count("}") != 1 or not 0 <= begin < end - 1
