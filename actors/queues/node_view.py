"""What a shard's owner is set to, and what it has been told of the world around it, for queries and checks."""

from dataclasses import dataclass

from actors.messages.peers import LeaderChanged
from actors.queues.appending import AppendingLimits
from storage.undo import PIECE_STEPS


@dataclass(slots=True)
class NodeView:
    """This node, who leads (0: nobody that is known) and where clients reach it, the log's bounds, the members, and how
    many of those that vote were heard within an election time-out, this one included; `shards`: there are so many.

    Kept by the QueueOwner, from `LogAdvanced`, `LeaderChanged` and `MembersChanged`.
    """

    node_id: int = 1
    node_type: int = 1
    version: str = ""
    max_log_size: int = 0
    trimmed: int = 0
    committed: int = 0
    leader_node_id: int = 0
    leader_host: str = ""
    leader_port: int = 0
    leader_vote_id: int = 0
    nodes: int = 1
    voters: int = 1
    heard: int = 1
    shards: int = 1

    def leader_changed(self, message: LeaderChanged) -> None:
        """Somebody else leads, or nobody, or where the leader is has become known."""
        self.leader_node_id, self.leader_vote_id = message.leader, message.vote_id
        self.leader_host, self.leader_port = message.host, message.port


@dataclass
class OwnerSettings:
    """`journal_low_bytes`: with less room in the journal and a full disk, nothing is written any more. `undo_piece`: so
    many steps of a lost lead are undone in one turn.

    For `lease_committed` see `Delivery`.
    """

    appending: AppendingLimits
    journal_low_bytes: int = 1 << 20
    lease_committed: bool = False
    undo_piece: int = PIECE_STEPS
