"""What a worker counts of MetaQ's commands, and how `stats` says it.

Counts are of this worker since it was started, or, those that are per topic, since `stats reset`. Times are monotonic
seconds.
"""

from collections.abc import Iterable
from typing import Final

TOPICS_MAX: Final = 10_000
"""So many topics are counted apart."""

PUT: Final = "put"
GET: Final = "get"
OFFSET: Final = "offset"
GET_MISS: Final = "get_miss"
PUT_FAILED: Final = "put_failed"
MESSAGE_SIZE: Final = "message_size"
COUNTED: Final = (PUT, GET, OFFSET, GET_MISS, PUT_FAILED, MESSAGE_SIZE)
"""What is counted of each topic, in the order in which it is said."""

HELP: Final = (
    ("*EMPTY*", "Returns broker info."),
    ("help", "Returns help menu."),
    ("topics", "Returns topics statistics detail info."),
    ("offsets", "Returns partitions detail info."),
    ("realtime", "Returns realtime statistics detail info."),
    ("reset", "Resets realtime statistics."),
    ("config", "Not supported: qctl config show."),
)


class Tally:
    """How often something happened, and the sum of what was counted with it."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0

    def add(self, amount: int) -> None:
        """Count it once more."""
        self.count += 1
        self.value += amount


class MetaqStats:
    """Of one worker, which has run since `began`. `total`: by what is counted, since then; `connections`: there are
    so many now."""

    def __init__(self, began: float) -> None:
        self.began = self._since = began
        self.connections = 0
        self.total = dict.fromkeys((*COUNTED, "tx_begin", "tx_xa_begin", "tx_commit", "tx_rollback"), 0)
        self._all = _tallies()
        self._of: dict[str, dict[str, Tally]] = {}

    def note(self, what: str, topic: str, amount: int = 1, *, is_there: bool = True) -> None:
        """Count something of a topic; of one that may not be there only in all."""
        self.total[what] += amount
        self._all[what].add(amount)
        its = self._of.get(topic)
        if its is None:
            if not is_there or len(self._of) >= TOPICS_MAX:
                return
            its = self._of[topic] = _tallies()
        its[what].add(amount)

    def reset(self, now: float) -> None:
        """Begin anew with what is counted of each topic."""
        self._since = now
        self._all = _tallies()
        self._of.clear()

    def lines(self, now: float, topic: str | None = None) -> list[tuple[str, str]]:
        """Say what happened to a topic, or to all."""
        name = "realtime_" if topic is None else "topic_realtime_"
        tallies = self._all if topic is None else self._of.get(topic) or _tallies()
        return [(f"{name}{what}", _shown(tallies[what], now - self._since)) for what in COUNTED]


def _tallies() -> dict[str, Tally]:
    return {what: Tally() for what in COUNTED}


def _shown(tally: Tally, seconds: float) -> str:
    count, value = tally.count, tally.value
    each, rate = _ratio(value, count), _ratio(count, seconds)
    return f"Count={count},Value={value},Value/Count={each},Count/Duration={rate},Duration={int(seconds)}"


def _ratio(value: float, of: float) -> str:
    return "0" if not of else f"{value / of:.2f}".rstrip("0").rstrip(".")


def text(lines: Iterable[tuple[object, ...]]) -> str:
    """Make the text of a reply to `stats`."""
    said = ["STATS", *[" ".join(map(str, line)) for line in lines], "END"]
    return "".join([f"{line}\r\n" for line in said])
