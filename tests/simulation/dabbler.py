"""A simulated client that says any well-formed thing: combinations of fields that nobody else would draw.

It keeps to queues, keys and messages of its own, so that the other clients' promises hold beside it; what it is
answered does not matter. A worker that it ends is a fault that the run shows. Its random numbers are its own.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from bench.field_cases import TOGETHER_MAX, UNREAD, values
from quorate.action_fields import READS
from quorate.protocol import Action
from tests.simulation.clients import History, SimulatedSession
from tests.simulation.cluster import SimulatedNode
from tests.simulation.world import World

PREFIX: Final = "x."
"""Its queues and keys begin so."""

NAMES: Final = ("queue", "queues", "to", "dead_letter", "key", "reader")
LEFT_OUT: Final = frozenset(
    {Action.CLUSTER, Action.NODE_INIT, Action.NODE_LEAVE, Action.AUTHENTICATE, Action.CLIENT, Action.POSITION}
)
"""What changes the cluster, the connection, or what of the log is kept."""

ACTIONS: Final = sorted(action for action in READS if action not in LEFT_OUT)
IDS_MAX: Final = 20


class Dabbler(SimulatedSession):
    """Does so until it is stopped."""

    patience_s = 6.0

    def __init__(self, world: World, nodes: Sequence[SimulatedNode], history: History, name: str) -> None:
        self._draw = Random(f"{world.seed} {name}")
        self._ids = [2**53 - 1]
        self.asked = 0
        super().__init__(world, nodes, history)

    def _next(self) -> None:
        draw = self._draw
        action = draw.choice([Action.PRODUCE, *ACTIONS])
        fields = list(dict.fromkeys([*READS[action], *UNREAD]))
        if action == Action.LOG:
            fields.remove("raw")  # behind such a reply's line come bytes
        names = draw.sample(fields, min(draw.randint(0, TOGETHER_MAX), len(fields)))
        if action in (Action.LOG, Action.LIST, Action.NODE_LIST) or "queue" not in READS[action]:
            request: dict[str, Any] = {"action": action}
        else:
            request = {"action": action, "queue": PREFIX + draw.choice("ab")}
        ids = (draw.choice(self._ids), draw.choice(self._ids))
        for name in names:
            request[name] = _own(name, draw.choice(values(name, ids)[0]))
        if action in (Action.PRODUCE, Action.MOVE, Action.CONFIGURE, Action.CLEAR, Action.REMOVE):
            request.setdefault("queue", PREFIX + "a")
        if action == Action.PRODUCE and "messages" not in request:
            request.setdefault("data", 1)
        self.asked += 1
        self._request(request, self._answered)

    def _answered(self, reply: dict[str, Any]) -> None:
        if reply["action"] == Action.PRODUCE and reply["code"] == 0:
            self._ids += reply.get("msg_ids") or [reply["msg_id"]]
            del self._ids[:-IDS_MAX]


def _own(name: str, value: Any) -> Any:
    """Give the value as one of its own queues or keys."""
    if name == "data":
        return "x"  # which the observers keep
    if name == "messages":
        return [{**item, "key": PREFIX + item["key"]} if "key" in item else item for item in value]
    if name not in NAMES or not value:
        return value
    return [PREFIX + one for one in value] if isinstance(value, list) else PREFIX + value
