"""The pages: each is made on the server, works without scripts, and asks the node with the token of who looks."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from console import showing
from console.acting import ACTS, IDS_MAX, OF_MESSAGES, OF_TOPICS, SETTINGS, Asked, carried_out
from console.life import life_of, newest_of_key
from console.logins import LASTS_S, Logins
from console.topic_pages import topic_page, topics_page
from console.views import BROWSER, STATES, View, Views
from quorate import ConnectionFailedError, NotAllowedError, QuorateError, RefusedError
from quorate.expiry import expiry_of
from quorate.protocol import Action, ErrorWord

log = logging.getLogger("quorate.console")

QUIET_S: Final = 60.0
"""After it was logged that a page failed, so long no other is."""

HERE: Final = Path(__file__).parent
PAGE_ROWS: Final = 100
MESSAGES: Final = 50
DEAD_LOOKED_AT: Final = 1000
DUE: Final = 20
DUE_MAX: Final = 200
DUE_STATES: Final = ("delayed", "in_flight")
MOST_READY: Final = 10
SORTS: Final = (
    *("name", "ready", "delayed", "in_flight", "oldest", "came", "left", "dead_letters", "wait_status"),
    *("paused", "produced", "size"),
)
UPWARDS: Final = ("name", "oldest")
"""What is looked at from the least on at first: the oldest message stands in front."""

GROWING: Final = 1.0
TROUBLED: Final = 10
GROWING_LOOKED_AT: Final = 50
STATIC: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "uPlot.iife.min.js": "text/javascript",
    "uPlot.min.css": "text/css",
    "icon.svg": "image/svg+xml",
}
NOT_THERE: Final = (
    *(ErrorWord.NO_SUCH_QUEUE, ErrorWord.NO_SUCH_MESSAGE, ErrorWord.NO_SUCH_READER),
    *(ErrorWord.NO_SUCH_TOPIC, ErrorWord.NO_SUCH_GROUP),
)

Page = Callable[["Visit"], Awaitable[Response]]


def environment() -> Environment:
    """Read the templates, which escape all that is put into them."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for one in (
        showing.count,
        showing.rate,
        showing.duration,
        showing.instant,
        showing.ago,
        expiry_of,
        showing.size,
        showing.brief,
    ):
        made.filters[one.__name__] = one
    made.filters["query"] = lambda fields: urlencode({name: value for name, value in fields.items() if value != ""})
    return made


class Visit:
    """One request of somebody's: what it says, and the view of who sent it."""

    def __init__(self, request: Request, view: View, name: str | None) -> None:
        self.request = request
        self.view = view
        self.name = name
        self.client = view.client

    def said(self, name: str, default: str = "") -> str:
        """Read a field of the address."""
        return str(self.request.query_params.get(name, default))


class WrongError(Exception):
    """What was asked can't be: the status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def number(text: str, name: str) -> int:
    """Read a number of the address. Raises `WrongError`."""
    if not text.isascii() or not text.isdigit() or len(text) > 16:
        raise WrongError(400, f"{name} is {text[:40]!r}, and a number is wanted")
    return int(text)


class Pages:
    """All of them. `is_secure`: whether cookies go by TLS alone.

    Browsers keep cookies by host, whatever the port: its number is in the name, or two consoles log each other out.
    """

    def __init__(self, views: Views, logins: Logins, port: int, *, is_secure: bool) -> None:
        self._views = views
        self._logins = logins
        self._is_secure = is_secure
        self._quiet_until = 0.0
        self._templates = environment()
        self._static = {name: (HERE / "static" / name).read_bytes() for name in STATIC}
        self._cookie = f"{'__Host-' if is_secure else ''}quorate_console_{port}"

    def routes(self) -> list[Route]:
        """Where they are."""
        pages: dict[str, Page] = {
            "/": self._overview,
            "/queues": self._queues,
            "/queue": self._queue,
            "/topics": self._topics,
            "/topic": self._topic,
            "/message": self._message,
            "/message/data": self._data,
            "/due": self._due,
            "/dead": self._dead,
            "/act": self._act,
            "/samples": self._samples,
        }
        routes = [Route(path, self._page(page), methods=["GET"]) for path, page in pages.items()]
        return [
            *routes,
            Route("/act", self._page(self._do), methods=["POST"]),
            Route("/login", self._login_page, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/static/{name}", self._file, methods=["GET"]),
            Route("/favicon.ico", self._icon, methods=["GET"]),
        ]

    # -- around every page -------------------------------------------------------------------------------------

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def made(request: Request) -> Response:
            login = self._logins.find(request.cookies.get(self._cookie), time.monotonic())
            visit = Visit(request, self._views.of(login.token if login else None), login.name if login else None)
            BROWSER.set(request.client.host if request.client else "")
            try:
                return await page(visit)
            except WrongError as wrong:
                return self._wrong(visit, wrong.status, str(wrong))
            except NotAllowedError as refused:
                if login is None and not request.headers.get("x-fragment"):
                    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                    return RedirectResponse(f"/login?{urlencode({'back': back})}", 303)
                return self._wrong(visit, 403, refused.reason or "that is not allowed to you")
            except RefusedError as refused:
                if refused.error == ErrorWord.NOT_AUTHENTICATED:
                    self._logins.end(request.cookies.get(self._cookie))
                    return RedirectResponse("/login", 303)
                status = 404 if refused.error in NOT_THERE else 400
                if refused.error in (ErrorWord.NO_LEADER, ErrorWord.STOPPING, ErrorWord.OVERLOADED):
                    status = 503
                return self._wrong(visit, status, refused.reason or refused.error)
            except (ValueError, TypeError) as error:
                return self._wrong(visit, 400, str(error))
            except (ConnectionFailedError, QuorateError, OSError) as error:
                return self._wrong(visit, 503, f"The node can't be reached: {error}. This page tries again by itself.")
            except Exception as error:
                self._failed(request.url.path, error)
                return self._wrong(visit, 500, "This page failed by an error of the console's own; its log says more.")

        return made

    def _failed(self, path: str, error: Exception) -> None:
        """Log what a page has raised, once a minute at most: whoever asks may ask again and again."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET_S
            log.error("the page %s failed", path, exc_info=error)

    def _shown(self, visit: Visit, template: str, code: int = 200, **about: Any) -> Response:
        bare = bool(visit.request.headers.get("x-fragment"))
        about |= {"bare": bare, "name": visit.name, "path": visit.request.url.path, "now": time.time()}
        try:
            text = self._templates.get_template(template).render(said=visit.said, **about)
        except (TypeError, ValueError) as error:
            raise RuntimeError(f"{template} can't be made") from error  # a fault of ours, not of who asks
        return HTMLResponse(text, code)

    def _wrong(self, visit: Visit, status: int, reason: str) -> Response:
        return self._shown(visit, "wrong.html", status, reason=reason, status_text=HTTPStatus(status).phrase)

    async def _form(self, visit: Visit) -> dict[str, list[str]]:
        kind = visit.request.headers.get("content-type", "").partition(";")[0].strip()
        if kind != "application/x-www-form-urlencoded":
            raise WrongError(400, "a form is wanted")
        body = await visit.request.body()  # the guard has bounded it
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=IDS_MAX + 50)
        except ValueError as error:
            raise WrongError(400, f"that is no form: {error}") from None
        form: dict[str, list[str]] = {}
        for name, value in pairs:
            form.setdefault(name, []).append(value)
        return form

    # -- logging in --------------------------------------------------------------------------------------------

    def _login_view(self, request: Request, said: str, status: int = 200) -> Response:
        visit = Visit(request, self._views.of(None), None)
        return self._shown(visit, "login.html", status, problem=said, back=back_of(visit.said("back")))

    async def _login_page(self, request: Request) -> Response:
        return self._login_view(request, "")

    async def _login(self, request: Request) -> Response:
        address = request.client.host if request.client else ""
        visit = Visit(request, self._views.of(None), None)
        try:
            form = await self._form(visit)
        except WrongError as wrong:
            return self._login_view(request, str(wrong), wrong.status)
        token = form.get("token", [""])[0].strip()
        is_known = self._views.has(token)
        pause_s = 0.0 if is_known else self._logins.wait(address, time.monotonic())
        if pause_s is None:
            return self._login_view(request, "Too many log-ins that failed: try again in a while.", 429)
        try:
            await asyncio.sleep(pause_s)
            name = await self._views.principal(token) if token and token.isprintable() else None
        except (QuorateError, OSError) as error:
            self._logins.failed(address, time.monotonic())
            return self._login_view(request, f"The node can't be asked: {error}", 503)
        finally:
            if not is_known:
                self._logins.waited(address)
        if name is None:
            self._logins.failed(address, time.monotonic())
            return self._login_view(request, "That is no token of this node's.", 403)
        self._logins.end(request.cookies.get(self._cookie))
        cookie = self._logins.begin(token, name, time.monotonic())
        response = RedirectResponse(back_of(form.get("back", ["/"])[0]), 303)
        response.set_cookie(
            self._cookie,
            cookie,
            max_age=int(LASTS_S),
            httponly=True,
            samesite="strict",
            secure=self._is_secure or request.headers.get("origin", "").startswith("https:"),  # a proxy speaks TLS
        )
        return response

    async def _logout(self, request: Request) -> Response:
        cookie = request.cookies.get(self._cookie)
        login = self._logins.find(cookie, time.monotonic())
        self._logins.end(cookie)
        if login is not None and not self._logins.has_token(login.token, time.monotonic()):
            await self._views.ended(login.token)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", secure=self._is_secure)
        return response

    # -- files -------------------------------------------------------------------------------------------------

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return PlainTextResponse("there is no such file\n", 404)
        return Response(self._static[name], media_type=STATIC[name], headers={"cache-control": "max-age=3600"})

    async def _icon(self, request: Request) -> Response:
        return Response(
            self._static["icon.svg"], media_type="image/svg+xml", headers={"cache-control": "max-age=86400"}
        )

    # -- looking -----------------------------------------------------------------------------------------------

    async def _overview(self, visit: Visit) -> Response:
        view = visit.view
        sums, status = await asyncio.gather(view.sums(), view.status())
        with_dead, fast, most = await asyncio.gather(
            view.page(sort="dead_letters", descending=True, count=TROUBLED),
            view.page(sort="came", descending=True, count=GROWING_LOOKED_AT),
            view.page(sort="ready", descending=True, count=MOST_READY),
        )
        next_at = dict.fromkeys(DUE_STATES, 0.0)
        for state in DUE_STATES:
            if sums.is_of_all and sums.counts[state]:
                for message in await view.soonest(state, 1, sums.missing):
                    next_at[state] = message["due_at"]
        troubled = {row["name"]: row for row in fast["rows"] if is_growing(row)}
        troubled |= {row["name"]: row for row in with_dead["rows"] if row["dead_letters"]}
        return self._shown(
            visit,
            "overview.html",
            sums=sums,
            status=status,
            next_at=next_at,
            most=[row for row in most["rows"] if row["ready"]],
            troubled=list(troubled.values())[:TROUBLED],
            is_growing=is_growing,
        )

    async def _queues(self, visit: Visit) -> Response:
        sort, pattern, is_all = visit.said("sort", "name"), visit.said("pattern"), bool(visit.said("system"))
        if sort not in SORTS:
            raise WrongError(400, f"sort is {sort[:40]!r}: one of {', '.join(SORTS)}")
        asked = {"sort": sort, "descending": bool(visit.said("down")) or None, "after": visit.said("after") or None}
        found, _ = await asyncio.gather(
            visit.view.page(pattern=pattern or None, count=PAGE_ROWS, system=is_all or None, **asked),
            look_at_rates(visit),
        )
        return self._shown(
            visit,
            "queues.html",
            rows=found["rows"],
            most=max((row["ready"] for row in found["rows"]), default=0),
            count=found["queue_count"],
            missing=found.get("missing_shards") or [],
            next=found.get("next", ""),
            sort=sort,
            down=visit.said("down"),
            pattern=pattern,
            system="1" if is_all else "",
            after=visit.said("after"),
            upwards=UPWARDS,
            is_growing=is_growing,
        )

    async def _topics(self, visit: Visit) -> Response:
        about = await topics_page(visit.view, visit.said("pattern"), visit.said("after"))
        return self._shown(visit, "topics.html", **about)

    async def _topic(self, visit: Visit) -> Response:
        where = [number(visit.said(name), name) if visit.said(name) else None for name in ("partition", "offset")]
        about = await topic_page(visit.view, visit.said("name"), visit.said("group"), *where)
        return self._shown(visit, "topic.html", **about)

    async def _queue(self, visit: Visit) -> Response:
        name, state = visit.said("name"), visit.said("state", "ready")
        if state not in STATES:
            raise WrongError(400, f"state is {state[:40]!r}: one of {', '.join(STATES)}")
        counts, _ = await asyncio.gather(visit.view.queue(name), look_at_rates(visit))
        fields = {"queue": name, "state": state, "count": MESSAGES, "after": visit.said("after") or None}
        reply = await visit.client.request(Action.PEEK, **fields)
        return self._shown(
            visit,
            "queue.html",
            queue=name,
            counts=counts,
            row=counts["row"],
            is_growing=is_growing,
            state=state,
            messages=reply["messages"],
            next=reply.get("next", ""),
            settings=counts["settings"],
            names=SETTINGS,
        )

    async def _due(self, visit: Visit) -> Response:
        """List the messages of all queues whose time comes first."""
        state, count = visit.said("state", "delayed"), number(visit.said("count", str(DUE)), "count")
        if state not in DUE_STATES:
            raise WrongError(400, f"state is {state[:40]!r}: one of {', '.join(DUE_STATES)}")
        listed = await visit.view.page(count=1)
        missing = listed.get("missing_shards") or []
        count = min(max(count, 1), DUE_MAX)
        messages = await visit.view.soonest(state, count, missing)
        more = min(count * 2, DUE_MAX) if len(messages) == count < DUE_MAX else 0
        return self._shown(visit, "due.html", state=state, messages=messages, missing=missing, more=more)

    async def _found(self, visit: Visit) -> tuple[int, dict[str, Any] | None]:
        """Find the message that is meant: by `id`, by `queue` and `key`, by a `key` that is one among all; or by
        either."""
        either, key, queue = visit.said("find").strip(), visit.said("key"), visit.said("queue")
        if visit.said("id"):
            return await self._by_id(visit, number(visit.said("id"), "id"))
        if queue:
            message = await visit.client.show(queue=queue, key=key)
            return message.msg_id, showing.as_shown(message)
        key = key or either
        if not key:
            raise WrongError(400, "which message? An id is missing, and so is a key.")
        found = await self._keyed(visit, key)
        if found is not None:
            return int(found["msg_id"]), found
        numbered: tuple[int, dict[str, Any] | None] = (0, None)
        if either.isascii() and either.isdigit():
            numbered = await self._by_id(visit, number(either, "id"))
            if numbered[1] is not None:
                return numbered
        newest = await self._gone(visit, key) or numbered[0]
        if not newest:
            raise WrongError(404, f"There is no message with the key {key[:80]!r}, as far as the log can be read.")
        return newest, None

    @staticmethod
    async def _by_id(visit: Visit, msg_id: int) -> tuple[int, dict[str, Any] | None]:
        try:
            return msg_id, showing.as_shown(await visit.client.show(msg_id))
        except RefusedError as refused:
            if refused.error not in (ErrorWord.NO_SUCH_MESSAGE, ErrorWord.FIELD):  # an id that there can't be
                raise
            return msg_id, None

    @staticmethod
    async def _gone(visit: Visit, key: str) -> int | None:
        """Find the last message that had a key which was one among all, as far as the log is there and may be read."""
        status = await visit.view.status()
        with suppress(NotAllowedError):
            return await newest_of_key(visit.client, key, max(len(status.get("shards", ())), 1))
        return None

    @staticmethod
    async def _keyed(visit: Visit, key: str) -> dict[str, Any] | None:
        try:
            return showing.as_shown(await visit.client.show(key=key))
        except RefusedError as refused:
            if refused.error not in (ErrorWord.NO_SUCH_MESSAGE, ErrorWord.NOT_SUPPORTED, ErrorWord.FIELD):
                raise
            return None

    async def _message(self, visit: Visit) -> Response:
        msg_id, message = await self._found(visit)
        note, events, produced = "", [], None
        try:
            life = await life_of(visit.client, msg_id, None if message is None else message["trans_id"])
            events, produced, note = life.events, life.produced, life.note
        except NotAllowedError:
            note = "Its life is in the change log, which you may not read (the right log)."
        except RefusedError as refused:
            if refused.error != ErrorWord.FIELD:
                raise
            raise WrongError(404, f"There is no message {msg_id}: {refused.reason}") from None
        if message is None and not events:
            raise WrongError(404, f"There is no message {msg_id}, and the log knows nothing of it. {note}")
        told = message or produced
        text, kind, is_all = showing.shown(told) if told else ("", "", True)
        headers = [(name, value[: showing.DATA_SHOWN]) for name, value in ((told or {}).get("headers") or {}).items()]
        return self._shown(
            visit,
            "message.html",
            msg_id=msg_id,
            message=message,
            told=told or {},
            text=text,
            kind=kind,
            is_all=is_all,
            headers=headers,
            events=events,
            note=note,
        )

    async def _data(self, visit: Visit) -> Response:
        msg_id, message = await self._found(visit)
        if message is None:
            raise WrongError(404, f"there is no message {msg_id}")
        headers = {"content-disposition": f'attachment; filename="message-{msg_id}"'}
        return Response(showing.bytes_of(message), media_type="application/octet-stream", headers=headers)

    async def _dead(self, visit: Visit) -> Response:
        listed = await visit.view.page(sort="dead_letters", descending=True, count=PAGE_ROWS)
        names = {row["dead_letter"]: row["dead_letters"] for row in listed["rows"] if row["dead_letters"]}
        found = []
        for name, size in names.items():
            try:
                reply = await visit.client.request(Action.PEEK, queue=name, state="ready", count=DEAD_LOOKED_AT)
            except NotAllowedError:
                continue
            dead = [one["dead"] for one in reply["messages"] if one.get("dead")]
            groups = Counter((one["queue"], str(one.get("reason") or "not said")[:200]) for one in dead)
            row = {"name": name, "size": size, "groups": groups.most_common(20), "looked_at": len(reply["messages"])}
            found.append(row)
        is_more = bool(listed.get("next")) and all(row["dead_letters"] for row in listed["rows"])
        return self._shown(visit, "dead.html", found=found, is_more=is_more)

    async def _samples(self, visit: Visit) -> Response:
        name = visit.said("queue")
        if name:
            await visit.view.queue(name)
            return JSONResponse(visit.view.watch(name).columns())
        sums = await visit.view.sums()
        return JSONResponse(visit.view.samples.columns() if sums.is_of_all else [])

    # -- doing -------------------------------------------------------------------------------------------------

    async def _act(self, visit: Visit) -> Response:
        """Say what an action is about to do."""
        pairs = visit.request.query_params.multi_items()
        return await self._asked(visit, asked_of([(name, value) for name, value in pairs]), visit.said("act"), "")

    async def _asked(self, visit: Visit, asked: Asked, name: str, problem: str, status: int = 200) -> Response:
        act = ACTS.get(name)
        if act is None:
            raise WrongError(404, f"there is no action {name[:40]!r}")
        if not asked.ids and ("chosen" in asked.fields or name in OF_MESSAGES):
            raise WrongError(400, "No message was chosen.")
        if not asked.queue and name not in OF_MESSAGES and "topic" not in act.fields:
            raise WrongError(400, "queue is missing")
        counts = await visit.client.monitor(asked.queue) if asked.queue else None
        return self._shown(
            visit,
            "act.html",
            status,
            act=act,
            action=name,
            asked=asked,
            says=act.says(asked),
            counts=counts,
            problem=problem,
            of_topics=OF_TOPICS,
            settings={} if counts is None else counts.get("settings", {}),
        )

    async def _do(self, visit: Visit) -> Response:
        if visit.name is None:  # nothing of a form is read that a visitor without a log-in may not send
            await visit.client.request(Action.LEADER)
        form = await self._form(visit)
        asked = asked_of([(name, value) for name, values in form.items() for value in values])
        name = form.get("act", [""])[0]
        act = ACTS.get(name)
        if act is None:
            raise WrongError(404, f"there is no action {name[:40]!r}")
        if act.is_grave and asked.fields.get("typed") != asked.queue:
            problem = "The name that was typed is another one: nothing was done."
            return await self._asked(visit, asked, name, problem, 400)
        done = await carried_out(act, visit.client, asked)
        visit.view.changed()
        return self._shown(
            visit, "done.html", 200 if done.is_well else 409, act=act, done=done, asked=asked, action=name
        )


async def look_at_rates(visit: Visit) -> None:
    """Ask for sums, so that the node reckons rates; who may not see all queues sees none."""
    with suppress(NotAllowedError):
        await visit.view.sums()


def is_growing(row: dict[str, Any]) -> bool:
    """Whether more comes into a queue than leaves it, and nobody waits for it."""
    return bool(row["ready"] and not row["wait_status"] and (row["came"] or 0.0) > (row["left"] or 0.0) + GROWING)


def asked_of(pairs: list[tuple[str, str]]) -> Asked:
    """Read what a form says. Raises `WrongError`."""
    ids = [number(value, "id") for name, value in pairs if name == "id"]
    if len(ids) > IDS_MAX:
        raise WrongError(400, f"{len(ids)} messages: {IDS_MAX} at a time")
    fields = {name: value for name, value in pairs if name not in ("id", "queue", "act")}
    return Asked(next((value for name, value in pairs if name == "queue"), ""), ids, fields)


def back_of(path: str) -> str:
    """Where to go after logging in: a page of ours."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours else "/"
