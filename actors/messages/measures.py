"""What a worker measures of itself, and counts of its clients: plain numbers, which cost a request some tens of
nanoseconds. The Listener writes them; who tells how the node is reads them, on the same loop."""

from typing import Any, Final

from net.clients.held_bytes import HeldBytes
from quorate.actions import AUDITED, NAMES, WAITS, About, about
from quorate.node_replies import RECORD_BOUNDS, SECOND_BOUNDS
from quorate.protocol import ErrorWord

_BOUNDS: Final[tuple[float, ...]] = SECOND_BOUNDS
_OF_CLIENT: Final = about(About.CLIENT)

LIMITS: Final = (
    *("max_connections", "max_open_requests", "max_held_bytes", "max_datagram_waiters"),
    *(ErrorWord.LIMIT, ErrorWord.OVERLOADED),
)
"""What is counted from the start: a count that begins with its first refusal is no increase to Prometheus."""


def bucket_of(seconds: float) -> int:
    """Which of the buckets of seconds it falls into."""
    return _bucket(_BOUNDS, seconds)


def _bucket(bounds: tuple[float, ...], value: float) -> int:
    """Find the first whose bound it does not pass. Most are in the first few: a search would cost more."""
    at = 0
    for bound in bounds:
        if value <= bound:
            return at
        at += 1
    return at


class Histogram:
    """How many values did not pass each of `bounds`, and more than the last; `total`: their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECOND_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float) -> None:
        """One more."""
        self.add(_bucket(self.bounds, value), value)

    def add(self, bucket: int, value: float) -> None:
        """One more, by whom it is known already which bucket it falls into."""
        self.counts[bucket] += 1
        self.total += value

    @property
    def told(self) -> dict[str, Any]:
        """As a reply has it."""
        return {"counts": list(self.counts), "sum": round(self.total, 6)}


def of_records() -> Histogram:
    """For counts of records."""
    return Histogram(RECORD_BOUNDS)


class ActionCounts:
    """Of one action: how often it was `done`, what it was refused for, and how long it took when it did not wait.

    `may_wait`: a request for it may have a `wait`. `is_clients`: it is about the client alone, and the
    Listener does it; `is_audited`: it may be one that is written down.
    """

    __slots__ = ("done", "is_audited", "is_clients", "may_wait", "refused", "seconds")

    def __init__(self, *, may_wait: bool = False, is_clients: bool = False, is_audited: bool = False) -> None:
        self.may_wait = may_wait
        self.is_clients = is_clients
        self.is_audited = is_audited
        self.done = 0
        self.refused: dict[str, int] = {}
        self.seconds = Histogram()

    def refuse(self, error: str) -> None:
        """Count a refusal with this word."""
        self.refused[error] = self.refused.get(error, 0) + 1

    @property
    def results(self) -> dict[str, int]:
        """How often each came out."""
        return {**({"ok": self.done} if self.done else {}), **self.refused}


class ClientCounts:
    """One worker's. `requests`: since the start; `open_requests` are not answered. `started_at`: monotonic seconds.

    `limits_reached`: the limits' names, sorted; `refused_by_limit`: how often each was. `warnings`: what is less safe
    than it could be. `runs`: which code. `by_action`: of every action by its number, `other` of what is none.
    `certificates`: until when each is valid (Unix s), by its setting's name.
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
        self.certificates: dict[str, float] = {}
        self.runs = ""
        self.by_action: dict[int, ActionCounts] = {
            number: ActionCounts(
                may_wait=number in WAITS, is_clients=number in _OF_CLIENT, is_audited=number in AUDITED
            )
            for number in NAMES
        }
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
