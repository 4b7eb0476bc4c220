"""Commit, and the reset of a group: where groups go on. A machine.

A member commits what it has; without a member a commit is taken for partitions that no member has. Where a group goes
on is never before where it was, but by a reset.
"""

from collections.abc import Callable

from actors.messages.call import Call
from actors.shard.machine import Machine, ShardContext
from actors.streams.coordinator import Coordinator
from actors.streams.finding import partition_fault, topic_of
from actors.streams.groups import GroupMembers, Member
from actors.streams.places import NOT_FOUND, Finder, Place
from quorate.protocol import Action, ErrorWord, done
from quorate.stream_replies import CommitReply, GroupReply
from storage.block_rows import Wanted
from storage.records import Offsets
from storage.tails import TopicState


class Committing(Machine):
    """Of one shard."""

    def __init__(self, context: ShardContext, coordinator: Coordinator, finder: Finder) -> None:
        self._ledger = context.ledger
        self._topics = context.ledger.state.topics
        self._coordinator = coordinator
        self._finder = finder
        self.moved: Callable[[TopicState, str, GroupMembers], None] = lambda topic, group, members: None

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.COMMIT: self.commit}

    def commit(self, call: Call) -> None:
        """Note where a group goes on; never before where it was."""
        request, ledger = call.request, self._ledger
        topic = topic_of(call, ledger)
        if topic is None:
            return None
        for field in ("group", "positions"):
            if getattr(request, field) is None:
                return ledger.refuse_field(call, field, "is missing")
        group, positions = request.group or "", request.positions or {}
        refused = self._commit_fault(call, topic, group, positions)
        if refused is not None:
            return ledger.refuse(call, *refused)
        known = topic.groups.get(group)
        held = {} if known is None else known.offsets
        later = {index: offset for index, offset in positions.items() if offset > held.get(index, -1)}
        if later or known is None:
            session_s = 0.0 if known is None else known.session_s
            record = Offsets(topic.name, topic.number, group, [*later], [*later.values()], ledger.now, session_s)
            ledger.append(record)
            held = topic.groups[group].offsets
        now = {index: held[index] for index in positions}
        return ledger.answer_when_committed(call, done(request, CommitReply, queue=None, group=group, positions=now))

    def _commit_fault(
        self, call: Call, topic: TopicState, group: str, positions: dict[int, int]
    ) -> tuple[str, str] | None:
        """Why these positions can't be noted; None if they can."""
        request = call.request
        reason = self._coordinator.why_no_group(topic, group)
        if reason is not None:
            return ErrorWord.LIMIT, reason
        members = self._coordinator.known.get((topic.number, group))
        member = None if members is None or request.member is None else members.members.get(request.member)
        if request.member is not None and member is None:
            return ErrorWord.UNKNOWN_MEMBER, f"the group {group!r} has no member {request.member!r}: say a heartbeat"
        for index, offset in positions.items():
            fault = partition_fault(topic, index)
            if fault is not None:
                return ErrorWord.WRONG_PARTITION, fault
            end = topic.partitions[index].next
            if offset > end:
                return ErrorWord.FIELD, f"positions: {offset} is beyond the end of partition {index}, which is {end}"
            owner = None if members is None else members.owner_of(index)
            if member is None and owner is not None:
                return ErrorWord.NOT_OWNER, f"partition {index} is read by {owner.name!r}: say which member commits"
            if member is not None and not _may_commit(member, index, request.generation):
                who = "nobody" if owner is None else repr(owner.name)
                return ErrorWord.NOT_OWNER, f"partition {index} is not {member.name!r}'s, but {who}'s"
        return None

    def reset(self, call: Call, topic: TopicState, group: str) -> None:
        """Have a group go on at an offset, a time, or positions; also before where it was."""
        request, ledger = call.request, self._ledger
        if not self._coordinator.is_free(call, topic, group):
            return None
        if (reason := self._coordinator.why_no_group(topic, group)) is not None:
            return ledger.refuse(call, ErrorWord.LIMIT, reason)
        if request.positions is not None:
            for index, offset in request.positions.items():
                fault = partition_fault(topic, index)
                if fault is not None:
                    return ledger.refuse(call, ErrorWord.WRONG_PARTITION, fault)
                end = topic.partitions[index].next
                if offset > end:
                    return ledger.refuse_field(call, "positions", f"{offset} is beyond the end, {end}")
            return self._go_to(call, topic, group, dict(request.positions))
        if (request.offset is None) == (request.time is None):
            return ledger.refuse_field(
                call, "offset", "or time, one of them, or positions, says where the group goes on"
            )
        if request.partition is not None and (fault := partition_fault(topic, request.partition)) is not None:
            return ledger.refuse(call, ErrorWord.WRONG_PARTITION, fault)
        chosen = topic.partitions if request.partition is None else [topic.partitions[request.partition]]
        if isinstance(request.offset, int):
            return self._go_to(call, topic, group, {one.index: min(request.offset, one.next) for one in chosen})
        if request.offset is not None:
            at_end = request.offset == "latest"
            return self._go_to(call, topic, group, {one.index: one.settled if at_end else one.first for one in chosen})
        wanted = [(one, Wanted(one.number, one.index, at=request.time)) for one in chosen]
        return self._finder.find_all(call, wanted, lambda places: self._reset_to(call, topic, group, places))

    def _reset_to(self, call: Call, topic: TopicState, group: str, places: dict[int, Place] | None) -> None:
        if places is None:
            self._ledger.refuse(call, ErrorWord.NO_LEADER, NOT_FOUND)
        elif self._coordinator.is_free(call, topic, group):
            self._go_to(call, topic, group, {index: place.offset for index, place in places.items()})

    def _go_to(self, call: Call, topic: TopicState, group: str, positions: dict[int, int]) -> None:
        ledger = self._ledger
        if self._topics.numbers.get(topic.number) is not topic:
            topic_of(call, ledger)
            return
        known = topic.groups.get(group)
        session_s = 0.0 if known is None else known.session_s
        ledger.append(
            Offsets(topic.name, topic.number, group, [*positions], [*positions.values()], ledger.now, session_s)
        )
        members = self._coordinator.known.get((topic.number, group))
        if members is not None:
            for index in positions:
                members.revoke(index)
            self.moved(topic, group, members)
        reply = done(call.request, GroupReply, queue=None, group=group, positions=topic.groups[group].offsets)
        ledger.answer_when_committed(call, reply)


def _may_commit(member: Member, index: int, generation: int | None) -> bool:
    """Whether a member has a partition, and had it in that generation."""
    since = member.has.get(index)
    return since is not None and (generation is None or since <= generation)
