"""What whoever looks with the same token sees: a client, the queues as they were listed last, and what was before.

One list a second serves all who look; while somebody does, a sample is taken every `SAMPLE_S`, for rates and charts.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import Any, Final

from quorate import AsyncClient, NotAllowedError, QuorateError, RefusedError
from quorate.credentials import Credentials
from quorate.nodes import Address
from quorate.protocol import Action, ErrorWord

log = logging.getLogger("quorate.console")

FRESH_S: Final = 1.0
"""A list is no older than that."""

SAMPLE_S: Final = 2.0
SAMPLES_MAX: Final = 450
"""A quarter of an hour."""

LOOKED_S: Final = 60.0
"""So long after somebody looked samples go on."""

QUEUES_MAX: Final = 10_000
"""Queues that a list is asked for; where there are more, a pattern finds the others."""

VIEWS_MAX: Final = 64
REQUEST_S: Final = 5.0
WATCHED_MAX: Final = 100
"""Queues of which there are samples: those whose pages were looked at last."""

COUNTED: Final = ("produced", "delivered", "redelivered", "confirmed", "released", "expired", "buried", "moved")
IN: Final = ("produced",)
OUT: Final = ("confirmed", "expired", "buried", "moved")


@dataclass
class Listed:
    """The queues at one moment (Unix and monotonic s). `count`: how many there are. `missing`: shards not asked."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    at: float = 0.0
    seen: float = 0.0
    missing: tuple[int, ...] = ()

    def sums(self) -> dict[str, float]:
        """Of all queues together."""
        names = ("ready", "delayed", "in_flight")
        found: dict[str, float] = {name: sum(row[name] for row in self.rows) for name in names}
        for name in COUNTED:
            found[name] = sum(row["totals"].get(name, 0) for row in self.rows)
        oldest = [row["oldest"] for row in self.rows if row.get("oldest")]
        found["oldest_s"] = max(self.at - min(oldest), 0.0) if oldest else 0.0
        return found


def rate(before: dict[str, Any], after: dict[str, Any], names: tuple[str, ...], seconds: float) -> float:
    """So many a second. After a change of leader totals begin anew: then what has come since."""
    if seconds <= 0:
        return 0.0
    total = 0.0
    for name in names:
        difference = after.get(name, 0) - before.get(name, 0)
        total += difference if difference >= 0 else after.get(name, 0)
    return total / seconds


class Samples:
    """Of all queues, or of one: at each moment what charts show."""

    def __init__(self) -> None:
        self.points: deque[tuple[float, ...]] = deque(maxlen=SAMPLES_MAX)

    def add(self, at: float, counts: dict[str, Any], came: float, left: float) -> None:
        """Unix s; `ready`, `delayed`, `in_flight` of `counts`; how many came and left a second."""
        self.points.append((at, counts["ready"], counts["delayed"], counts["in_flight"], came, left))

    def columns(self) -> list[list[float]]:
        """As charts want them: times, ready, delayed, in flight, in a second, out a second."""
        return [[round(value, 3) for value in column] for column in zip(*self.points, strict=True)]


class View:
    """With one token, or none."""

    def __init__(self, nodes: list[Address], shown: Credentials) -> None:
        self.client = AsyncClient(nodes=nodes, credentials=shown, timeout=REQUEST_S, consumer="console")
        self.samples = Samples()
        self.watched: OrderedDict[str, Samples] = OrderedDict()
        self.rates: dict[str, tuple[float, float]] = {}
        self.looked_at = time.monotonic()
        self._listed = Listed()
        self._is_old = True
        self._status: tuple[float, dict[str, Any]] = (0.0, {})
        self._lock = asyncio.Lock()

    async def listed(self) -> Listed:
        """The queues, a second old at most. Raises what `AsyncClient` does."""
        async with self._lock:
            if self._is_old or time.monotonic() - self._listed.seen >= FRESH_S:
                self._is_old = False
                self._take(await self._list())
            return self._listed

    async def _list(self, pattern: str | None = None) -> Listed:
        found, after = Listed(), None
        while len(found.rows) < QUEUES_MAX:
            reply = await self.client.request(Action.LIST, pattern=pattern, after=after, full=True)
            found.rows += reply["queue_list"]
            found.count = max(found.count, reply["queue_count"])
            found.missing = tuple(sorted({*found.missing, *reply.get("missing_shards", ())}))
            after = reply.get("next")
            if after is None:
                break
        for row in found.rows:
            row.update({name: row.get(name) for name in ("oldest", "dead_letter", "dead_letters")})
            row.setdefault("totals", {})
        found.at, found.seen = time.time(), time.monotonic()
        return found

    async def matching(self, pattern: str) -> Listed:
        """Those queues whose names match, asked for anew where not all are known."""
        listed = await self.listed()
        if not pattern:
            return listed
        return await self._list(pattern)

    def _take(self, listed: Listed) -> None:
        before, self._listed = self._listed, listed
        seconds = listed.seen - before.seen
        if before.seen and seconds < LOOKED_S:
            totals = {row["name"]: row["totals"] for row in before.rows}
            self.rates = {
                row["name"]: (
                    rate(totals[row["name"]], row["totals"], IN, seconds),
                    rate(totals[row["name"]], row["totals"], OUT, seconds),
                )
                for row in listed.rows
                if row["name"] in totals  # of a new one nothing is known yet
            }
        came = sum(one[0] for one in self.rates.values())
        left = sum(one[1] for one in self.rates.values())
        if not self.samples.points or listed.at - self.samples.points[-1][0] >= SAMPLE_S * 0.9:
            sums = listed.sums()
            self.samples.add(listed.at, sums, came, left)
            for row in listed.rows:
                if row["name"] in self.watched:
                    self.watched[row["name"]].add(listed.at, row, *self.rates.get(row["name"], (0.0, 0.0)))

    def changed(self) -> None:
        """Who looks has done something: what was listed before is not shown any more."""
        self._is_old = True

    def watch(self, name: str) -> Samples:
        """Samples of that queue, from now on."""
        found = self.watched.pop(name, None) or Samples()
        self.watched[name] = found
        while len(self.watched) > WATCHED_MAX:
            self.watched.popitem(last=False)
        return found

    async def status(self) -> dict[str, Any]:
        """The node's; empty where whoever looks may not see it."""
        if time.monotonic() - self._status[0] >= FRESH_S:
            try:
                found = await self.client.status()
            except NotAllowedError:
                found = {}
            self._status = (time.monotonic(), found)
        return self._status[1]

    async def sample(self) -> None:
        """Look, if somebody has lately."""
        if time.monotonic() - self.looked_at > LOOKED_S:
            return
        try:
            await self.listed()
        except (QuorateError, OSError) as error:
            log.debug("no sample: %s", error)


class Views:
    """All of them. What is not looked at any more goes."""

    def __init__(self, nodes: list[Address], shown: Credentials) -> None:
        self._nodes = nodes
        self._shown = shown
        self._views: OrderedDict[str | None, View] = OrderedDict()
        self._sampling: asyncio.Task[None] | None = None

    def of(self, token: str | None) -> View:
        """What that token sees; None: what is seen without one."""
        view = self._views.pop(token, None)
        if view is None:
            view = View(self._nodes, replace(self._shown, token=token))
        self._views[token] = view
        view.looked_at = time.monotonic()
        while len(self._views) > VIEWS_MAX:
            _, old = self._views.popitem(last=False)
            asyncio.get_running_loop().create_task(old.client.close())
        return view

    async def ended(self, token: str) -> None:
        """Nobody is logged in with that token any more."""
        view = self._views.pop(token, None)
        if view is not None:
            await view.client.close()

    async def begin(self) -> None:
        """Take samples from now on."""
        self._sampling = asyncio.create_task(self._sample())

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            await asyncio.gather(*(view.sample() for view in list(self._views.values())))

    async def close(self) -> None:
        """Close all clients."""
        if self._sampling is not None:
            self._sampling.cancel()
        for view in self._views.values():
            await view.client.close()
        self._views.clear()


async def principal(view: View, token: str) -> str | None:
    """The name that a node knows the token by; None: it does not."""
    try:
        return str((await view.client.request(Action.AUTHENTICATE, token=token))["principal"])
    except RefusedError as refused:
        if refused.error == ErrorWord.NOT_AUTHENTICATED:
            return None
        raise
