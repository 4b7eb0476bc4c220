"""Auditing: what of the requests is written down. A machine; the Auditor writes.

Everything that manages a queue or operates a node, and everything that is refused for want of a right. Of refusals so
many lines a second at most, so that nobody fills the disk by being refused: what is left out is counted.
"""

from typing import Any, Final

from actors.messages.call import Call
from quorate.actions import BY_NUMBER, CLUSTER_LOOKS, NAMES, Right
from quorate.protocol import Action, Request

LINES_PER_S: Final = 50.0
LINES_MAX: Final = 500
"""So many may come at once."""

AUDITED: Final = frozenset(facts.action for facts in BY_NUMBER.values() if facts.right in (Right.MANAGE, Right.OPERATE))
TEXT_MAX: Final = 100
NAME_MAX: Final = 100
QUEUES_MAX: Final = 3
"""Of long names and lists a line has the beginning."""

Line = dict[str, Any]
"""One JSON object."""


def is_audited(request: Request) -> bool:
    """Whether it is written down though it is allowed."""
    if request.action not in AUDITED:
        return False
    return request.action != Action.CLUSTER or request.command not in CLUSTER_LOOKS


class Auditing:
    """For one worker."""

    def __init__(self) -> None:
        self._left = float(LINES_MAX)
        self._at = 0.0
        self._unsaid = 0

    def line(self, now: float, monotonic: float, call: Call, address: str, missing: str | None) -> Line | None:
        """What is written of a request at `now` (Unix s); None if too much was already."""
        request = call.request
        what: Line = {"action": NAMES.get(request.action, str(request.action))}
        for name in ("command", "queue", "node_id", "shard", "reader"):
            value = getattr(request, name)
            if value is not None:
                what[name] = value[:NAME_MAX] if isinstance(value, str) else value
        if request.queues is not None:
            what["queues"] = [name[:NAME_MAX] for name in request.queues[:QUEUES_MAX]]
        return self.noted(now, monotonic, call.principal.name, address, what, missing)

    def noted(
        self, now: float, monotonic: float, name: str, address: str, what: Line, missing: str | None
    ) -> Line | None:
        """As `line`, of anything."""
        if missing is not None:
            self._left = min(self._left + (monotonic - self._at) * LINES_PER_S, LINES_MAX)
            self._at = monotonic
            if self._left < 1:
                self._unsaid += 1
                return None
            self._left -= 1
        line: Line = {"at": round(now, 3), "principal": name, "from": address[:TEXT_MAX], **what}
        line["allowed"] = missing is None
        if missing is not None:
            line["missing"] = missing
        if missing is not None and self._unsaid:
            line["left_out_before"], self._unsaid = self._unsaid, 0
        return line
