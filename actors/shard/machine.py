"""A machine: one group of a shard's actions. `ShardContext`: what all machines of one shard share.

The table of machines (`actors/queues/machines.py`) is what a shard can do: each machine gives its own actions, and
overrides those hooks that concern it. The broker calls a hook for all machines, in the order of the table. A new group
of actions is a new file and one row.
"""

from collections.abc import Callable
from typing import Protocol

from actors.messages.call import Call, Client
from actors.messages.calls import ClusterAsked, LogAsked, StatusAsked
from actors.messages.rights import Principal
from actors.shard.disk_reads import DiskReads
from actors.shard.jobs import Jobs
from actors.shard.ledger import Ledger
from actors.shard.node_view import Limits, NodeView
from actors.shard.own_writes import OwnWrites
from storage.message import Message
from storage.partition import Partition
from storage.queue_state import NEVER, ORIGINAL
from storage.state import ShardState

Asked = LogAsked | ClusterAsked | StatusAsked


class ShardContext:
    """What the machines of one shard share: the state's `ledger`, what its owner knows of the node (`view`), `limits`.

    `jobs`: calls that take several turns. `own_writes`: what is answered before its commit, and the reads that wait for
    that. `asked`: questions for the Replicator; the owner sends and empties them. So it does with `not_here`: calls
    that another node is to do. `disk`: questions about what blocks hold.
    `leases_are_committed`: replies of at-least-once deliveries wait for their commit, too. `committed`: see `Ledger`.
    """

    def __init__(
        self,
        state: ShardState,
        limits: Limits,
        view: NodeView,
        *,
        leases_are_committed: bool = False,
        committed: int | None = None,
    ) -> None:
        self.ledger = Ledger(state, committed)
        self.ledger.set_time(max(state.time, state.placed_at))
        self.view = view
        self.leases_are_committed = leases_are_committed
        self.jobs = Jobs(self.ledger, limits.settle_piece)
        self.own_writes = OwnWrites()
        self.asked: list[Asked] = []
        self.disk = DiskReads()
        self.not_here: list[Call] = []
        self.set_limits(limits)

    def take_not_here(self) -> list[Call]:
        """Hand over the calls that another node is to do; they are the caller's now."""
        taken, self.not_here = self.not_here, []
        return taken

    def set_limits(self, limits: Limits) -> None:
        """Take over new limits; what is there already stays."""
        self.limits = limits
        self.ledger.new_queue = ORIGINAL if limits.new_queue == ORIGINAL else limits.new_queue


class WaitingCalls(Protocol):
    """Calls that waited in a machine of a leader that serves no more, in their order."""

    def __len__(self) -> int:
        """How many are left."""

    def take(self) -> Call:
        """Take the next, for what is left of its time."""


class Machine:
    """One group of actions of a shard. What is not overridden does nothing."""

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Give the table of its actions: what is called for each."""
        return {}

    @property
    def next_event_at(self) -> float:
        """When `pass_time` has something to do (Unix seconds); `NEVER` if nothing is to be waited for."""
        return NEVER

    def begin(self) -> None:
        """Begin a turn of the loop."""

    def committed(self, produced: list[Message]) -> None:
        """Note that the produce records of these messages are committed."""

    def followed(self) -> None:
        """Note, on a follower, that the state has new records."""

    def grown(self, partitions: list[Partition]) -> None:
        """Note, also on a follower, that these partitions have got messages which are committed."""

    @property
    def next_wait_at(self) -> float:
        """When `end_waits` has something to do (Unix seconds)."""
        return NEVER

    def end_waits(self) -> None:
        """End the waits whose time is over: of what followers answer, too."""

    def pass_time(self) -> None:
        """Do what is due by the ledger's time, as much as one turn does."""

    def is_behind(self, now: float) -> bool:
        """Whether what is due by then was not done yet, and clients would notice."""
        return False

    def limits_changed(self) -> None:
        """Note that the context has new limits."""

    def withdraw(self, call: Call) -> None:
        """Do no more for a call that raised before a record was made."""

    def forget(self, client: Client) -> None:
        """End the waits of a client that is gone, or asks for nothing more."""

    def may_forget_later(self, client: Client) -> bool:
        """Whether waits of a client that has left may end in a later turn; they count for no limit from now on."""
        return False

    def rejudge(self, client: Client, principal: Principal) -> None:
        """Refuse what the client waits for and has no right to any more: it is that principal now."""

    def take_waiting(self) -> WaitingCalls | None:
        """Hand over the calls that wait for something to happen: nothing does here any more."""
        return None
