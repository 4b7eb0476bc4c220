"""Group: the members of groups, and what is done to groups. A machine over `GroupMembers`.

A heartbeat may wait: it is answered when the member is to have other partitions than it said it has.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from actors.messages.call import Call, may_consume
from actors.queues.consuming import LeftWaiters, why_not_wait
from actors.queues.delivery import Delivery
from actors.queues.wait_queues import Waiter, WaitQueues
from actors.queues.waiting import Waiting
from actors.shard.machine import ShardContext, WaitingCalls
from actors.streams.committing import Committing
from actors.streams.coordinator import Coordinator
from actors.streams.finding import topic_of
from actors.streams.groups import (
    SESSION_S,
    SESSION_S_MAX,
    SESSION_S_MIN,
    GroupMembers,
    Member,
)
from actors.streams.views import group_row, with_places
from quorate.protocol import Action, ErrorWord, done
from quorate.stream_replies import GroupReply
from storage.queue_state import NEVER
from storage.records import DropGroup
from storage.tails import Group, TopicState

IDLE_S: Final = 30 * 86_400.0
"""A group without members that has said nothing for so long is removed."""

LOOK_S: Final = 60.0
TICK_S: Final = 1.0
STILL_S: Final = 2.0
"""Where groups have members time passes every tick; after so long the node has stood still, and heard nobody."""

HEARTBEAT: Final = "heartbeat"
LEAVE: Final = "leave"
SHOW: Final = "show"
LIST: Final = "list"
RESET: Final = "reset"
REMOVE: Final = "remove"


class Grouping(Waiting):
    """Of one shard."""

    def __init__(
        self, context: ShardContext, delivery: Delivery, coordinator: Coordinator, committing: Committing
    ) -> None:
        super().__init__(context.ledger)
        self._context = context
        self._topics = context.ledger.state.topics
        self._delivery = delivery
        self._coordinator = coordinator
        self._passed_at = 0.0
        committing.moved = self._changed
        self._looks_at = 0.0
        self._commands: dict[str | None, Callable[[Call, TopicState, str], None]] = {
            HEARTBEAT: self._heartbeat,
            LEAVE: self._leave,
            SHOW: self._show,
            LIST: self._list,
            RESET: committing.reset,
            REMOVE: self._remove,
        }

    @property
    def lines(self) -> WaitQueues:
        """Members that wait for other partitions."""
        return self._delivery.member_lines

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.GROUP: self.group}

    def group(self, call: Call) -> None:
        """Do what a command says."""
        request, ledger = call.request, self._ledger
        command = self._commands.get(request.command)
        if command is None:
            wanted = ", ".join(str(one) for one in self._commands)
            return ledger.refuse_field(call, "command", f"{request.command!r} is none of {wanted}")
        topic = topic_of(call, ledger)
        if topic is None:
            return None
        if request.group is None and request.command != LIST:
            return ledger.refuse_field(call, "group", "is missing")
        return command(call, topic, request.group or "")

    # -- members -----------------------------------------------------------------------------------------------

    def _heartbeat(self, call: Call, topic: TopicState, group: str) -> None:
        request, ledger = call.request, self._ledger
        session_s = SESSION_S if request.session is None else request.session
        if request.member is None:
            return ledger.refuse_field(call, "member", "is missing: a name that no other member has")
        if not SESSION_S_MIN <= session_s <= SESSION_S_MAX:
            return ledger.refuse_field(
                call, "session", f"is {session_s:g} s, and {SESSION_S_MIN:g} to {SESSION_S_MAX:g} are allowed"
            )
        wait_s = request.wait or 0.0
        if wait_s > session_s / 2:
            return ledger.refuse_field(call, "wait", f"is {wait_s:g} s, and half a session is allowed")
        fault = self._coordinator.why_no_group(topic, group)
        fault = fault or self._coordinator.why_no_member(topic, group, request.member)
        if fault is not None:
            return ledger.refuse(call, ErrorWord.LIMIT, fault)
        members = self._coordinator.members(topic, group)
        is_new = request.member not in members.members
        owns = request.owns or []
        had = None if is_new else [*members.members[request.member].has]
        ledger.has_begun = True
        member = members.heartbeat(ledger.now, request.member, owns, session_s)
        self._coordinator.due_at = min(self._coordinator.due_at, member.until)
        self._coordinator.note_session(topic, group, members)
        if is_new or had != [*member.has]:
            self._changed(topic, group, members, but=member.name)
        before = self._take_waiter(topic, group, member.name)
        if before is not None:  # it has come back by another way
            self._answer_member(before.call, topic, group, members, member)
        is_news = {*members.told(member)} != {*owns} or is_new
        if not wait_s or is_news or call.client.has_left:
            return self._answer_member(call, topic, group, members, member)
        if (reason := why_not_wait(self._context.limits, self._delivery, call, 1)) is not None:
            return ledger.refuse(call, ErrorWord.OVERLOADED, reason)
        line = _line_of(topic, group, member.name)
        return self.lines.stand(Waiter(call, [line], None, ledger.now + wait_s))

    def _answer_member(self, call: Call, topic: TopicState, group: str, members: GroupMembers, member: Member) -> None:
        owns = members.told(member)
        known = topic.groups.get(group)
        offsets = {} if known is None else known.offsets
        positions = {index: offsets[index] for index in owns if index in offsets}
        reply = done(
            call.request,
            GroupReply,
            queue=None,
            group=group,
            member=member.name,
            generation=member.generation,
            owns=owns,
            positions=positions,
            session=member.session_s,
        )
        self._ledger.answer_when_committed(call, reply)

    def _changed(self, topic: TopicState, group: str, members: GroupMembers, but: str | None = None) -> None:
        """Tell the members of a group that wait what they are to have now, if that is something else."""
        for name, member in members.members.items():
            waiter = None if name == but else self.lines.first(_line_of(topic, group, name))
            if waiter is None:
                continue
            owns = waiter.call.request.owns or []
            members.give(self._ledger.now, member)
            if {*members.told(member)} == {*owns}:
                continue
            self.lines.leave(waiter)
            if may_consume(waiter.call):
                self._answer_member(waiter.call, topic, group, members, member)

    def _take_waiter(self, topic: TopicState, group: str, member: str) -> Waiter | None:
        """Take a member out of line, if it waits."""
        waiter = self.lines.first(_line_of(topic, group, member))
        if waiter is not None:
            self.lines.leave(waiter)
        return waiter

    def _tell_left(self, topic: TopicState, group: str, member: str) -> None:
        """Tell a member that waits that it has nothing any more."""
        waiter = self._take_waiter(topic, group, member)
        if waiter is not None:
            self._ledger.answer(waiter.call, done(waiter.call.request, GroupReply, queue=None, group=group, owns=[]))

    def _leave(self, call: Call, topic: TopicState, group: str) -> None:
        request, ledger = call.request, self._ledger
        members = self._coordinator.known.get((topic.number, group))
        if request.member is None:
            return ledger.refuse_field(call, "member", "is missing")
        if members is not None and request.member in members.members:
            ledger.has_begun = True
            self._tell_left(topic, group, request.member)
            members.leave(request.member)
            self._coordinator.note_session(topic, group, members)
            self._changed(topic, group, members)
        reply = done(request, GroupReply, queue=None, group=group, member=request.member, owns=[])
        return ledger.answer_when_committed(call, reply)

    def partitions_changed(self, topic: TopicState) -> None:
        """Note that a topic has more partitions than before."""
        for (number, group), members in self._coordinator.known.items():
            if number == topic.number:
                members.grow(len(topic.partitions))
                self._changed(topic, group, members)

    def topic_gone(self, topic: TopicState) -> None:
        """Note that a topic is gone: members that wait are told."""
        for number, group in [at for at in self._coordinator.known if at[0] == topic.number]:
            for name in self._coordinator.known[(number, group)].members:
                waiter = self._take_waiter(topic, group, name)
                if waiter is not None:
                    topic_of(waiter.call, self._ledger)  # refuses it
            del self._coordinator.known[(number, group)]

    # -- what is done to groups --------------------------------------------------------------------------------

    def _known_group(self, call: Call, topic: TopicState, group: str) -> Group | None:
        known = topic.groups.get(group)
        if known is None:
            reason = f"the topic {topic.name!r} has no group {group!r}"
            self._ledger.refuse(call, ErrorWord.NO_SUCH_GROUP, reason)
        return known

    def _show(self, call: Call, topic: TopicState, group: str) -> None:
        known = self._known_group(call, topic, group)
        if known is not None:
            owners, now = self._coordinator.owners(topic, group), self._ledger.now
            row = with_places(group_row(topic, group, known, owners, now), topic, known, owners, now)
            reply = done(call.request, GroupReply, queue=None, group=group, groups=[row])
            self._ledger.answer_when_committed(call, reply)

    def _list(self, call: Call, topic: TopicState, group: str) -> None:
        rows = [
            group_row(topic, name, known, self._coordinator.owners(topic, name), self._ledger.now)
            for name, known in sorted(topic.groups.items())
        ]
        self._ledger.answer_when_committed(call, done(call.request, GroupReply, queue=None, groups=rows))

    def _remove(self, call: Call, topic: TopicState, group: str) -> None:
        if self._known_group(call, topic, group) is None or not self._coordinator.is_free(call, topic, group):
            return
        members = self._coordinator.known.pop((topic.number, group), None)
        for name in () if members is None else members.members:
            self._tell_left(topic, group, name)
        self._ledger.append(DropGroup(topic.name, topic.number, group))
        self._ledger.answer_when_committed(call, done(call.request, GroupReply, queue=None, group=group))

    # -- time, and calls that end otherwise --------------------------------------------------------------------

    @property
    def next_event_at(self) -> float:
        """When a member was silent for too long, or has waited for long enough, or groups are looked at."""
        if not self._topics.by_name:
            return NEVER
        at = min(self._looks_at, self.lines.next_deadline)
        return min(at, self._passed_at + TICK_S) if self._coordinator.known else at

    def begin(self) -> None:
        """Note before anything is asked that this node has stood still, or its clock has leapt: nobody was silent."""
        known, now = self._coordinator.known, self._ledger.now
        if known and now - self._passed_at > STILL_S:
            for members in known.values():
                members.wait(now - self._passed_at)
        if not known or now - self._passed_at > STILL_S:
            self._passed_at = now

    def pass_time(self) -> None:
        """End members that were silent for too long, give out what they had, and end waits."""
        now = self._ledger.now
        if not self._coordinator.begun:
            self._begin(now)
        self._passed_at = now
        if self._coordinator.due_at <= now:
            self._end_silent(now)
        if self._looks_at <= now:
            self._looks_at = now + LOOK_S
            self._drop_idle(now)
        for waiter in self.lines.late(now):
            self.end_wait(waiter)

    def _end_silent(self, now: float) -> None:
        """End the members that were silent for too long, and give out what nobody came for."""
        for (number, group), members in [*self._coordinator.known.items()]:
            topic = self._topics.numbers.get(number)
            is_over = 0.0 < members.embargo_until <= now
            if topic is not None and (members.silent(now) or is_over):
                members.embargo_until = 0.0 if is_over else members.embargo_until
                self._coordinator.note_session(topic, group, members)
                self._changed(topic, group, members)
        self._coordinator.note_due()

    def _begin(self, now: float) -> None:
        """Begin to lead: the members of groups that had some have their time to return."""
        self._coordinator.begun = now
        for topic in self._topics.by_name.values():
            for name, group in topic.groups.items():
                if group.session_s:
                    self._coordinator.members(topic, name)

    def _drop_idle(self, now: float) -> None:
        """Remove groups that nobody uses."""
        for topic in self._topics.by_name.values():
            for name, group in [*topic.groups.items()]:
                if group.at < now - IDLE_S and not group.session_s:
                    self._ledger.append(DropGroup(topic.name, topic.number, name))
                    self._coordinator.known.pop((topic.number, name), None)

    def end_wait(self, waiter: Waiter) -> None:
        """Answer a member that waits no more. Its session stays as it is: that it waited does not say that it lives."""
        self.lines.leave(waiter)
        call, request = waiter.call, waiter.call.request
        topic, group = self._topics.by_name.get(request.topic or ""), request.group or ""
        members = None if topic is None else self._coordinator.known.get((topic.number, group))
        member = None if members is None else members.members.get(request.member or "")
        if topic is None or members is None or member is None:
            call.request = replace(request, wait=None)
            return self.group(call)
        return self._answer_member(call, topic, group, members, member)

    def take_waiting(self) -> WaitingCalls | None:
        """All of them."""
        lines = self.lines
        if not len(lines):
            return None
        self._delivery.member_lines = WaitQueues()
        return LeftWaiters(lines, self._ledger.now)


def _line_of(topic: TopicState, group: str, member: str) -> str:
    return f"{topic.number}/{group}/{member}"
