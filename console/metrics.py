"""/metrics, /healthz and /readyz: what Prometheus and a load balancer ask."""

import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from console.logins import Logins
from console.views import COUNTED, STATES, View, Views
from quorate import NotAllowedError, QuorateError, RefusedError
from quorate.protocol import Action, ErrorWord
from quorate.replies import NodeMetrics
from quorate.stream_replies import GroupRow, TopicRow

BEARER: Final = "bearer "
WANTED: Final = "a token with the right look to all queues is wanted\n"
CHALLENGE: Final = {"www-authenticate": 'Bearer realm="quorate"'}
Families = Callable[[View, Request], Awaitable[list[Metric]]]

DAY_S: Final = 86_400.0
GAUGES: Final = (
    ("quorate_prepared_transactions", "Transactions in two phases that wait for a decision", "prepared"),
    ("quorate_prepared_oldest_seconds", "For how long the oldest of them does", "prepared_s"),
    ("quorate_leader", "The node_id that leads; 0: none that is known", "leader_node_id"),
    ("quorate_vote_id", "It rises with each election", "vote_id"),
    ("quorate_committed_records", "The last record that is committed", "committed"),
    ("quorate_log_records", "Records in the log", "log_records"),
    ("quorate_log_records_max", "Records that the log keeps", "log_records_max"),
    ("quorate_queues", "Queues", "queues"),
    ("quorate_message_bytes", "Data of live messages", "data_bytes"),
    ("quorate_dead_letters", "Messages in queues for dead letters", "dead_letters"),
    ("quorate_waiting_consumers", "Consumers that wait", "waiting_consumers"),
    ("quorate_connections", "Clients that are connected", "connections"),
    ("quorate_open_requests", "Requests that are not answered yet", "open_requests"),
    ("quorate_uptime_seconds", "Since the shard's worker began", "uptime_s"),
    ("quorate_resident_memory_bytes", "Of the shard's worker", "resident_bytes"),
    ("quorate_open_descriptors", "Of the shard's worker", "descriptors"),
)
COUNTERS: Final = (
    ("quorate_cpu_seconds", "What the shard's worker has used of the processors", "cpu_s"),
    ("quorate_elections", "Elections that this node has begun", "elections"),
    ("quorate_ignored_fields", "Requests with fields that there are not, done without them", "ignored_fields"),
    ("quorate_internal_errors", "Requests that the node failed at by an error of its own", "internal_errors"),
)
HISTOGRAMS: Final = (
    (
        "quorate_commit_seconds",
        "From an entry's leaving for the log until it is committed",
        "commit_seconds",
        "seconds",
    ),
    ("quorate_journal_write_seconds", "A write to the journal", "journal_write_seconds", "seconds"),
    ("quorate_entry_records", "Records of an entry", "entry_records", "records"),
)


class _Taken:
    """What was just looked at, as Prometheus' library asks for it."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Give the families."""
        yield from self._families


def of_node(reply: NodeMetrics) -> list[Metric]:
    """Make a node's numbers (docs/protocol.md, 109). Base units: seconds, bytes."""
    info = InfoMetricFamily("quorate_build", "The node that was asked")
    info.add_metric([], {"version": str(reply["version"]), "runs": str(reply.get("runs", ""))})
    missing = reply.get("missing_shards") or []
    families: list[Metric] = [
        info,
        shards_missing(len(missing)),
    ]
    rows = [(str(row["shard"]), row) for row in reply["shards"]]
    families += _plain(rows)
    families += _of_requests(rows, reply)
    return families


def shards_missing(count: int) -> Metric:
    """Tell of shards that are missing: what is left out because of them is not known."""
    return GaugeMetricFamily("quorate_shards_missing", "Shards that could not be asked", value=count)


def _family(kind: type[Any], name: str, help_text: str, labels: list[str], found: Iterator[Any]) -> Metric:
    """One with all that is found: label values and a value each."""
    family = kind(name, help_text, labels=labels)
    for values, value in found:
        family.add_metric(values, float(value))
    return cast("Metric", family)


def _plain(rows: list[tuple[str, dict[str, Any]]]) -> Iterator[Metric]:
    """One number a shard each; where another node leads the shard, it tells of its messages."""
    led = [(shard, row) for shard, row in rows if "messages" in row]
    for name, help_text, field in GAUGES:
        yield _family(
            *(GaugeMetricFamily, name, help_text, ["shard"]),
            (([shard], row[field]) for shard, row in rows if row.get(field) is not None),
        )
    for name, help_text, field in COUNTERS:
        yield _family(
            *(CounterMetricFamily, name, help_text, ["shard"]), (([shard], row.get(field, 0)) for shard, row in rows)
        )
    yield _family(
        *(GaugeMetricFamily, "quorate_disk_full", "1: nothing more can be stored", ["shard"]),
        (([shard], bool(row["disk_full"])) for shard, row in rows),
    )
    yield _family(
        *(GaugeMetricFamily, "quorate_replication_lag_records", "Records that a follower is behind", ["shard", "node"]),
        (([shard, node], lag) for shard, row in rows for node, lag in row["lag"].items()),
    )
    yield _family(
        *(GaugeMetricFamily, "quorate_messages", "Live messages by state", ["shard", "state"]),
        (([shard, state], row["messages"][state]) for shard, row in led for state in STATES),
    )
    yield _family(
        *(GaugeMetricFamily, "quorate_oldest_ready_seconds", "How long the oldest ready message waits", ["shard"]),
        (([shard], max(row["at"] - row["oldest"], 0.0) if row["oldest"] else 0.0) for shard, row in led),
    )
    yield _family(
        *(GaugeMetricFamily, "quorate_certificate_days_left", "Until a certificate ends", ["shard", "setting"]),
        (
            ([shard, setting], (ends_at - time.time()) / DAY_S)
            for shard, row in rows
            for setting, ends_at in row.get("certificates", {}).items()
        ),
    )
    for name in COUNTED:
        yield _family(
            *(CounterMetricFamily, f"quorate_messages_{name}", f"Messages {name}, since this node leads", ["shard"]),
            (([shard], row["totals"][name]) for shard, row in led),
        )


def _of_requests(rows: list[tuple[str, dict[str, Any]]], reply: NodeMetrics) -> Iterator[Metric]:
    yield _family(
        *(CounterMetricFamily, "quorate_requests", "Requests that were answered", ["shard", "action", "result"]),
        (
            ([shard, action, result], count)
            for shard, row in rows
            for action, results in row["requests"].items()
            for result, count in results.items()
        ),
    )
    yield _family(
        *(CounterMetricFamily, "quorate_limits_reached", "Refusals for a limit that was reached", ["shard", "limit"]),
        (([shard, limit], count) for shard, row in rows for limit, count in row["limits_reached"].items()),
    )
    seconds = HistogramMetricFamily(
        "quorate_request_seconds",
        "From a request's reading to its reply, without those that wait",
        labels=["shard", "action"],
    )
    for shard, row in rows:
        for action, told in row["request_seconds"].items():
            seconds.add_metric([shard, action], *_buckets(told, reply["seconds"]))
    yield seconds
    for name, help_text, field, bounds in HISTOGRAMS:
        family = HistogramMetricFamily(name, help_text, labels=["shard"])
        for shard, row in rows:
            family.add_metric([shard], *_buckets(row[field], reply["seconds" if bounds == "seconds" else "records"]))
        yield family


def _buckets(told: dict[str, Any], bounds: list[float]) -> tuple[list[tuple[str, float]], float]:
    """As Prometheus counts: all up to each bound."""
    names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    return list(zip(names, accumulate(map(float, told["counts"])), strict=True)), told["sum"]


def of_queues(rows: list[dict[str, Any]], left_out: int) -> list[Metric]:
    """Each of those queues."""
    messages = GaugeMetricFamily("quorate_queue_messages", "Live messages by state", labels=["queue", "state"])
    oldest = GaugeMetricFamily(
        "quorate_queue_oldest_ready_seconds", "How long the oldest ready one waits", labels=["queue"]
    )
    waiting = GaugeMetricFamily("quorate_queue_waiting_consumers", "Consumers that wait", labels=["queue"])
    dead = GaugeMetricFamily("quorate_queue_dead_letters", "Messages in its dead letter queue", labels=["queue"])
    counters = {
        name: CounterMetricFamily(f"quorate_queue_messages_{name}", f"Messages {name}", labels=["queue"])
        for name in COUNTED
    }
    for row in rows:
        name = row["name"]
        for state in STATES:
            messages.add_metric([name, state], row[state])
        oldest.add_metric([name], row["oldest_s"])
        waiting.add_metric([name], row["wait_status"])
        if row["dead_letters"] is not None:
            dead.add_metric([name], row["dead_letters"])
        for what, family in counters.items():
            family.add_metric([name], row["totals"][what])
    left = GaugeMetricFamily("quorate_queues_left_out", "Queues that are not told of here", value=left_out)
    return [messages, oldest, waiting, dead, *counters.values(), left]


TOPIC_GAUGES: Final = (
    ("quorate_topic_messages", "Messages that are kept", "messages"),
    ("quorate_topic_bytes", "Of the messages that are kept", "bytes"),
    ("quorate_topic_partitions", "Partitions", "partitions"),
    ("quorate_topic_groups", "Groups that read it", "groups"),
)


def of_topics(topics: list[TopicRow], groups: list[tuple[str, GroupRow]], left_out: int) -> list[Metric]:
    """Each of those topics, and the groups of each."""
    families: list[Metric] = []
    for name, help_text, field in TOPIC_GAUGES:
        told = (([row.name], getattr(row, field)) for row in topics)
        families.append(_family(GaugeMetricFamily, name, help_text, ["topic"], told))
    appended = (([row.name], row.appended) for row in topics)
    families.append(_family(CounterMetricFamily, "quorate_topic_appended", "Messages appended", ["topic"], appended))
    labels = ["topic", "group"]
    families += [
        _family(
            *(GaugeMetricFamily, "quorate_group_lag_messages", "Messages that the group has not read", labels),
            (([topic, row.group], row.lag) for topic, row in groups),
        ),
        _family(
            *(GaugeMetricFamily, "quorate_group_lag_seconds", "How old the first of them is, where known", labels),
            (([topic, row.group], row.lag_s) for topic, row in groups if row.lag_s is not None),
        ),
        _family(
            *(GaugeMetricFamily, "quorate_group_members", "Members of the group", labels),
            (([topic, row.group], row.members) for topic, row in groups),
        ),
        GaugeMetricFamily("quorate_topics_left_out", "Topics that are not told of here", value=left_out),
    ]
    return families


class Metrics:
    """`queues_max`: so many queues are told of by name. Who shows tokens that are none is refused for a while."""

    def __init__(self, views: Views, logins: Logins, queues_max: int) -> None:
        self._views = views
        self._logins = logins
        self._queues_max = queues_max

    def routes(self, serves: frozenset[str]) -> list[Route]:
        """Those that are to be served."""
        routes = []
        if "metrics" in serves:
            routes += [Route("/metrics", self._told(self._node)), Route("/metrics/queues", self._told(self._queues))]
            routes.append(Route("/metrics/topics", self._told(self._topics)))
        if "health" in serves:
            routes += [Route("/healthz", self._alive), Route("/readyz", self._ready)]
        return routes

    def _told(self, families: Families) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                view = await self.view_of(request)
                if isinstance(view, Response):
                    return view
                registry = CollectorRegistry()
                registry.register(_Taken(await families(view, request)))
            except NotAllowedError:
                return PlainTextResponse(WANTED, 401, CHALLENGE)
            except RefusedError as refused:
                if refused.error == ErrorWord.NOT_AUTHENTICATED:  # it is nobody's any more
                    await self._views.ended(_token_of(request) or "")
                    return PlainTextResponse(WANTED, 401, CHALLENGE)
                status = 400 if refused.error == ErrorWord.FIELD else 503
                return PlainTextResponse(f"{refused.reason or refused.error}\n", status)
            except (QuorateError, OSError, ValueError) as error:
                return PlainTextResponse(f"the node can't be asked: {error}\n", 503)
            try:
                encode, kind = choose_encoder(request.headers.get("accept", ""))
            except (TypeError, ValueError):  # a version that is none
                encode, kind = choose_encoder("")
            return Response(encode(registry), media_type=kind)

        return answer

    async def view_of(self, request: Request) -> View | Response:
        """Give the view of whose token it is, or what is said of one that is none, or of too many such from there."""
        token = _token_of(request)
        if token is None or self._views.has(token):
            return self._views.of(token, looks=False)
        address, now = request.client.host if request.client else "", time.monotonic()
        if self._logins.is_barred(address, now):
            return PlainTextResponse("too many tokens that are none\n", 429, {"retry-after": "10"})
        try:
            name = await self._views.principal(token) if token.isprintable() else None
        except RefusedError as refused:
            if refused.error != ErrorWord.NOT_SUPPORTED:
                raise
            return self._views.of(None, looks=False)  # the node knows no tokens: everybody may ask
        if name is None:
            self._logins.failed(address, time.monotonic())
            return PlainTextResponse(WANTED, 401, CHALLENGE)
        return self._views.of(token, looks=False)

    async def _node(self, view: View, request: Request) -> list[Metric]:
        return of_node(await view.node.metrics())

    async def _queues(self, view: View, request: Request) -> list[Metric]:
        found = await view.queues(request.query_params.get("pattern", ""), self._queues_max)
        missing = found.get("missing_shards") or []
        return [*of_queues(found["rows"], found["queue_count"] - len(found["rows"])), shards_missing(len(missing))]

    async def _topics(self, view: View, request: Request) -> list[Metric]:
        topics, groups, found = await view.topics(request.query_params.get("pattern", ""), self._queues_max)
        missing = found.get("missing_shards") or []
        left_out = found["topic_count"] - len(topics)
        return [*of_topics(topics, groups, left_out), shards_missing(len(missing))]

    async def _alive(self, request: Request) -> Response:
        """Whether the node answers at all; a refusal is an answer."""
        try:
            await self._views.health.request(Action.LEADER)
        except RefusedError:
            pass
        except (QuorateError, OSError):
            return PlainTextResponse("away\n", 503)
        return PlainTextResponse("ok\n")

    async def _ready(self, request: Request) -> Response:
        """Whether the node knows a leader of every shard, and has room on its disk. No token is needed for that."""
        try:
            await self._views.health.request(Action.NODE_READY)
        except RefusedError as refused:
            return PlainTextResponse(f"{refused.error.replace('_', ' ')}\n", 503)
        except (QuorateError, OSError):
            return PlainTextResponse("away\n", 503)
        return PlainTextResponse("ok\n")


def _token_of(request: Request) -> str | None:
    given = request.headers.get("authorization", "")
    return given[len(BEARER) :].strip() or None if given.lower().startswith(BEARER) else None
