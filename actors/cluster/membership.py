"""Membership: who belongs to the cluster, and how that changes. A machine.

Nodes are added and removed one at a time, each change a `Members` record in the log, which counts as soon as it is in
a log (Ongaro's dissertation, section 4.1): two majorities that differ by one node always share a node. A change is
begun only when the one before it is committed and the leader has committed an entry of its own vote_id.

Adding a node is three records: it is wanted; it was met, and is a member that does not vote, with its disk's number;
it has caught up, and votes. Each follows from what the leader sees, so a leader that takes over goes on with it.
A cluster is founded the same way: by one node, alone, that wants the others.

A node is known by its number and its disk's. One that comes back with another disk remembers no vote, and is
refused until it has been removed and added again. Whoever belongs to the cluster is let in even if this node's own
log does not know it (yet): the members may have changed since. But a vote, and what is stored, counts only if it comes
from the disk that the members name.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from actors.cluster.progress import Progress
from net.peers.messages import Hello
from storage import entry_codec
from storage.entry import StoredEntry
from storage.records import FIRST_LEVEL, Member, Members
from storage.vote_file import Identity


class MemberChange(NamedTuple):
    """A command for the membership: the members as they would be, or why not."""

    members: Members | None
    refusal: str | None = None


class Membership:
    """The members as the log says them; `own` is this node as it starts.

    `found` is what recovery found in the log that is committed, `later` what stood behind that, with the trans_ids: a
    cut may take those away.
    """

    def __init__(self, own: Member, found: Members | None, later: Sequence[tuple[int, Members]] = ()) -> None:
        self.own = own
        self._configs: list[tuple[int, Members | None]] = [(0, found), *later]
        self.current = self._configs[-1][1]
        self.is_founder = False
        self._voters_of: Members | None = None
        self._voters: list[int] = []

    @property
    def since(self) -> int:
        """The record that set them; 0 if it was there when the node started."""
        return self._configs[-1][0]

    @property
    def voters(self) -> list[int]:
        """The voters' node_ids. Who founds a cluster votes alone until the log says who its members are."""
        current = self.current
        if current is None:
            return [self.own.node_id] if self.is_founder else []
        if current is not self._voters_of:
            self._voters_of = current
            self._voters = current.voters
        return self._voters

    @property
    def electors(self) -> frozenset[int]:
        """Who votes, as far as this node is concerned.

        It is none of them under a disk that it does not have any more: one that was emptied and is brought up to date
        passes the members of long ago, and may find its old self there as the only one that votes.
        """
        voters = frozenset(self.voters)
        known = None if self.current is None else self.current.find(self.own.node_id)
        is_other_disk = known is not None and known.disk_id != self.own.disk_id
        return voters - {self.own.node_id} if is_other_disk else voters

    def is_from_its_disk(self, node_id: int, disk_id: int) -> bool:
        """Whether what that node says counts as the member's that it says it is."""
        known = None if self.current is None else self.current.find(node_id)
        return known is not None and known.disk_id == disk_id

    @property
    def level(self) -> int:
        """The feature level that every member understands; nothing newer may be said or written."""
        current = self.current
        return FIRST_LEVEL if current is None else current.level

    @property
    def is_settled(self) -> bool:
        """Whether who the members are was committed once."""
        return self._configs[0][1] is not None

    @property
    def settled_level(self) -> int:
        """The level of the last members that are committed: it never falls again."""
        settled = self._configs[0][1]
        return FIRST_LEVEL if settled is None else settled.level

    @property
    def others(self) -> list[int]:
        """All members but this node."""
        if self.current is None:
            return []
        return [member.node_id for member in self.current.members if member.node_id != self.own.node_id]

    def address(self, node_id: int) -> tuple[str, int]:
        """Where a member is."""
        member = None if self.current is None else self.current.find(node_id)
        return ("", 0) if member is None else (member.host, member.port)

    def appended(self, entry: StoredEntry) -> bool:
        """Note that an entry of one record was added to the log; whether it changed the members."""
        is_members = entry.is_members
        if is_members is None:
            is_members = entry_codec.begins_with(entry.data, Members)
        if not is_members:
            return False
        record = entry_codec.decode(entry.data, "an entry just taken").records[0]
        assert isinstance(record, Members)
        # Members count as soon as they are in the log, committed or not: when that is committed, a majority goes by
        # them, and the leader knows that the next change may begin (4.1).
        self._configs.append((entry.first_trans_id, record))
        self.current = record
        return True

    def cut(self, after: int) -> bool:
        """Note that the log was cut; whether that brought older members back."""
        count = len(self._configs)
        # A change that was cut off was never made: those before it count again (4.1).
        while self._configs[-1][0] > after:
            self._configs.pop()
        self.current = self._configs[-1][1]
        return len(self._configs) != count

    def replaced(self, members: Members | None) -> None:
        """Take the members over from a snapshot."""
        if members is not None:
            self._configs = [(0, members)]
            self.current = members

    def settled_row(self) -> bytes:
        """Encode the last members that are committed; empty if there are none."""
        settled = self._configs[0][1]
        return b"" if settled is None else msgspec.msgpack.encode(settled)

    def committed(self, trans_id: int) -> None:
        """Older members can't come back any more."""
        while len(self._configs) > 1 and self._configs[1][0] <= trans_id:
            del self._configs[0]

    # -- changing ----------------------------------------------------------------------------------------------

    def found_cluster(self, cluster_id: int, wanted: list[Member], level: int) -> Members:
        """Give the members of a new cluster: this node, which wants the others. All are to understand `level`."""
        own = Member(self.own.node_id, self.own.host, self.own.port, self.own.disk_id, is_voter=True)
        others = [one for one in wanted if one.node_id != own.node_id]
        return Members("", cluster_id, [own], others, level=level)

    def may_found(
        self, own: Identity, listed: tuple[Member, ...], hellos: dict[int, Hello], log_end: int, leader: int | None
    ) -> bool:
        """Whether this node founds a cluster with those it lists: none of them belongs to one, and it is the first.

        It has to see all of the others first, so that a node whose disk was replaced never does it.
        """
        if self.current is not None or own.cluster_id or not listed or leader is not None or log_end:
            return False
        if own.node_id > min(node.node_id for node in listed):
            return False
        said = [hellos.get(node.node_id) for node in listed]
        return all(hello is not None and not hello.cluster_id for hello in said)

    def may_found_shard(self, own: Identity, root: Members, hellos: dict[int, Hello], log_end: int) -> bool:
        """Whether this node, which founded the cluster, founds a shard beyond 0 in it, whose shard 0 has `root`.

        It has to see that none of the other members has the shard: a folder that was emptied must not begin it anew.
        Who is only wanted can't have it: members of shard 0 alone are taken into the others.
        """
        if self.current is not None or own.cluster_id or log_end or root.find(own.node_id) is None:
            return False
        if any(hello.cluster_id for hello in hellos.values()):
            return False
        return all(one.node_id in hellos for one in root.members if one.node_id != own.node_id)

    def add(self, node: Member, shards: int = 1) -> MemberChange:
        """Want a node, which has `shards` ports in a row."""
        current = self.current
        assert current is not None
        known = current.find(node.node_id)
        if known is not None:
            return MemberChange(None, f"node {node.node_id} is a member already, at {known.host}:{known.port}")
        everyone = [*current.members, *current.wanted]
        for one in everyone:
            if one.host == node.host and abs(one.port - node.port) < shards and one.node_id != node.node_id:
                its = "is" if shards == 1 else f"and the {shards - 1} ports behind it are, or are among, what is"
                return MemberChange(None, f"{node.host}:{node.port} {its} node {one.node_id}'s address")
        if node.port + shards - 1 > PORT_MAX:
            return MemberChange(None, f"there are no {shards} ports from {node.host}:{node.port} on")
        wanted = [one for one in current.wanted if one.node_id != node.node_id]
        removed = [one for one in current.removed if one.node_id != node.node_id]
        return MemberChange(replace(current, wanted=[*wanted, node], removed=removed))

    def remove(self, node_id: int) -> MemberChange:
        """Do without a node."""
        current = self.current
        assert current is not None
        members = [member for member in current.members if member.node_id != node_id]
        wanted = [member for member in current.wanted if member.node_id != node_id]
        gone = [member for member in current.members if member.node_id == node_id]
        removed = [*current.removed, *gone][-REMOVED_MAX:]
        if len(members) == len(current.members) and len(wanted) == len(current.wanted):
            return MemberChange(None, f"node {node_id} is no member")
        if not any(member.is_voter for member in members):
            return MemberChange(None, f"node {node_id} is the only one that votes")
        return MemberChange(replace(current, members=members, wanted=wanted, removed=removed))

    def upgrade(self, level: int, hellos: dict[int, Hello]) -> MemberChange:
        """Use what `level` brings, if every member understands it. `hellos` are of the open links."""
        current = self.current
        assert current is not None
        if level <= current.level:
            return MemberChange(None, f"the cluster is at feature level {current.level} already")
        for node_id in self.others:
            hello = hellos.get(node_id)
            if hello is None:
                return MemberChange(None, f"node {node_id} can't be reached, so what it understands is not known")
            if hello.level < level:
                return MemberChange(None, f"node {node_id} understands feature level {hello.level} at most")
        return MemberChange(replace(current, level=level))

    def next_step(self, hellos: dict[int, Hello], progress: dict[int, Progress], log_end: int) -> Members | None:
        """Choose what is to be done next: members that have moved, caught up, or were met. None: nothing can be done
        now.

        An address is put right before anybody new may vote: the new one has to find the way back.
        """
        current = self.current
        assert current is not None
        for member in current.members:
            moved = self._moved(member, hellos.get(member.node_id))
            if moved is not None:
                return self._with(current, moved)
        for member in current.members:
            its = progress.get(member.node_id)
            if member.is_voter or its is None or its.sent is None or its.echo < 0:
                continue  # what it echoes has come over the link that it dialled: it knows the way back
            # It votes when it has caught up: before that its vote would hold up commits (4.2.1).
            if its.match + CAUGHT_UP_RECORDS >= log_end:
                return self._with(current, replace(member, is_voter=True))
        for wanted in current.wanted:
            hello = hellos.get(wanted.node_id)
            if hello is not None and hello.cluster_id in (0, current.cluster_id) and hello.level >= current.level:
                joined = replace(wanted, disk_id=hello.disk_id)
                return self._with(current, joined)
        return None

    def _moved(self, member: Member, hello: Hello | None) -> Member | None:
        """Give the member the address that it says it has, if that is another one than the log says."""
        if member.node_id == self.own.node_id:
            host, port, disk_id = self.own.host, self.own.port, self.own.disk_id
        elif hello is not None:
            host, port, disk_id = hello.host, hello.port, hello.disk_id
        else:
            return None
        if disk_id != member.disk_id or not port or (host, port) == (member.host, member.port):
            return None
        return replace(member, host=host, port=port)

    @staticmethod
    def _with(current: Members, node: Member) -> Members:
        members = [member for member in current.members if member.node_id != node.node_id]
        wanted = [member for member in current.wanted if member.node_id != node.node_id]
        members = sorted([*members, node], key=lambda member: member.node_id)
        removed = [one for one in current.removed if (one.node_id, one.disk_id) != (node.node_id, node.disk_id)]
        return replace(current, members=members, wanted=wanted, removed=removed)


PORT_MAX: Final = 65535
REMOVED_MAX: Final = 50
"""How many nodes that were removed are remembered, so that they are told so when they come."""

CAUGHT_UP_RECORDS: Final = 1000
"""A node that lacks no more than this may vote: it has them before it is missed."""
