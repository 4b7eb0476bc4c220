"""The actions about the log, the cluster and the node. The Replicator answers them: they gather in the context."""

from collections.abc import Callable

from actors.messages.call import Call
from actors.messages.calls import ClusterAsked, LogAsked, StatusAsked
from actors.shard.machine import Machine, ShardContext
from quorate.protocol import Action


class Asking(Machine):
    """Hands its calls to the Replicator."""

    def __init__(self, context: ShardContext) -> None:
        self._asked = context.asked

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {
            Action.LOG: lambda call: self._asked.append(LogAsked(call)),
            Action.CLUSTER: self._of_cluster,
            Action.NODE_INIT: self._of_cluster,
            Action.NODE_LEAVE: self._of_cluster,
            Action.NODE_READY: self._of_node,
            Action.NODE_DESCRIBE: self._of_node,
        }

    def _of_cluster(self, call: Call) -> None:
        self._asked.append(ClusterAsked(call))

    def _of_node(self, call: Call) -> None:
        self._asked.append(StatusAsked(call, {}))
