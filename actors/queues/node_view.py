"""What a shard's owner is set to, and what it has been told of the world around it, for queries and checks."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from actors.messages.peers import LeaderChanged
from actors.queues.appending import AppendingLimits
from actors.queues.clocks import IDLE_S
from actors.queues.handing_out import KEPT_MAX
from actors.queues.in_pieces import SETTLE_PIECE
from storage.queue_state import ORIGINAL, NewQueue
from storage.undo import PIECE_STEPS

COMMIT_PIECE: Final = 2000
"""The replies and messages of so many records that are committed are let go of in one turn: some 3 ms."""


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


class Limits(NamedTuple):
    """What a shard takes on. Bytes, seconds and counts; `new_queue` is what a new queue is set to.

    `waiters_max` counts each queue that a consumer waits for. `waits_per_client_max` is below what a connection may
    have open, so that its end is always noticed. `kept_max`: messages that are kept though they were delivered;
    `idle_queue_s`: so long a queue that a job made, and nobody configured, stays when it is empty and unused; 0: for
    ever. `settle_piece`: so many messages are confirmed, released, ... at once.
    """

    new_queue: NewQueue = ORIGINAL
    queues_max: int = 100_000
    memory_bytes_max: int = 8 << 30
    data_bytes_max: int = 1 << 20
    wait_s_max: float = 3600.0
    waiters_max: int = 50_000
    waits_per_client_max: int = 64
    kept_max: int = KEPT_MAX
    idle_queue_s: float = IDLE_S
    settle_piece: int = SETTLE_PIECE


@dataclass(frozen=True)
class OwnerSettings:
    """`journal_low_bytes`: with less room in the journal and a full disk, nothing is written any more.

    So many steps of a lost lead are undone in one turn, `undo_piece`; so many records that are committed let go of the
    replies and messages that wait for them in one, `commit_piece`.

    For `lease_committed` see `Delivery`.
    """

    appending: AppendingLimits
    journal_low_bytes: int = 1 << 20
    lease_committed: bool = False
    undo_piece: int = PIECE_STEPS
    commit_piece: int = COMMIT_PIECE
