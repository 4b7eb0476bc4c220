"""What is done to topics as a whole: create, configure, show, list, trim, remove. And retention. A machine.

Retention: every `LOOK_S` the leader looks which partitions have messages that are older than their topic keeps them, or
beyond its bytes. From which offset on they are kept is found in memory, or in blocks by the BlockReader, for some
partitions at a time; records say it, one for all those of a topic that are found in a turn. Whole blocks are dropped.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from actors.messages.call import Call, rows_in_reply
from actors.messages.patterns import Pattern
from actors.shard.machine import Machine, ShardContext
from actors.streams.coordinator import Coordinator
from actors.streams.finding import no_such_topic, partition_fault, topic_of
from actors.streams.grouping import Grouping
from actors.streams.places import NOT_FOUND, Finder, Place
from actors.streams.reading import Reading
from actors.streams.views import group_row, partition_row, topic_row, with_lag
from quorate.actions import Right
from quorate.protocol import Action, ErrorWord, Request, done
from quorate.request_faults import group_fault
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

LOOKS_AT_ONCE: Final = 32
LOOKS_A_TURN: Final = 500
"""So many partitions' first messages are looked up at once, and so many partitions looked at in a turn."""

BLOCK_SLACK_BYTES: Final = 65_536
"""Bytes are looked at when there are so many too many: whole blocks go."""

FILTERS_CHARACTERS_MAX: Final = 16_384
"""Of all filters of a topic: they are in each record of its settings, and in its row."""

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
        self._to_look: deque[Partition] = deque()
        self._looking = 0
        self._too_old: dict[int, dict[int, Place]] = {}
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
        held = Topic(name, self._topics.next_number, PARTITIONS, KEEP_S, KEEP_BYTES, False, GROUPS_BYTES, ledger.now)
        asked = _asked(held if known is None else known.settings, request)
        if (wrong := _settings_fault(asked)) is not None:
            return ledger.refuse(call, ErrorWord.FIELD, wrong)
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
        more = partitions - held.partitions
        if more and (reason := self._coordinator.why_no_places(more * len(topic.groups))) is not None:
            return ledger.refuse(call, ErrorWord.LIMIT, reason)
        asked = _asked(held, request)
        if (wrong := _settings_fault(asked)) is not None:
            return ledger.refuse(call, ErrorWord.FIELD, wrong)
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
            accept_append=settings.accept_append,
            accept_read=settings.accept_read,
            closed=settings.closed,
            filters=settings.filters,
            retired=retired,
        )
        if call.request.command == SHOW:
            reply.groups = [
                group_row(topic, name, group, self._coordinator.owners(topic, name), self._ledger.now)
                for name, group in sorted(topic.groups.items())
            ]
            reply.metaq_groups = [
                with_lag(row, topic) for row in self._context.view.metaq_groups.get(topic.name, ())
            ] or None
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
        wanted: list[tuple[Partition, Wanted]] = []
        for one in chosen:
            offset, at = request.offset, None
            if offset is None:
                at = request.time
            elif not isinstance(offset, int):
                offset = one.settled if offset == "latest" else one.first
            if offset is None or offset > one.first:
                wanted.append((one, Wanted(one.number, one.index, offset=offset, at=at)))
        return self.finder.find_all(call, wanted, lambda places: self._trimmed(call, topic, places))

    def _trimmed(self, call: Call, topic: TopicState, places: dict[int, Place] | None) -> None:
        """Note where partitions begin now, for a call."""
        if places is None:
            return self._ledger.refuse(call, ErrorWord.NO_LEADER, NOT_FOUND)
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
        """When it is looked at again what is kept for too long; now, where a look goes on."""
        goes_on = self._to_look and self._looking < LOOKS_AT_ONCE and not self.finder.is_full
        if goes_on or self._too_old:
            return self._ledger.now
        return self._looks_at if self._topics.by_name else NEVER

    def pass_time(self) -> None:
        """Let go of what topics do not keep any more: of some partitions at a time, whose messages are looked up."""
        if self._looks_at <= self._ledger.now and self._topics.by_name:
            self._looks_at = self._ledger.now + LOOK_S
            self._looking = 0  # what was asked before may have been forgotten with a lead
            if not self._to_look:
                self._to_look.extend(one for topic in self._topics.by_name.values() for one in topic.partitions)
        for _ in range(LOOKS_A_TURN):
            if not self._to_look or self._looking >= LOOKS_AT_ONCE or self.finder.is_full:
                break
            self._look(self._to_look.popleft())
        too_old, self._too_old = self._too_old, {}
        for number, places in too_old.items():
            topic = self._topics.numbers.get(number)
            if topic is not None:
                self._retire(topic, places)

    def _look(self, partition: Partition) -> None:
        """Look what of a partition is to go, and have it go when that is found."""
        topic = self._topics.numbers.get(partition.number)
        if topic is None or partition.first >= partition.settled:
            return
        settings, now = topic.settings, self._ledger.now
        size = partition.settled_position - partition.first_position
        if settings.keep_bytes and size > settings.keep_bytes + BLOCK_SLACK_BYTES:
            position = partition.settled_position - settings.keep_bytes
            self._find(partition, self._or_for_groups, position=position)
        elif settings.keep_s and partition.first_at < now - settings.keep_s - LOOK_S:
            self._find(partition, self._or_for_groups, at=now - settings.keep_s)

    def _find(self, partition: Partition, then: Callable[[Partition, Place], None], **wanted: Any) -> None:
        """Find a place, and go on with it; with the next look, where it is not known now."""

        def note(place: Place | None) -> None:
            self._looking = max(self._looking - 1, 0)
            if place is not None:
                then(partition, place)

        self._looking += 1
        place = self.finder.find(None, partition, Wanted(partition.number, partition.index, **wanted), note)
        if place is not None:
            note(place)

    def _or_for_groups(self, partition: Partition, place: Place) -> None:
        """Have a partition begin there, or before: what a group has not read stays, up to so many bytes."""
        topic = self._topics.numbers.get(partition.number)
        if topic is None:
            return None
        settings, groups = topic.settings, topic.groups.values()
        slowest = min([group.offsets.get(partition.index, 0) for group in groups], default=place.offset)
        if not settings.keep_for_groups or slowest >= place.offset:
            return self._begins_at(partition, place)
        size = partition.settled_position - partition.first_position
        most = settings.keep_for_groups_bytes
        if most and size > most + BLOCK_SLACK_BYTES:
            position = partition.settled_position - most

            def later(partition: Partition, bound: Place) -> None:
                if slowest <= bound.offset:
                    self._begins_at(partition, bound if bound.offset < place.offset else place)
                else:
                    self._find(partition, self._begins_at, offset=slowest)

            return self._find(partition, later, position=position)
        if slowest > partition.first:
            self._find(partition, self._begins_at, offset=slowest)
        return None

    def _begins_at(self, partition: Partition, place: Place) -> None:
        self._too_old.setdefault(partition.number, {})[partition.index] = place


def _asked(held: Topic, request: Request) -> Topic:
    """Give a topic's settings with those that a request names in the place of what was held."""
    return Topic(
        held.queue,
        held.number,
        _or(request.partitions, held.partitions),
        _or(request.keep_s, held.keep_s),
        _or(request.keep_bytes, held.keep_bytes),
        _or(request.keep_for_groups, held.keep_for_groups),
        _or(request.keep_for_groups_bytes, held.keep_for_groups_bytes),
        held.made_at,
        _or(request.accept_append, held.accept_append),
        _or(request.accept_read, held.accept_read),
        held.closed if request.closed is None else sorted({*request.closed}),
        _or(request.filters, held.filters),
    )


def _settings_fault(asked: Topic) -> str | None:
    """Say what is wrong with settings beyond their types; None: nothing is."""
    if asked.closed and asked.closed[-1] >= asked.partitions:
        return f"closed: partition {asked.closed[-1]}: there are {asked.partitions}, from 0 on"
    for name in asked.filters:
        if (why := group_fault(name)) is not None:
            return f"filters: the group {name!r} {why}"
    size = sum([len(name) + sum(map(len, attributes)) for name, attributes in asked.filters.items()])
    if size > FILTERS_CHARACTERS_MAX:
        return f"filters: they have {size} characters, and {FILTERS_CHARACTERS_MAX} are allowed"
    return None


def _or(asked: ValueT | None, held: ValueT) -> ValueT:
    return held if asked is None else asked


def _has_odd_braces(name: str) -> bool:
    """Whether a name has braces otherwise than as one tag: a topic's retry and dead letter queues are named by it."""
    if "{" not in name and "}" not in name:
        return False
    begin, end = name.find("{"), name.find("}")
    return name.count("{") != 1 or name.count("}") != 1 or not 0 <= begin < end - 1
