"""The groups of a shard whose members its leader knows. A part of the machines about groups.

Who they are stands in no record; whether a group has some, and for how long those may be silent, does: so the next
leader knows for whom to wait.
"""

from typing import Final

from actors.messages.call import Call
from actors.shard.ledger import Ledger
from actors.streams.groups import MEMBERS_MAX, GroupMembers
from quorate.protocol import ErrorWord
from storage.queue_state import NEVER
from storage.records import Offsets
from storage.tails import TopicState

GROUPS_MAX: Final = 1000
"""Of one topic."""

PLACES_MAX: Final = 100_000
"""Of all groups of a shard, each of which may be somewhere in each partition of its topic."""

MEMBERS_OF_SHARD_MAX: Final = 10_000

At = tuple[int, str]
"""A topic's number, and a group's name."""


class Coordinator:
    """Of one shard. `known`: the groups that have members, or may have some that an earlier leader knew.

    `begun`: since when this node serves (Unix seconds); 0: not yet. `due_at`: before that no member was silent for too
    long, and nobody was waited for in vain.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.known: dict[At, GroupMembers] = {}
        self.begun = 0.0
        self.due_at = NEVER

    def members(self, topic: TopicState, group: str) -> GroupMembers:
        """Find the members of a group. Those whom an earlier leader knew have a session's time to return."""
        at = (topic.number, group)
        members = self.known.get(at)
        if members is None:
            known = topic.groups.get(group)
            session_s = 0.0 if known is None else known.session_s
            begun = self.begun or self._ledger.now
            embargo_until = begun + session_s if session_s else 0.0
            members = self.known[at] = GroupMembers(len(topic.partitions), embargo_until)
            self.due_at = min(self.due_at, embargo_until) if session_s else self.due_at
        return members

    def note_due(self) -> None:
        """Look when the next member was silent for too long, or was waited for in vain."""
        self.due_at = NEVER
        for members in self.known.values():
            self.due_at = min(self.due_at, members.next_at, members.embargo_until or NEVER)

    def why_no_group(self, topic: TopicState, group: str) -> str | None:
        """Why a group can't be one of a topic; None: it can, or it is."""
        if group in topic.groups:
            return None
        if len(topic.groups) >= GROUPS_MAX:
            return f"the topic has {GROUPS_MAX} groups already"
        return self.why_no_places(len(topic.partitions))

    def why_no_places(self, more: int) -> str | None:
        """Why groups can't have so many places more, each in a partition; None: they can."""
        places = more + self._ledger.state.topics.places
        if places > PLACES_MAX:
            return f"the groups of all topics of the shard would have {places} places, and {PLACES_MAX} are allowed"
        return None

    def why_no_member(self, topic: TopicState, group: str, member: str) -> str | None:
        """Why somebody can't be a member of a group; None: it can, or is. That makes nothing: anybody may ask."""
        members = self.known.get((topic.number, group))
        if members is not None and member in members.members:
            return None
        if members is not None and len(members.members) >= MEMBERS_MAX:
            return f"the group has {MEMBERS_MAX} members already"
        if sum([len(one.members) for one in self.known.values()]) >= MEMBERS_OF_SHARD_MAX:
            return f"the groups of the shard have {MEMBERS_OF_SHARD_MAX} members already"
        return None

    def note_session(self, topic: TopicState, group: str, members: GroupMembers) -> None:
        """Have it in the log whether a group has members, and for how long those may be silent."""
        known, session_s = topic.groups.get(group), members.session_s
        noted = 0.0 if known is None else known.session_s
        if (
            known is None
            or session_s > noted
            or (not session_s and noted and members.embargo_until <= self._ledger.now)
        ):
            self._ledger.append(Offsets(topic.name, topic.number, group, [], [], self._ledger.now, session_s))

    def owners(self, topic: TopicState, group: str) -> dict[int, str]:
        """Say which member of a group has which partition."""
        members = self.known.get((topic.number, group))
        return {} if members is None else members.owners

    def is_free(self, call: Call, topic: TopicState, group: str) -> bool:
        """Whether nobody reads, or that does not matter; refuses the call if not."""
        members = self.known.get((topic.number, group))
        if call.request.force or members is None or not members.members:
            return True
        names = ", ".join(repr(name) for name in [*members.members][:3])
        reason = f"{len(members.members)} members read in the group {group!r} ({names}): stop them, or use force"
        self._ledger.refuse(call, ErrorWord.GROUP_IN_USE, reason)
        return False
