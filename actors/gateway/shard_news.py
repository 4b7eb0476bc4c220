"""ShardNews: what a worker knows of the other shards: who leads them, and the members that shard 0 has settled.

Each worker knows who leads its own shard, and tells its node's other workers; a worker whose neighbour is down hears
it from the workers of its shard on other nodes. So what comes from this node is told to both, and what comes from
another node to nobody: that node has told everyone itself. The newer counts, by the leader's vote_id, or by how far
shard 0's log was committed.
"""

import logging
from typing import Final

import msgspec

from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToLinks, ToReplicator, ToRouter, ToShardNews
from actors.messages.peers import (
    CutPeer,
    Introduce,
    LeaderChanged,
    PeerDown,
    PeerSaid,
    PeerUp,
    Reach,
    RootSettled,
    SendPeers,
    node_of,
    shard_of,
    worker_key,
)
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.peers.messages import RootMembers, ShardLeader, ShardLeaders
from storage.sections import decode_members

log = logging.getLogger("quorate.shards")


VOTE_JUMP_MAX: Final = 1 << 20


class ShardNews(LoopActor[ToShardNews]):
    """For the worker of shard `own`, of so many `shards`, of node `node_id`."""

    def __init__(self, runtime: Runtime, node_id: int, own: int, shards: int, router: Mailbox[ToRouter]) -> None:
        super().__init__(runtime)
        self._node_id = node_id
        self._own = own
        self._shards = shards
        self._router = router
        self._leaders: dict[int, ShardLeader] = {}
        self._root: RootSettled | None = None
        self._nodes: tuple[int, ...] = ()
        self._disks: dict[int, int] = {}
        self._near: set[int] = set()
        self._replicator: Mailbox[ToReplicator]
        self._links: Mailbox[ToLinks]
        self.handlers = {
            LeaderChanged: self._own_leader_changed,
            RootSettled: lambda m: self._settled(m, is_of_node=True),
            Introduce: self._introduced,
            PeerUp: self._peer_up,
            PeerDown: self._peer_down,
            PeerSaid: self._peer_said,
        }

    def attach(self, replicator: Mailbox[ToReplicator], links: Mailbox[ToLinks]) -> None:
        """Whom it tells beside the Router; called by the assembly before any message."""
        self._replicator = replicator
        self._links = links

    def _introduced(self, message: Introduce) -> None:
        self._nodes = tuple(one.node_id for one in message.nodes if one.node_id != self._node_id)
        self._disks = {one.node_id: one.disk_id for one in message.nodes}

    # -- what it hears -----------------------------------------------------------------------------------------

    def _own_leader_changed(self, message: LeaderChanged) -> None:
        """Tell who leads, if somebody does; else whoever is asked says that nobody does."""
        if message.leader:
            row = ShardLeader(self._own, message.vote_id, message.leader, message.host, message.port)
            self._learn([row], is_of_node=True)

    def _peer_said(self, said: PeerSaid) -> None:
        """Another shard's worker of this node (below 0), or this shard's of another node."""
        message, is_of_node = said.message, said.node_id < 0 and not node_of(said.node_id)
        if not is_of_node and self._disks.get(said.node_id, -1) not in (0, said.disk_id):
            return  # of no member with its disk, as far as this node knows
        if isinstance(message, ShardLeaders):
            rows = [row for row in message.leaders if row.shard != self._own or is_of_node]
            self._learn(rows, is_of_node=is_of_node)
        elif isinstance(message, RootMembers):
            try:
                members = decode_members(message.members)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                log.error("members of shard 0 that are none were told: %s", error)
                self._links.tell(CutPeer(said.node_id, str(error)))
                return
            self._settled(RootSettled(message.committed, members), is_of_node=is_of_node)

    def _learn(self, rows: list[ShardLeader], *, is_of_node: bool) -> None:
        news = [row for row in rows if self._is_news(row)]
        for row in news:
            self._leaders[row.shard] = row
            if row.shard != self._own:
                self._point(row)
        if is_of_node and news:
            self._tell_near(ShardLeaders([row for row in news if row.shard == self._own]))
            self._tell_nodes(self._nodes, ShardLeaders([row for row in news if row.shard != self._own]))

    def _is_news(self, row: ShardLeader) -> bool:
        if not 0 <= row.shard < self._shards:
            return False  # there is no such shard
        known = self._leaders.get(row.shard)
        if known is not None and row.vote_id > known.vote_id + VOTE_JUMP_MAX:
            return False  # so many elections there were not meanwhile: then all that is said later would be old
        is_same = known is not None and row.vote_id == known.vote_id
        return known is None or row.vote_id > known.vote_id or (is_same and row != known and row.port != 0)

    def _settled(self, root: RootSettled, *, is_of_node: bool) -> None:
        """Take what is newer; of another cluster than before only what this node's shard 0 says."""
        known = self._root
        is_same = known is not None and known.members.cluster_id == root.members.cluster_id
        if known is not None and (root.committed <= known.committed if is_same else not is_of_node):
            return
        self._root = root
        if self._own:
            self._replicator.tell(root)
        else:
            self._tell_near(_packed(root))
        if is_of_node:
            self._tell_nodes(self._nodes, _packed(root))

    # -- what it tells -----------------------------------------------------------------------------------------

    def _point(self, row: ShardLeader) -> None:
        """Have the Router send that shard's requests there."""
        node_id = 0 if row.leader == self._node_id else row.leader
        self._links.tell(Reach(row.shard, node_id))
        key = worker_key(row.shard, node_id)
        self._router.tell(LeaderChanged(key, False, row.host, row.port, row.vote_id, row.shard))

    def _peer_up(self, message: PeerUp) -> None:
        """Tell a worker that is there what it has missed."""
        to = message.node_id
        if to > 0:
            self._tell_nodes((to,), ShardLeaders([row for row in self._leaders.values() if row.shard != self._own]))
            if self._root is not None:
                self._tell_nodes((to,), _packed(self._root))
            return
        if node_of(to):
            return
        self._near.add(to)
        if self._own in self._leaders:
            self._links.tell(SendPeers((to,), ShardLeaders([self._leaders[self._own]])))
        if self._root is not None and not self._own:
            self._links.tell(SendPeers((to,), _packed(self._root)))
        row = self._leaders.get(shard_of(to))
        if row is not None and row.leader == self._node_id:
            self._point(row)  # it was taken for lost with its link

    def _peer_down(self, message: PeerDown) -> None:
        self._near.discard(message.node_id)
        shard = shard_of(message.node_id)
        row = self._leaders.get(shard)
        if not node_of(message.node_id) and row is not None and row.leader == self._node_id:
            self._router.tell(LeaderChanged(0, False, shard=shard))

    def _tell_near(self, message: ShardLeaders | RootMembers) -> None:
        if self._near and (not isinstance(message, ShardLeaders) or message.leaders):
            self._links.tell(SendPeers(tuple(self._near), message))

    def _tell_nodes(self, nodes: tuple[int, ...], message: ShardLeaders | RootMembers) -> None:
        if nodes and (not isinstance(message, ShardLeaders) or message.leaders):
            self._links.tell(SendPeers(nodes, message))


def _packed(root: RootSettled) -> RootMembers:
    return RootMembers(root.committed, msgspec.msgpack.encode(root.members))
