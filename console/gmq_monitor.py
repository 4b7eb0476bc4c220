"""The four addresses of gmq's web monitor that scripts poll, and the way to the console for those who open its pages.

What they tell is asked when they are: counts by `list`, what is next by `scan`. The texts of an answer are those of
gmq's: outer names sorted, strings as Go writes them.
"""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from console.views import View, soonest_of
from quorate import AsyncClient, NotAllowedError, QuorateError, RefusedError
from quorate.gmq_jobs import job_id, ttr_of
from quorate.go_json import escaped
from quorate.protocol import BATCH_MAX, Action, ErrorWord

BUCKET: Final = "gmq:bucket:"
TTR_BUCKET: Final = "gmq:bucket:TTR:"
POOL: Final = "gmq:jobpool:"
READY_QUEUE: Final = "gmq:readyqueue:"
TOPICS_MAX: Final = 10_000
JOBS: Final = 20
JOBS_MAX: Final = 199
DAY_S: Final = 86_400
LETTERS: Final = 26
LETTERS_MAX: Final = 3
DIGITS_MAX: Final = 4
"""Of the names of buckets: so many letters, or digits."""

LIMIT_DIGITS_MAX: Final = 5


DELAYED: Final = "delayed"
RESERVED: Final = "in_flight"
BADGES: Final = {"delayed": ("orange", "delay"), "ready": ("red", "ready"), "in_flight": ("blue", "reserved")}
NO_KEY: Final = "bucketKey不能为空"
KIND: Final = "application/json; charset=utf-8"

DUE: Final = "/due"
PAGES: Final = {
    "/": "/",
    "/home": "/",
    "/bucketList": DUE,
    "/readyQueueList": "/queues?sort=ready&down=1",
    "/bucketJobList": DUE,
}
"""Of its pages, those of the console that show the same."""

Gives = Callable[[AsyncClient, Request], Awaitable[list[dict[str, Any]]]]


def told(data: list[dict[str, Any]] | None, code: int = 0, msg: str = "") -> bytes:
    """Make an answer, as Go writes it; no rows are null."""
    answer = {"code": code, "data": data or None, "msg": msg}
    return escaped(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def local(at: float) -> str:
    """Show that time, here."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):  # beyond what the system knows of years
        return "9999-12-31 23:59:59"


def go_duration(seconds: int) -> str:
    """Whole seconds as Go writes a duration: 0s, 1m0s, 48h3m12s."""
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    if hours:
        return f"{sign}{hours}h{minutes}m{rest}s"
    return f"{sign}{minutes}m{rest}s" if minutes else f"{sign}{rest}s"


def letters_of(number: int) -> str:
    """Count: A for 0, B for 1, Z, AA."""
    text = ""
    while number >= 0:
        text = chr(ord("A") + number % LETTERS) + text
        number = number // LETTERS - 1
    return text


def bucket_of(key: str) -> tuple[int, str] | None:
    """Read the shard and the state that a bucket's key stands for; None: it is none."""
    if key.startswith(TTR_BUCKET):
        name = key.removeprefix(TTR_BUCKET)
        shard = 0
        if not name or len(name) > LETTERS_MAX or not all("A" <= letter <= "Z" for letter in name):
            return None
        for letter in name:
            shard = shard * LETTERS + ord(letter) - ord("A") + 1
        return shard - 1, RESERVED
    name = key.removeprefix(BUCKET)
    if not key.startswith(BUCKET) or not name.isascii() or not name.isdigit() or len(name) > DIGITS_MAX:
        return None
    return int(name), DELAYED


def job_of(message: dict[str, Any]) -> dict[str, str]:
    """Make a row of a bucket's list."""
    name = job_id(message.get("key"), message.get("scope"), message["msg_id"])
    ttr = ttr_of(message.get("ttr"), message["retry"])
    colour, word = BADGES.get(message["state"], ("black", "unknown"))
    return {
        "id": name,
        "job_key": POOL + name,
        "runtime": local(message["due_at"]),
        "ttr": str(ttr),
        "delay_time": go_duration(int(message.get("delay") or 0)),
        "topic": message["queue"],
        "status": f'<span class="layui-badge layui-bg-{colour}">{word}</span>',
    }


async def ready_queues(client: AsyncClient, request: Request) -> list[dict[str, Any]]:
    """Topics that have ready jobs, by their names; those with most of them, where there are very many."""
    counts: dict[str, int] = {}
    after: str | None = None
    while len(counts) < TOPICS_MAX:
        asked = {"sort": "ready", "descending": True, "count": BATCH_MAX, "after": after}
        reply = await client.request(Action.LIST, **asked)
        rows = [row for row in reply["queue_list"] if row["ready"]]
        counts |= {row["name"]: row["ready"] for row in rows}
        after = reply.get("next")
        if len(rows) < len(reply["queue_list"]) or not after:
            break
    rows = [{"queue_name": READY_QUEUE + name, "job_num": counts[name]} for name in sorted(counts)]
    return [{"id": number, **row} for number, row in enumerate(rows, 1)]


async def _buckets(client: AsyncClient, state: str) -> list[dict[str, Any]]:
    reply = await client.request(Action.LIST, count=1, sums=True)
    rows = []
    for number, row in enumerate(sorted(reply.get("sums") or (), key=lambda row: row["shard"]), 1):
        shard = row["shard"]
        next_at = time.time() + DAY_S
        if row["messages"][state]:
            for first in (await soonest_of(client, shard, state, 1)).get("messages") or ():
                next_at = first["due_at"]
        name = TTR_BUCKET + letters_of(shard) if state == RESERVED else f"{BUCKET}{shard}"
        told_row = {"bucket_name": name, "job_num": row["messages"][state], "next_time": local(next_at)}
        rows.append({"id": number, **told_row})
    return rows


async def delayed_buckets(client: AsyncClient, request: Request) -> list[dict[str, Any]]:
    """For each shard its delayed jobs."""
    return await _buckets(client, DELAYED)


async def reserved_buckets(client: AsyncClient, request: Request) -> list[dict[str, Any]]:
    """For each shard the jobs whose TTR runs."""
    return await _buckets(client, RESERVED)


async def jobs(client: AsyncClient, request: Request) -> list[dict[str, Any]]:
    """List a bucket's jobs in the order of their times: one more than `limit`, as gmq gives them."""
    found = bucket_of(request.query_params.get("bucketKey", ""))
    limit = request.query_params.get("limit", "")
    wanted = int(limit) if limit.isascii() and limit.isdigit() and len(limit) <= LIMIT_DIGITS_MAX else JOBS
    if found is None:
        return []
    shard, state = found
    try:
        reply = await soonest_of(client, shard, state, min(wanted, JOBS_MAX) + 1)
    except RefusedError as refused:
        if refused.error == ErrorWord.FIELD:  # there is no such shard
            return []
        raise
    return [job_of(message) for message in reply.get("messages") or ()]


class GmqMonitor:
    """`view_of` finds whose token a request shows; `console`: the console's port, None: there is none."""

    def __init__(self, view_of: Callable[[Request], Awaitable[View | Response]], console: int | None) -> None:
        self._view_of = view_of
        self._console = console

    def routes(self, *, has_console: bool) -> list[Route]:
        """All of them; `has_console`: the same listener shows the console, and its first page."""
        given = {
            "/getReadyQueueStat": ready_queues,
            "/getBucketStat": delayed_buckets,
            "/getTTRBucketStat": reserved_buckets,
            "/getJobsByBucketKey": jobs,
        }
        found = [Route(path, self._gives(gives), methods=["GET"]) for path, gives in given.items()]
        found += [
            Route(path, self._page, methods=["GET"])
            for path in (*PAGES, "/jobDetail")
            if not (has_console and path == "/")
        ]
        return found

    def _gives(self, gives: Gives) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if gives is jobs and not request.query_params.get("bucketKey"):
                return Response(told(None, 1, NO_KEY), 400, media_type=KIND)
            try:
                view = await self._view_of(request)
                if isinstance(view, Response):
                    return view
                return Response(told(await gives(view.client, request)), media_type=KIND)
            except NotAllowedError as refused:
                return Response(told(None, 1, str(refused.reason)), 403, media_type=KIND)
            except (QuorateError, OSError) as error:
                return Response(told(None, 1, f"the node can't be asked: {error}"), 503, media_type=KIND)

        return answer

    async def _page(self, request: Request) -> Response:
        if self._console is None:
            return PlainTextResponse("there is no console here\n", 404)
        path = PAGES.get(request.url.path)
        if path is None:
            path = "/message?" + urlencode({"find": request.query_params.get("jobId", "")}, quote_via=quote)
        elif path == DUE:
            found = bucket_of(request.query_params.get("bucketKey", ""))
            path += f"?state={found[1]}" if found else ""
        host = request.url.hostname or "127.0.0.1"
        named = f"[{host}]" if ":" in host else host
        return RedirectResponse(f"{request.url.scheme}://{named}:{self._console}{path}", 302)
