"""What a worker counts of its clients: its Listener writes here; who tells how the node is reads, on the same loop."""

from typing import Final

from actors.messages.measures import ActionCounts
from net.clients.held_bytes import HeldBytes
from quorate.actions import NAMES, WAITS
from quorate.protocol import ErrorWord

LIMITS: Final = (
    *("max_connections", "max_open_requests", "max_held_bytes", "max_datagram_waiters"),
    *(ErrorWord.LIMIT, ErrorWord.OVERLOADED),
)
"""What is counted from the start: a count that begins with its first refusal is no increase to Prometheus."""


class ClientCounts:
    """One worker's. `requests`: since the start; `open_requests` are not answered. `started_at`: monotonic seconds.

    `limits_reached`: the limits' names, sorted; `refused_by_limit`: how often each was. `warnings`: what is less safe
    than it could be. `runs`: which code. `by_action`: of every action by its number, `other` of what is none.
    `connections_begun`: since the start; `traffic`: the bytes that came and left.
    """

    def __init__(self, started_at: float = 0.0) -> None:
        self.started_at = started_at
        self.connections = 0
        self.requests = 0
        self.open_requests = 0
        self.limits_reached: list[str] = []
        self.refused_by_limit: dict[str, int] = dict.fromkeys(LIMITS, 0)
        self.warnings: list[str] = []
        self.runs = ""
        self.by_action: dict[int, ActionCounts] = {number: ActionCounts(may_wait=number in WAITS) for number in NAMES}
        self.other = ActionCounts()
        self.connections_begun = 0
        self.traffic = HeldBytes(0)

    def answered(self, action: int, error: str | None) -> None:
        """Count what the Listener has answered itself, with that word; None: it was done."""
        row = self.by_action[action]
        if error is None:
            row.done += 1
        else:
            row.refuse(error)
