"""Groups: which member of a group reads which partitions of its topic. A machine without a clock of its own.

The leader of the topic's shard coordinates. A member says what it has (a heartbeat), and is told what it is to have;
there is no moment at which all of them must stop (as in KIP-848, Apache Kafka). A partition changes hands in two steps:
its owner is told, with its next heartbeat, to have it no more; when it says that it has not, or is silent for its
session, another gets it. So at most one member is told to have a partition, by the coordinator's word.

After a change of leader nothing is known of who has what. A member that returns keeps what it has. What nobody returns
with is given to others when the most patient of the group's members would have been heard, as the log has noted it.

| a member | then |
|---|---|
| says a heartbeat | joins, if it is none; gets the partitions that are its own, and that nobody else has |
| has less than it was told | the others may have the rest |
| says that it leaves, or nothing for its session | all that it had is free |
"""

from typing import Final

from actors.streams.assignment import assigned

SESSION_S: Final = 30.0
SESSION_S_MIN: Final = 6.0
SESSION_S_MAX: Final = 300.0
MEMBERS_MAX: Final = 1000
"""Of one group."""


class Member:
    """One of a group's. `wanted`: what it is to have; `has`: what it has, by the generation in which it got it.

    `revoked`: what it has by its own account, and is to let go of before it gets it again. It is a member until `until`
    (Unix seconds).
    """

    __slots__ = ("generation", "has", "name", "revoked", "session_s", "until", "wanted")

    def __init__(self, name: str, session_s: float) -> None:
        self.name = name
        self.session_s = session_s
        self.until = 0.0
        self.generation = 0
        self.wanted: list[int] = []
        self.has: dict[int, int] = {}
        self.revoked: set[int] = set()


class GroupMembers:
    """The members of one group, of a topic with so many partitions.

    `embargo_until`: before that (Unix seconds) nobody gets what another may have had under an earlier leader; 0: there
    was none.
    """

    def __init__(self, partitions: int, embargo_until: float = 0.0) -> None:
        self.members: dict[str, Member] = {}
        self.partitions = partitions
        self.embargo_until = embargo_until
        self.generation = 0
        self._owners: dict[int, Member] = {}

    def heartbeat(self, now: float, name: str, owns: list[int], session_s: float) -> Member:
        """Note what a member has, and give it what it is to have; it joins if it is none."""
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = Member(name, session_s)
            self._returned(member, owns)
            self._assign()
        else:
            still = {*owns}
            for index in [index for index in member.has if index not in still]:
                self._takes(member, index)
            member.revoked &= still
        member.session_s = session_s
        member.until = now + session_s
        self.give(now, member)
        return member

    def _takes(self, member: Member, index: int) -> None:
        del member.has[index]
        del self._owners[index]

    def _gets(self, member: Member, index: int, generation: int) -> None:
        member.has[index] = generation
        self._owners[index] = member

    def _returned(self, member: Member, owns: list[int]) -> None:
        """Let a member that another leader knew keep what it has, if nobody else has it."""
        for index in owns:
            if index < self.partitions and index not in self._owners:
                self._gets(member, index, 0)  # whatever generation the other leader gave it in

    def _assign(self) -> None:
        self.generation += 1
        had = self.owners
        held: dict[str, list[int]] = {name: [] for name in self.members}
        taken: set[int] = set()
        for index, name in had.items():
            held[name].append(index)
            taken.add(index)
        for name, member in self.members.items():
            free = [index for index in member.wanted if index not in taken]
            held[name] += free
            taken.update(free)
        for name, its in assigned(held, self.partitions).items():
            self.members[name].wanted = its

    def give(self, now: float, member: Member) -> None:
        """Give a member what is its own, and nobody else has."""
        for index in member.wanted:
            if now >= self.embargo_until and index not in self._owners and index not in member.revoked:
                self._gets(member, index, self.generation)
        member.generation = self.generation

    def told(self, member: Member) -> list[int]:
        """List what a member is to have from now on."""
        return [index for index in member.wanted if index in member.has]

    def revoke(self, index: int) -> None:
        """Have a partition let go of by who has it, and given anew: the group goes on elsewhere."""
        self.generation += 1
        member = self._owners.get(index)
        if member is not None:
            self._takes(member, index)
            member.revoked.add(index)

    def leave(self, name: str) -> bool:
        """Note that a member has left; returns whether it was one."""
        if name not in self.members:
            return False
        self._end(name)
        self._assign()
        return True

    def _end(self, name: str) -> None:
        member = self.members.pop(name)
        for index in [*member.has]:
            self._takes(member, index)

    def silent(self, now: float) -> list[str]:
        """End the members that were silent for too long; returns their names."""
        ended = [name for name, member in self.members.items() if member.until <= now]
        for name in ended:
            self._end(name)
        if ended:
            self._assign()
        return ended

    def grow(self, partitions: int) -> None:
        """Note that the topic has so many partitions now."""
        self.partitions = partitions
        self._assign()

    def wait(self, seconds: float) -> None:
        """Let every member be silent for so long more: this node was, and heard nobody."""
        for member in self.members.values():
            member.until += seconds
        if self.embargo_until:
            self.embargo_until += seconds

    @property
    def next_at(self) -> float:
        """When the first member ends, if it stays silent (Unix seconds)."""
        return min((member.until for member in self.members.values()), default=float("inf"))

    @property
    def session_s(self) -> float:
        """The longest silence that a member may keep (s); 0: there is none."""
        return max((member.session_s for member in self.members.values()), default=0.0)

    def owner_of(self, index: int) -> Member | None:
        """Find the member that has a partition."""
        return self._owners.get(index)

    @property
    def owners(self) -> dict[int, str]:
        """Say who has which partition."""
        return {index: member.name for index, member in self._owners.items()}

    def check(self) -> None:
        """Assert every invariant; for tests."""
        had = [index for member in self.members.values() for index in member.has]
        assert len(had) == len({*had}), "a partition has one owner"
        assert {*had} == {*self._owners}
        assert all(index in member.has for index, member in self._owners.items())
        wanted = [index for member in self.members.values() for index in member.wanted]
        if self.members:
            assert sorted(wanted) == list(range(self.partitions))
            counts = [len(member.wanted) for member in self.members.values()]
            assert max(counts) - min(counts) <= 1
