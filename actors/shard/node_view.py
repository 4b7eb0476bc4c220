"""What a shard takes on, and what its owner has been told of the world around it, for queries and checks."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from actors.messages.peers import LeaderChanged
from actors.messages.registering import GroupsRead
from actors.shard.jobs import SETTLE_PIECE
from quorate.stream_replies import MetaqGroupRow
from storage.queue_state import ORIGINAL, NewQueue

KEPT_MAX: Final = 100_000
"""So many messages that are delivered at most once a shard keeps until they expire; beyond that the oldest go."""

IDLE_S: Final = 300.0
"""For so long an empty queue that a job made stays unused, where nothing else is set."""


@dataclass(slots=True)
class NodeView:
    """This node, who leads (0: nobody that is known) and where clients reach it, the log's bounds, the members, and how
    many of those that vote were heard within an election time-out, this one included; `shards`: there are so many.
    `metaq_groups`: those of MetaQ's clients by topic, as far as is known (bytes).
    `disk_full`: why nothing can be stored; `is_journal_full`: nothing that clients ask for can be written, either.

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
    disk_full: str | None = None
    is_journal_full: bool = False
    metaq_groups: dict[str, list[MetaqGroupRow]] = field(default_factory=dict)

    def leader_changed(self, message: LeaderChanged) -> None:
        """Somebody else leads, or nobody, or where the leader is has become known."""
        self.leader_node_id, self.leader_vote_id = message.leader, message.vote_id
        self.leader_host, self.leader_port = message.host, message.port

    def groups_read(self, message: GroupsRead) -> None:
        """Note where MetaQ's groups are."""
        self.metaq_groups = message.groups


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
