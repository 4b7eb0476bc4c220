"""/metrics, /healthz and /readyz: what Prometheus and a load balancer ask."""

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from console.views import COUNTED, Listed, Views
from quorate import NotAllowedError, QuorateError, RefusedError
from quorate.protocol import ErrorWord

STATES: Final = ("ready", "delayed", "in_flight")
BEARER: Final = "bearer "


class _Taken:
    """What was just looked at, as Prometheus' library asks for it."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """The families."""
        yield from self._families


def of_node(status: dict[str, Any], listed: Listed) -> list[Metric]:
    """All queues together, and the node. Base units: seconds, bytes."""
    sums = listed.sums()
    info = InfoMetricFamily("quorate_build", "The node that was asked")
    if status:
        info.add_metric([], {"version": str(status["version"]), "runs": str(status.get("runs", ""))})
    messages = GaugeMetricFamily("quorate_messages", "Live messages by state", labels=["state"])
    for state in STATES:
        messages.add_metric([state], sums[state])
    families: list[Metric] = [
        info,
        messages,
        GaugeMetricFamily("quorate_queues", "Queues", value=listed.count),
        GaugeMetricFamily(
            "quorate_queues_left_out", "Queues that are in no sum here", value=listed.count - len(listed.rows)
        ),
        GaugeMetricFamily("quorate_shards_missing", "Shards that could not be asked", value=len(listed.missing)),
        GaugeMetricFamily(
            "quorate_oldest_ready_seconds", "How long the oldest ready message waits", value=sums["oldest_s"]
        ),
        GaugeMetricFamily(
            "quorate_waiting_consumers", "Consumers that wait", value=sum(row["wait_status"] for row in listed.rows)
        ),
    ]
    families += [
        CounterMetricFamily(f"quorate_messages_{name}", f"Messages {name}, since their leader leads", value=sums[name])
        for name in COUNTED
    ]
    return [*families, *(_of_status(status) if status else ())]


def _of_status(status: dict[str, Any]) -> Iterator[Metric]:
    yield CounterMetricFamily("quorate_requests", "Requests that the node has read", value=status["requests"])
    yield GaugeMetricFamily("quorate_connections", "Clients that are connected", value=status["connections"])
    yield GaugeMetricFamily("quorate_uptime_seconds", "Since the node's worker began", value=status["uptime_s"])
    about = {
        "quorate_leader": ("The node_id that leads; 0: none does", "leader_node_id"),
        "quorate_elections": ("The vote_id: it rises with each election", "vote_id"),
        "quorate_log_records": ("Records in the log", "log_size"),
        "quorate_log_records_max": ("Records that the log keeps", "max_log_size"),
        "quorate_message_bytes": ("Data of live messages", "data_bytes"),
        "quorate_resident_memory_bytes": ("Of the shard's worker", "resident_bytes"),
        "quorate_committed_records": ("The last record that is committed", "committed"),
    }
    for name, (help_text, field) in about.items():
        family = GaugeMetricFamily(name, help_text, labels=["shard"])
        for row in status["shards"]:
            if row.get(field) is not None:
                family.add_metric([str(row["shard"])], float(row[field] or 0))
        yield family
    full = GaugeMetricFamily("quorate_disk_full", "1: nothing more can be stored", labels=["shard"])
    lag = GaugeMetricFamily(
        "quorate_replication_lag_records", "Records that a member is behind", labels=["shard", "node"]
    )
    for row in status["shards"]:
        full.add_metric([str(row["shard"])], 1.0 if row.get("disk_full") else 0.0)
        for member in row.get("members", ()):
            if member.get("lag") is not None:
                lag.add_metric([str(row["shard"]), str(member["node_id"])], float(member["lag"]))
    yield full
    yield lag


def of_queues(rows: list[dict[str, Any]], left_out: int, at: float) -> list[Metric]:
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
        oldest.add_metric([name], max(at - row["oldest"], 0.0) if row.get("oldest") else 0.0)
        waiting.add_metric([name], row["wait_status"])
        if row.get("dead_letters") is not None:
            dead.add_metric([name], row["dead_letters"])
        for what, family in counters.items():
            family.add_metric([name], row["totals"].get(what, 0))
    left = GaugeMetricFamily("quorate_queues_left_out", "Queues that are not told of here", value=left_out)
    return [messages, oldest, waiting, dead, *counters.values(), left]


class Metrics:
    """`queues_max`: so many queues are told of by name."""

    def __init__(self, views: Views, queues_max: int) -> None:
        self._views = views
        self._queues_max = queues_max

    def routes(self, serves: frozenset[str]) -> list[Route]:
        """Those that are to be served."""
        routes = []
        if "metrics" in serves:
            routes += [Route("/metrics", self._node), Route("/metrics/queues", self._queues)]
        if "health" in serves:
            routes += [Route("/healthz", self._alive), Route("/readyz", self._ready)]
        return routes

    def _told(self, request: Request, families: list[Metric]) -> Response:
        registry = CollectorRegistry()
        registry.register(_Taken(families))
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), media_type=kind)

    @staticmethod
    def _token(request: Request) -> str | None:
        given = request.headers.get("authorization", "")
        return given[len(BEARER) :].strip() or None if given.lower().startswith(BEARER) else None

    async def _refused(self, request: Request, error: Exception) -> Response:
        token = self._token(request)
        if token is not None:
            await self._views.ended(token)
        return self._refusal(error)

    @staticmethod
    def _refusal(error: Exception) -> Response:
        if isinstance(error, NotAllowedError) or (
            isinstance(error, RefusedError) and error.error == ErrorWord.NOT_AUTHENTICATED
        ):
            headers = {"www-authenticate": 'Bearer realm="quorate"'}
            return PlainTextResponse("a token with the right look to all queues is wanted\n", 401, headers)
        return PlainTextResponse(f"the node can't be asked: {error}\n", 503)

    async def _node(self, request: Request) -> Response:
        view = self._views.of(self._token(request))
        try:
            listed = await view.listed()
            return self._told(request, of_node(await view.status(), listed))
        except (QuorateError, OSError) as error:
            return await self._refused(request, error)

    async def _queues(self, request: Request) -> Response:
        view = self._views.of(self._token(request))
        try:
            listed = await view.matching(request.query_params.get("pattern", ""))
        except (QuorateError, OSError, ValueError) as error:
            return await self._refused(request, error)
        rows = listed.rows[: self._queues_max]
        return self._told(request, of_queues(rows, listed.count - len(rows), listed.at))

    async def _alive(self, request: Request) -> Response:
        """Whether the node answers at all; a refusal is an answer."""
        try:
            await self._views.of(None).client.request(8)
        except RefusedError:
            pass
        except (QuorateError, OSError):
            return PlainTextResponse("away\n", 503)
        return PlainTextResponse("ok\n")

    async def _ready(self, request: Request) -> Response:
        """Whether every shard has a leader that the node knows, and there is room on its disk."""
        view = self._views.of(None)
        try:
            reply = await view.client.request(8)
            if not reply.get("leader_node_id") or reply.get("missing_shards"):
                return PlainTextResponse("no leader\n", 503)
            if any(not row.get("leader_node_id") for row in reply.get("shards", ())):
                return PlainTextResponse("no leader\n", 503)
            status = await view.status()
        except NotAllowedError:
            return PlainTextResponse("ok\n")  # it answers, and tells strangers no more
        except RefusedError as refused:
            return PlainTextResponse(f"{refused.error}\n", 503)
        except (QuorateError, OSError):
            return PlainTextResponse("away\n", 503)
        if any(row.get("disk_full") for row in status.get("shards", ())):
            return PlainTextResponse("disk full\n", 503)
        return PlainTextResponse("ok\n")
