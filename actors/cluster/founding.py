"""When a node founds a cluster, or its shard of the cluster that it has founded, and with which members. A machine.

Shard 0 of a cluster is founded by the first of the nodes that list each other, once it has seen all of them, or by
the one that is told to. The shards beyond are founded by the same node: it is the one whose data folder has the
cluster's number (`founding_id`), and no other folder ever has that.
"""

from collections.abc import Callable

from actors.cluster.following_root import founding_members
from actors.cluster.membership import Membership
from actors.cluster.replicator_settings import ReplicatorSettings
from net.peers.messages import Hello
from storage.records import Members
from storage.vote_file import Identity


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
