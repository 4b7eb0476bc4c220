"""What whoever looks with the same token sees: a client, what the queues have together, and what was before.

While somebody looks, a sample is taken every `SAMPLE_S`, for charts; the node tells each queue's rates as long as it is
asked so. What was just asked is told to all who look with the token within a second.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict, deque
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

from quorate import AsyncClient, NotAllowedError, QuorateError, RefusedError
from quorate.credentials import Credentials
from quorate.nodes import Address
from quorate.protocol import BATCH_MAX, Action, ErrorWord
from quorate.stream_replies import GroupRow, TopicRow
from quorate.streams import topic_rows

log = logging.getLogger("quorate.console")

FRESH_S: Final = 1.0
"""What was asked is no older than that."""

SAMPLE_S: Final = 2.0
SAMPLES_MAX: Final = 450
"""A quarter of an hour."""

LOOKED_S: Final = 60.0
"""So long after somebody looked samples go on."""

VIEWS_MAX: Final = 64
REQUEST_S: Final = 5.0
WATCHED_MAX: Final = 100
"""Queues of which there are samples: those whose pages were looked at last."""

WATCHED_AT_ONCE: Final = 8
PAGES_MAX: Final = 32
"""Lists that are kept for all who ask for the same within a second."""

COUNTED: Final = (
    *("produced", "delivered", "redelivered", "confirmed", "taken"),
    *("released", "expired", "cleared", "buried", "moved"),
)
OUT: Final = ("confirmed", "taken", "expired", "cleared")
"""How messages leave, all queues together: those that are buried or moved are in another one."""

STATES: Final = ("ready", "delayed", "in_flight")


class Sums:
    """Of all queues together: `at` (Unix s), asked for when it was `seen` (monotonic s). `missing`: shards not asked.

    `came`, `left`: so many a second since the sums before.
    """

    def __init__(self, reply: dict[str, Any], asked_at: float) -> None:
        rows = reply.get("sums") or []
        self.at, self.seen = time.time(), asked_at
        self.queues: int = reply["queue_count"]
        self.missing: list[int] = reply.get("missing_shards") or []
        self.counts = {state: sum(row["messages"][state] for row in rows) for state in STATES}
        self.dead_letters = sum(row["dead_letters"] for row in rows)
        self.waiting = sum(row["waiting_consumers"] for row in rows)
        oldest = [row["oldest"] for row in rows if row["oldest"]]
        self.oldest_s = max(self.at - min(oldest), 0.0) if oldest else 0.0
        self.is_of_all = reply.get("sums") is not None
        self.came = self.left = 0.0
        self._totals = {row["shard"]: row["totals"] for row in rows}

    def follow(self, before: "Sums | None") -> None:
        """Reckon rates from what was before, shard by shard: where another leads since, from what it has counted."""
        seconds = 0.0 if before is None else self.seen - before.seen
        if before is None or not 0 < seconds < LOOKED_S:
            return
        for shard, totals in self._totals.items():
            old = before._totals.get(shard)
            if old is not None:
                since = old if old["since"] == totals["since"] else {}
                self.came += (totals["produced"] - since.get("produced", 0)) / seconds
                self.left += sum(totals[name] - since.get(name, 0) for name in OUT) / seconds


GAP_S: Final = 3 * SAMPLE_S
"""Between two samples that are further apart nobody looked."""


class Samples:
    """Of all queues, or of one: at each moment what charts show."""

    def __init__(self) -> None:
        self.points: deque[tuple[float, ...]] = deque(maxlen=SAMPLES_MAX)

    def add(self, at: float, counts: dict[str, Any], came: float, left: float) -> None:
        """Unix s; `ready`, `delayed`, `in_flight` of `counts`; how many came and left a second."""
        if not self.points or at - self.points[-1][0] >= SAMPLE_S * 0.9:
            self.points.append((at, *(counts[state] for state in STATES), came, left))

    def columns(self) -> list[list[float | None]]:
        """As charts want them: times, ready, delayed, in flight, in a second, out a second.

        Where nobody looked for a while nothing is known: a point without values stands there, so that no line does.
        """
        rows: list[tuple[float | None, ...]] = []
        last = math.inf
        for point in self.points:
            if point[0] - last > GAP_S:
                rows.append((round(last + SAMPLE_S, 3), *[None] * (len(point) - 1)))
            last = point[0]
            rows.append(tuple(round(value, 3) for value in point))
        return [list(column) for column in zip(*rows, strict=True)]


BROWSER: Final[ContextVar[str]] = ContextVar("browser", default="")
"""The address of whoever has asked for the page that is made."""


class _Client(AsyncClient):
    """Says for whom it asks, which the node's audit log has: all that a console asks comes from its own address."""

    async def request(self, action: int, **fields: Any) -> dict[str, Any]:
        """As `AsyncClient.request`."""
        browser = BROWSER.get()
        if browser and "consumer" not in fields:
            fields["consumer"] = f"console for {browser}"
        return await super().request(action, **fields)


class View:
    """With one token, or none. `node` is asked about itself alone: what is redirected makes a client go elsewhere."""

    def __init__(self, nodes: list[Address], shown: Credentials) -> None:
        self.client = _Client(nodes=nodes, credentials=shown, timeout=REQUEST_S, consumer="console")
        self.node = AsyncClient(nodes=nodes, credentials=shown, timeout=REQUEST_S, consumer="console")
        self.samples = Samples()
        self.looked_at = -math.inf
        self._watched: OrderedDict[str, Samples] = OrderedDict()
        self._sums: Sums | None = None
        self._changed_at = -math.inf
        self._status: tuple[float, dict[str, Any]] = (-math.inf, {})
        self._lock = asyncio.Lock()
        self._pages: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()

    async def close(self) -> None:
        """Close its clients."""
        await self.client.close()
        await self.node.close()

    async def sums(self) -> Sums:
        """Ask what all queues have together, a second old at most. Raises what `AsyncClient` does."""
        async with self._lock:
            before = self._sums
            if before is None or not self._is_fresh(before.seen):
                asked_at = time.monotonic()
                fresh = Sums(await self.client.request(Action.LIST, count=1, sums=True), asked_at)
                fresh.follow(before)
                self._sums = fresh
                if fresh.is_of_all:
                    self.samples.add(fresh.at, fresh.counts, fresh.came, fresh.left)
                else:  # what was seen before is not its to see any more
                    self.samples = Samples()
                return fresh
            return before

    async def page(self, **asked: Any) -> dict[str, Any]:
        """Ask for a list, full, a second old at most. `rows` of it are as pages tell queues."""
        async with self._lock:
            asked_at, found = self._pages.pop(repr(asked), (-math.inf, {}))
            if not self._is_fresh(asked_at):
                asked_at = time.monotonic()
                reply = await self.client.request(Action.LIST, full=True, **asked)
                now = time.time()
                found = {**reply, "rows": [_told(row, now) for row in reply["queue_list"]]}
            self._keep(repr(asked), asked_at, found)
            return found

    async def queues(self, pattern: str, most: int) -> dict[str, Any]:
        """As `page`: the first of those whose names match."""
        found = await self.page(pattern=pattern or None, count=BATCH_MAX)
        while found.get("next") is not None and len(found["rows"]) < most:
            more = await self.page(pattern=pattern or None, count=BATCH_MAX, after=found["next"])
            missing = {*found.get("missing_shards", ()), *more.get("missing_shards", ())}
            found = {**more, "rows": found["rows"] + more["rows"], "missing_shards": sorted(missing)}
        return {**found, "rows": found["rows"][:most]}

    async def topics(
        self, pattern: str, most: int
    ) -> tuple[list[TopicRow], list[tuple[str, GroupRow]], dict[str, Any]]:
        """Ask for the first topics whose names match, their groups, and the last reply of the list."""
        rows: list[TopicRow] = []
        after: str | None = None
        while True:
            count = min(most - len(rows), BATCH_MAX)
            asked = {"command": "list", "pattern": pattern or None, "count": count, "after": after}
            found = await self.client.request(Action.TOPIC, **asked)
            some, after = topic_rows(found)
            rows += some
            if after is None or len(rows) >= most:
                break
        groups = [(row.name, one) for row in rows if row.groups for one in await self._groups(row.name)]
        return rows, groups, found

    async def _groups(self, topic: str) -> list[GroupRow]:
        """Ask for a topic's groups; none, where it has gone meanwhile."""
        try:
            return await self.client.groups(topic)
        except RefusedError as refused:
            if refused.error != ErrorWord.NO_SUCH_TOPIC:
                raise
            return []

    async def queue(self, name: str) -> dict[str, Any]:
        """One queue, with its settings; what it had before is kept from now on. Raises what `AsyncClient` does."""
        reply = await self.client.request(Action.MONITOR, queue=name, full=True)
        row = _told(reply["row"], time.time())
        self.watch(name).add(time.time(), row, row["came"] or 0.0, row["left"] or 0.0)
        return {**reply, "row": row}

    async def soonest(self, state: str, count: int, missing: list[int]) -> list[dict[str, Any]]:
        """Of all queues the messages in that state whose time comes first, a second old at most.

        `missing`: shards that can't be asked. Raises what `AsyncClient` does.
        """
        async with self._lock:
            name = f"soonest {state} {count} {missing}"
            asked_at, found = self._pages.pop(name, (-math.inf, {}))
            if not self._is_fresh(asked_at):
                asked_at = time.monotonic()
                found = {"messages": await soonest_of_all(self.client, state, count, missing)}
            self._keep(name, asked_at, found)
            messages: list[dict[str, Any]] = found["messages"]
            return messages

    def _keep(self, name: str, asked_at: float, found: dict[str, Any]) -> None:
        self._pages[name] = (asked_at, found)
        while len(self._pages) > PAGES_MAX:
            self._pages.popitem(last=False)

    def changed(self) -> None:
        """Who looks has done something: what was asked before is not shown any more, also when it comes later."""
        self._changed_at = time.monotonic()

    def _is_fresh(self, asked_at: float) -> bool:
        return self._changed_at <= asked_at and time.monotonic() - asked_at < FRESH_S

    def watch(self, name: str) -> Samples:
        """Take samples of that queue, from now on."""
        found = self._watched.pop(name, None) or Samples()
        self._watched[name] = found
        while len(self._watched) > WATCHED_MAX:
            self._watched.popitem(last=False)
        return found

    async def status(self) -> dict[str, Any]:
        """Give the node's; empty where whoever looks may not see it."""
        if time.monotonic() - self._status[0] >= FRESH_S:
            try:
                found: dict[str, Any] = {**await self.node.status()}
            except NotAllowedError:
                found = {}
            self._status = (time.monotonic(), found)
        return self._status[1]

    async def sample(self) -> None:
        """Look, if somebody has lately: at all queues, and at those whose pages were looked at last."""
        if time.monotonic() - self.looked_at > LOOKED_S:
            return
        try:
            await self.sums()
            for name in list(self._watched)[-WATCHED_AT_ONCE:]:
                await self._sample_of(name)
        except (QuorateError, OSError) as error:
            log.debug("no sample: %s", error)
        except Exception:
            log.exception("no sample")  # one view's fault ends the samples of no other

    async def _sample_of(self, name: str) -> None:
        samples = self._watched.get(name)
        if samples is None:
            return  # somebody has looked at very many others meanwhile
        try:
            row = (await self.client.request(Action.MONITOR, queue=name, full=True))["row"]
        except RefusedError:
            self._watched.pop(name, None)  # it is gone
            return
        samples.add(time.time(), row, row.get("came") or 0.0, row.get("left") or 0.0)


async def soonest_of(client: AsyncClient, shard: int, state: str, count: int) -> dict[str, Any]:
    """Ask for a reply with the `messages` of a shard in that state whose time comes first, and how many `shards` there
    are."""
    return await client.request(Action.SCAN, shard=shard, full=True, state=state, sort="due", count=count)


async def soonest_of_all(client: AsyncClient, state: str, count: int, missing: list[int]) -> list[dict[str, Any]]:
    """Ask for the messages in that state whose time comes first, of all shards but the `missing` ones.

    Any shard's reply says how many there are.
    """
    messages: list[dict[str, Any]] = []
    shard, shards = 0, max(missing, default=-1) + 2
    while shard < shards:
        if shard not in missing:
            try:
                reply = await soonest_of(client, shard, state, count)
            except RefusedError as refused:
                if refused.error == ErrorWord.FIELD and missing:  # all are missing: there are no more shards
                    break
                raise
            shards = reply["shards"]
            messages += reply.get("messages") or ()
        shard += 1
    messages.sort(key=lambda message: (message["due_at"], message["msg_id"]))
    return messages[:count]


def _told(row: dict[str, Any], now: float) -> dict[str, Any]:
    """Tell a queue as pages do: nothing is left out. `oldest_s`: how long the oldest that is ready has been so."""
    oldest = row.get("oldest")
    names = ("oldest", "dead_letter", "dead_letters", "came", "left")
    told = {**row, **{name: row.get(name) for name in names}}
    totals = row.get("totals") or {}
    told["totals"] = {name: totals.get(name, 0) for name in COUNTED}
    told["oldest_s"] = max(now - oldest, 0.0) if oldest else 0.0
    return told


class Views:
    """All of them. What is not looked at any more goes. `health`: a client of nobody's, for probes."""

    def __init__(self, nodes: list[Address], shown: Credentials) -> None:
        self._nodes = nodes
        self._shown = shown
        self._views: OrderedDict[str | None, View] = OrderedDict()
        self._sampling: asyncio.Task[None] | None = None
        self.health = AsyncClient(nodes=nodes, credentials=shown, timeout=REQUEST_S, consumer="console")

    def of(self, token: str | None, *, looks: bool = True) -> View:
        """Give what that token sees, which somebody has proved; None: what is seen without one. `looks`: a person
        does."""
        view = self._views.pop(token, None)
        if view is None:
            view = self._new(token)
        self._views[token] = view
        if looks:
            view.looked_at = time.monotonic()
        while len(self._views) > VIEWS_MAX:
            _, old = self._views.popitem(last=False)
            asyncio.get_running_loop().create_task(old.close())
        return view

    def has(self, token: str) -> bool:
        """Whether it is known, and was one."""
        return token in self._views

    def _new(self, token: str | None) -> View:
        return View(self._nodes, replace(self._shown, token=token))

    async def principal(self, token: str) -> str | None:
        """Ask for the name that a node knows the token by; None: it does not. A connection of its own proves it.

        Raises what `AsyncClient` does, and `RefusedError` with `not_supported` where the node knows no tokens.
        """
        view = self._new(None)
        try:
            reply = await view.client.request(Action.AUTHENTICATE, token=token)
            if "warning" in reply:
                raise RefusedError(ErrorWord.NOT_SUPPORTED, str(reply["warning"]), reply)
            return str(reply["principal"])
        except RefusedError as refused:
            if refused.error == ErrorWord.NOT_AUTHENTICATED:
                return None
            raise
        finally:
            await view.close()

    async def ended(self, token: str) -> None:
        """Nobody is logged in with that token any more."""
        view = self._views.pop(token, None)
        if view is not None:
            await view.close()

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
            await view.close()
        self._views.clear()
        await self.health.close()
