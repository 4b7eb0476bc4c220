"""One membership for all shards: shard 0's log holds it; and which node should lead which shard. Machines.

Each shard's log has members of its own, since its majorities are its own: a node may have caught up in one shard and
not in another. What the operator changes is shard 0's; the leader of another shard hears what that log has settled
(`RootMembers`) and changes its own members towards it, one node at a time, as any change is. A node that shard 0 does
not have any more is removed; one that it has, and this shard has not, is wanted, and joins as nodes do.

A node that was removed and added again has another disk in shard 0's log. What this shard has of it belongs to the
disk before, so it is removed here, too, and added again: `Member.root_disk_id` tells the two apart.

Shard 0 of a cluster is founded by the first of the nodes that list each other, once it has seen all of them, or by
the one that is told to. The shards beyond are founded by the same node: it is the one whose data folder has the
cluster's number (`founding_id`), and no other folder ever has that.

`Balancing` spreads the leaders over the nodes. Each shard has a node that should lead it (`preferred`). Another that
leads gives its place to it, by a hand-over, when that node has been a good successor for `after_s` on end: so a node
that comes back gets its shards back, and one that comes and goes does not.
"""

from collections.abc import Callable

from msgspec.structs import replace

from actors.cluster.membership import CAUGHT_UP_RECORDS, Membership
from actors.cluster.progress import Progress
from actors.cluster.replicator_settings import ReplicatorSettings
from net.peers.messages import Hello
from storage.records import Member, Members
from storage.vote_file import Identity


def shifted(member: Member, shard: int) -> Member:
    """Give a member of shard 0 as another shard wants it: at the port of that shard's worker."""
    return Member(member.node_id, member.host, member.port + shard, root_disk_id=member.disk_id)


def to_be_removed(current: Members, root: Members) -> int | None:
    """Find the next node that this shard's members are to do without."""
    for one in (*current.members, *current.wanted):
        theirs = root.find(one.node_id)
        if theirs is None or (one.root_disk_id and one.root_disk_id != theirs.disk_id):
            return one.node_id
    return None


def next_members(current: Members, root: Members, shard: int) -> Members | None:
    """Give the members with one thing more that shard 0 says of them; None if there is nothing."""
    for theirs in root.members:
        own = current.find(theirs.node_id)
        if own is None:
            want = shifted(theirs, shard)
            others = [one for one in current.wanted if one.node_id != theirs.node_id]
            if want not in current.wanted:
                removed = [one for one in current.removed if one.node_id != theirs.node_id]
                return replace(current, wanted=[*others, want], removed=removed)
        elif not own.root_disk_id and theirs.disk_id:
            known = replace(own, root_disk_id=theirs.disk_id)
            members = [known if one.node_id == own.node_id else one for one in current.members]
            return replace(current, members=members)
    return None


def founding_members(own: Member, root: Members, shard: int) -> Members | None:
    """Give the members of a shard that `own` founds in the cluster whose shard 0 has `root`; None if it is not in
    that."""
    mine = root.find(own.node_id)
    if mine is None:
        return None
    founder = Member(own.node_id, own.host, own.port, own.disk_id, is_voter=True, root_disk_id=mine.disk_id)
    others = [shifted(one, shard) for one in root.members if one.node_id != own.node_id]
    return Members("", root.cluster_id, [founder], others, level=root.level)


def preferred(members: Members, shard: int) -> int:
    """Choose the node that should lead a shard: each is that of as many shards as any other, or of one more."""
    voters = members.voters
    return voters[shard % len(voters)] if voters else 0


class Founder:
    """For one shard on one node; `new_cluster_id` gives the number of a cluster that this node founds."""

    def __init__(
        self,
        membership: Membership,
        settings: ReplicatorSettings,
        hellos: dict[int, Hello],
        new_cluster_id: Callable[[], int],
    ) -> None:
        self._membership = membership
        self._settings = settings
        self._hellos = hellos
        self._new_cluster_id = new_cluster_id

    def is_due(self, identity: Identity, root: Members | None, log_end: int, leader: int | None) -> bool:
        """Whether this node is to found it now. `root`: the members of shard 0, as far as a shard beyond knows them."""
        settings, membership = self._settings, self._membership
        if not settings.shard:
            return membership.may_found(identity, settings.listed, self._hellos, log_end, leader)
        if root is None or root.cluster_id != settings.founding_id or leader is not None:
            return False
        return membership.may_found_shard(identity, root, self._hellos, log_end)

    def members(self, root: Members | None) -> Members:
        """Give the first members."""
        own, settings = self._membership.own, self._settings
        following = None if root is None else founding_members(own, root, settings.shard)
        if following is not None:
            return following
        return self._membership.found_cluster(self._new_cluster_id(), list(settings.listed), settings.level)


class Balancing:
    """For one shard of `shards` on one node. `after_s` 0: never by itself. Times are monotonic seconds.

    A node that was not heard for `heard_s` is no successor.
    """

    def __init__(self, shard: int, shards: int, after_s: float, heard_s: float = 1.0) -> None:
        self.heard_s = heard_s
        self.shard = shard
        self.shards = shards
        self.is_needed = shards > 1
        self._after_s = after_s
        self._good_since: float | None = None

    def wanted(self, members: Members, node_id: int) -> int | None:
        """Who should lead instead of node `node_id`; None if it is the one."""
        target = preferred(members, self.shard) if self.is_needed else 0
        return target if target not in (0, node_id) else None

    def fault(self, now: float, target: int, its: Progress | None, log_end: int) -> str | None:
        """Why that node, which is so far in a log that ends at record `log_end`, can't take over just now."""
        if its is None or now - its.heard_at >= self.heard_s:
            return f"node {target} was not heard for {self.heard_s:g} s"
        if its.is_full:
            return f"the disk of node {target} is full"
        if its.match + CAUGHT_UP_RECORDS < log_end:
            return f"node {target} has not caught up"
        return None

    def target(
        self, now: float, members: Members, node_id: int, progress: dict[int, Progress], log_end: int
    ) -> int | None:
        """Whom the place of node `node_id` is to go to now."""
        if not self.is_needed or not self._after_s:
            return None
        wanted = self.wanted(members, node_id)
        if wanted is None or self.fault(now, wanted, progress.get(wanted), log_end) is not None:
            self._good_since = None
            return None
        if self._good_since is None:
            self._good_since = now
        if now - self._good_since < self._after_s:
            return None
        self._good_since = now
        return wanted

    def deposed(self) -> None:
        """Forget the balance: this node does not lead any more."""
        self._good_since = None
