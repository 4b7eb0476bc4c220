"""Tells the actors of this node, and through the Links the other nodes, what this node is in its cluster.

A part of the Replicator, which calls it when the members, or who leads, may have changed.
"""

import logging
from typing import Final

from actors.cluster.admin import ClusterAdmin
from actors.cluster.replication import Replication
from actors.cluster.replicator_settings import Recipients, ReplicatorSettings
from actors.messages.election import ElectionFacts
from actors.messages.peers import Introduce, LeaderChanged, MembersChanged, RootSettled
from storage.records import Members
from storage.vote_file import Identity

log = logging.getLogger("quorate.cluster")


CONTRADICTS: Final = (
    "this node's data contradict its leader's: {0}. It takes no further part in the cluster. Its data are of another "
    "history, as those of a restored backup are: if the others are right, remove node {1} from the cluster, empty its "
    "folder, and add it again"
)


class Announcer:
    """`identity`: who this node is, as it was told last. `settled`: the last members that it knew as committed."""

    def __init__(
        self, machine: Replication, admin: ClusterAdmin, settings: ReplicatorSettings, identity: Identity
    ) -> None:
        self.identity = identity
        self.settled: Members | None = None
        self._machine = machine
        self._membership = machine.log.membership
        self._admin = admin
        self._settings = settings
        self._actors: Recipients
        self._told_members: object = self
        self._told_leader: object = self
        self._told_contradiction: str | None = None
        self._told_leaving = False
        self._told_elector: ElectionFacts | None = None
        self._told_part = (False, False)
        settings.facts.node_id = identity.node_id
        settings.facts.belong_to(identity.cluster_id)

    def attach(self, neighbours: Recipients) -> None:
        """Whom it tells."""
        self._actors = neighbours

    @property
    def is_news(self) -> bool:
        """Whether the members, or who leads, are others than those that were told."""
        is_other = self._membership.current is not self._told_members or self._machine.role.leader != self._told_leader
        is_other = is_other or self._settings.facts.is_leaving != self._told_leaving or self._part != self._told_part
        return is_other or self._machine.log.contradiction is not self._told_contradiction

    @property
    def _part(self) -> tuple[bool, bool]:
        """Whether this node's log counts for nothing yet, and whether it is to found its cluster by itself."""
        return self._machine.log.abstains, self._admin.founds_alone

    @property
    def has_lost(self) -> bool:
        """Whether this node led when it was told last, and does not lead any more."""
        return self._told_leader == self._machine.log.node_id and not self._machine.is_leading

    def look_around(self) -> None:
        """Tell all who need to know that the members, or who leads, have changed."""
        current, leader = self._membership.current, self._machine.leader
        is_first = self._told_leader is self
        own_id = self._machine.log.node_id
        is_other_leader = leader != self._told_leader
        contradiction = self._machine.log.contradiction
        if contradiction is not self._told_contradiction:
            self._told_contradiction = contradiction
            log.critical("%s", CONTRADICTS.format(contradiction, own_id))
        if current is not self._told_members:
            self._told_members = current
            self._members_changed(is_first)
        elif self._settings.facts.is_leaving != self._told_leaving or (
            is_other_leader and own_id in (leader, self._told_leader)
        ):
            self._introduce()
        self._told_leader = leader
        self._settings.facts.leader = leader or 0
        self._settings.facts.node_id = own_id
        if is_other_leader and leader is not None:
            log.info("node %d leads, vote %d", leader, self._machine.vote_id)
        elif is_other_leader and not is_first:
            log.warning("no node leads, as far as this one knows, since vote %d", self._machine.vote_id)
        self._tell_elector()
        self.tell_leader()

    def _voters(self) -> frozenset[int]:
        """Who votes, by the log. A node whose log is another history's has no part in that."""
        own_id = self._membership.own.node_id
        if self._told_contradiction is not None:
            return frozenset()
        if self._membership.current is None and (self._settings.is_alone or self._admin.founds_alone):
            return frozenset({own_id})
        return self._membership.electors

    def _tell_elector(self) -> None:
        """Tell what elections depend on, if any of it is another than it was."""
        self._told_part = self._part
        is_whole, is_leaving = not self._machine.log.abstains, self._settings.facts.is_leaving
        facts = ElectionFacts(self._voters(), self.identity.cluster_id, is_whole, is_leaving)
        if facts != self._told_elector:
            self._told_elector = facts
            self._actors.elector.tell(facts)

    def _members_changed(self, is_first: bool) -> None:
        current = self._membership.current
        if current is not None and not is_first:
            named = [f"{m['node_id']} {m['role']}" for m in self._admin.members()]
            log.info("the members are now: %s", ", ".join(named))
        self._admin.founds_alone = self._admin.founds_alone and current is None
        voters = self._voters()
        self._settings.facts.voters = tuple(sorted(voters))
        nodes = 1 if current is None else len(current.members)
        since = None if current is None else self._membership.since
        self._actors.owner.tell(MembersChanged(nodes, max(len(voters), 1), self._membership.level, since))
        self._introduce()

    def tell_leader(self) -> None:
        """Who leads, and where its clients reach it: a node says so when it introduces itself."""
        leader, vote_id, shard = self._machine.leader, self._machine.vote_id, self._settings.shard
        if leader is None:
            changed = LeaderChanged(0, False, shard=shard)
        elif leader == self._machine.log.node_id:
            port = self._settings.direct_port or self._settings.client_port
            changed = LeaderChanged(leader, True, self._settings.client_host, port, vote_id, shard)
        else:
            hello = self._admin.hellos.get(leader)
            host, port = ("", 0) if hello is None else (hello.client_host, hello.direct_port or hello.client_port)
            changed = LeaderChanged(leader, False, host, port, vote_id, shard)
        for ref in (self._actors.router, self._actors.owner, self._actors.news):
            if ref is not None:
                ref.tell(changed)

    def see_whether_settled(self) -> None:
        """Belong to a cluster that is committed: its leader has proved it with the log, not by saying so."""
        current, committed = self._membership.current, self._machine.log.committed
        if current is not None and self._membership.since <= committed:
            self.settled = current
            if self._actors.news is not None and self._settings.shard == 0:
                self._actors.news.tell(RootSettled(committed, current))
            if current.cluster_id != self.identity.cluster_id:
                self._belong_to(current.cluster_id)

    def _belong_to(self, cluster_id: int) -> None:
        """Belong to that cluster from now on."""
        own = self.identity
        self.identity = Identity(cluster_id, own.node_id, own.disk_id)
        self._admin.joined()
        self._tell_elector()
        self._introduce()

    def _introduce(self) -> None:
        """Whom links are kept to: the members, those that are wanted, and before there are any, those listed.

        A member is dialled where the log says, and where the configuration does: nodes may have moved together.
        """
        current = self._membership.current
        nodes = self._settings.listed if current is None else (*current.members, *current.wanted)
        is_leading = self._machine.is_leading  # another's log may be one of long ago
        removed = tuple(current.removed) if current and is_leading else ()
        addresses = {member.node_id: (member.host, member.port) for member in self._settings.listed}
        own, level = self._membership.own, self._membership.level
        facts = self._settings.facts
        facts.belong_to(self.identity.cluster_id)
        self._told_leaving = facts.is_leaving
        known = (tuple(nodes), current is None, removed, level, addresses, facts.is_leaving)
        introduce = Introduce(own, self.identity, *known)
        for ref in (self._actors.links, self._actors.news):
            if ref is not None:
                ref.tell(introduce)
