"""Report: what the log says of its queues, as Parquet tables and one page that a person reads.

Lifecycles are made once and stored; everything else is read from them. What the page shows is small by then, and is
read without Spark, of which each first query of a kind costs half a second.
"""

import json
import shutil
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from data import frames
from data.charts import bars as bar_chart
from data.charts import lines
from data.page import Section, Table, duration, page, shown
from data.progress import Progress, Silent

STEPS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400)
POINTS_MAX: Final = 240
LINES_MAX: Final = 8
BARS_MAX: Final = 12
ROWS_MAX: Final = 50
SLOWEST: Final = 100
SHOWN_SLOWEST: Final = 20
PAGE: Final = "report.html"
OURS: Final = frozenset({PAGE, "totals.json", "lifecycles", "queues", "backlog", "slowest", "topics"})
ALL_OTHERS: Final = "all others"

QUEUE_COLUMNS: Final = (
    ("queue", "queue"), ("produced", "produced"), ("delivered", "delivered"), ("confirmed", "confirmed"),
    ("taken", "taken (at most once)"), ("redeliveries", "redeliveries"), ("expired", "expired"),
    ("buried", "dead-lettered"), ("moved", "moved away"), ("arrived", "came from others"), ("cleared", "cleared"),
    ("open", "still there"), ("produced_per_s", "produced/s"), ("deliver_p50", "first delivery p50"),
    ("deliver_p95", "p95"), ("deliver_p99", "p99"), ("confirm_p50", "done p50"), ("confirm_p95", "p95"),
    ("confirm_p99", "p99"),
)  # fmt: skip
TOPIC_COLUMNS: Final = (
    ("topic", "topic"), ("appended", "appended"), ("partitions", "partitions"), ("since", "first"),
    ("until", "last"), ("appended_per_s", "appended/s"),
)  # fmt: skip
SLOW_COLUMNS: Final = (
    ("queue", "queue"), ("msg_id", "msg_id"), ("produced", "produced"), ("first_delivered", "first delivered"),
    ("ended", "done"), ("deliveries", "deliveries"), ("took", "took"),
)  # fmt: skip


def run(
    spark: SparkSession,
    records: DataFrame,
    out: Path,
    *,
    source: str,
    buries: DataFrame | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Make the report of `records` (`data.schema`) in the folder `out`; returns its totals. `source` says where from.

    `buries`: see `frames.with_arrivals`. Tables: lifecycles, queues, backlog, slowest, topics.
    Raises FileExistsError for a folder of other things.
    """
    progress = progress or Silent()
    if out.exists() and not {one.name for one in out.iterdir()} <= OURS:
        raise FileExistsError(f"{out} is not empty, and no report")
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    beside.chmod(0o755)  # of a Spark cluster, others may read it
    try:
        return _made(spark, records, out, beside, source=source, buries=buries, progress=progress)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _made(
    spark: SparkSession,
    records: DataFrame,
    out: Path,
    beside: Path,
    *,
    source: str,
    buries: DataFrame | None,
    progress: Progress,
) -> dict[str, Any]:
    """Make it in the folder `beside`, which is nobody else's, and put it in the place of what is there."""
    part = beside / "new"
    part.mkdir(mode=0o777)
    progress.step("lifecycles", 0, 3)
    stored = str(part / "lifecycles")
    found = frames.lifecycles(records, buries)
    found.write.parquet(stored)
    lives = spark.read.schema(found.schema).parquet(stored)
    with ThreadPoolExecutor(2) as pool:  # planning takes a core of its own
        slow = pool.submit(_write, frames.slowest(lives, SLOWEST), part / "slowest")
        topics = pool.submit(_write, frames.per_topic(records), part / "topics")
        progress.step("queues", 1, 3)
        _write(frames.per_queue(lives), part / "queues")
        queues: list[dict[str, Any]] = _read(part / "queues").to_pylist()
        queues.sort(key=lambda row: (-row["produced"], row["queue"]))
        since = min((row["since"] for row in queues if row["since"]), default=None)
        until = max((row["until"] for row in queues if row["until"]), default=None)
        step_s = _step(since, until)
        progress.step("backlog", 2, 3)
        _write(frames.backlog(lives, step_s), part / "backlog")
        slow.result()
        topics.result()
    totals = _totals(queues, since, until)
    text = _page(part, queues, totals, step_s, source)
    (part / PAGE).write_text(text)
    (part / "totals.json").write_text(json.dumps(totals, default=str, indent=1) + "\n")
    if out.exists():
        out.rename(old := beside / "old")
        try:
            part.rename(out)
        except OSError:
            old.rename(out)
            raise
    else:
        part.rename(out)
    progress.step("report", 3, 3)
    return totals


def _step(since: datetime | None, until: datetime | None) -> float:
    """How long a step of the backlog is, in seconds: so that there are many, and not too many."""
    if since is None or until is None:
        return 1.0
    span = (until - since).total_seconds()
    return next((step for step in STEPS_S if span / step <= POINTS_MAX), STEPS_S[-1])


COUNTED: Final = ("produced", "confirmed", "taken", "redeliveries", "expired", "buried", "moved", "cleared", "open")


def _totals(queues: list[dict[str, Any]], since: datetime | None, until: datetime | None) -> dict[str, Any]:
    found: dict[str, Any] = {name: sum(int(row[name] or 0) for row in queues) for name in COUNTED}
    span_s = 0.0 if since is None or until is None else (until - since).total_seconds()
    return {**found, "queues": len(queues), "since": since, "until": until, "span_s": span_s}


def _write(table: DataFrame, folder: Path) -> None:
    """Write a table that is small."""
    table.coalesce(1).write.parquet(str(folder))


def _read(folder: Path) -> pa.Table:
    """Read a small table that was just written; its instants are UTC without a zone, to the microsecond."""
    table = pq.read_table(folder)
    plain = [
        field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field for field in table.schema
    ]
    return table.cast(pa.schema(plain))


def _page(part: Path, queues: list[dict[str, Any]], totals: dict[str, Any], step_s: float, source: str) -> str:
    span_s = totals["span_s"]
    per_s = totals["produced"] / span_s if span_s else None
    facts = [(_FACTS[name], f"{totals[name]:,}") for name in COUNTED]
    facts.insert(1, ("produced/s, mean", "-" if per_s is None else f"{per_s:,.0f}"))
    about = [
        f"From {source}; made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. All times are UTC.",
        f"{totals['queues']:,} queues, {shown(totals['since'])} to {shown(totals['until'])} ({duration(span_s)}).",
    ]
    rows = [_shown_queue(row) for row in queues[:ROWS_MAX]]
    slowest = _read(part / "slowest").sort_by([("to_confirm_s", "descending"), ("msg_id", "ascending")])
    slow = [{**row, "took": duration(row["to_confirm_s"])} for row in slowest.slice(0, SHOWN_SLOWEST).to_pylist()]
    steps = _read(part / "backlog")
    sections = [
        Section("Throughput", f"Messages a second, by steps of {duration(step_s)}.", _throughput(steps, step_s)),
        Section(
            "Backlog",
            f"Messages in a queue at the end of each step of {duration(step_s)}, those that were there before the log "
            f"begins included. The {LINES_MAX} queues with the longest, and all others together.",
            _backlog(steps),
        ),
        Section(
            "Time from produce to done",
            "The busiest queues. Half of a queue's messages were done within p50, all but one in a hundred within p99.",
            _latencies(queues),
        ),
        Section("Queues", "The busiest first.", table=Table(QUEUE_COLUMNS, rows, len(queues))),
        Section(
            "Slowest messages", "Those that took longest from produce to done.", table=Table(SLOW_COLUMNS, slow, 0)
        ),
    ]
    topics = _read(part / "topics").sort_by([("appended", "descending"), ("topic", "ascending")])
    if topics.num_rows:
        its = topics.slice(0, ROWS_MAX).to_pylist()
        sections.append(
            Section("Topics", "Messages that were appended.", table=Table(TOPIC_COLUMNS, its, topics.num_rows))
        )
    return page("Quorate: what the change log says", about, facts, sections)


_FACTS: Final = {
    "produced": "produced", "confirmed": "confirmed", "taken": "taken at most once", "redeliveries": "redeliveries",
    "expired": "expired", "buried": "dead-lettered", "moved": "moved", "cleared": "cleared",
    "open": "still there",
}  # fmt: skip


def _shown_queue(row: dict[str, Any]) -> dict[str, Any]:
    latencies = {
        f"{name}_p{part}": duration(row[f"to_{name}_s_p{part}"])
        for name in ("deliver", "confirm")
        for part in (50, 95, 99)
    }
    return {**row, **latencies}


def _throughput(steps: pa.Table, step_s: float) -> str:
    """All queues together."""
    summed = steps.group_by("time").aggregate([("came", "sum"), ("left", "sum")]).to_pylist()
    rows = {row["time"]: row for row in summed}
    times = _steps(min(rows), max(rows), step_s) if rows else []
    series = [(name, times, [_of(rows.get(at), f"{name}_sum") / step_s for at in times]) for name in ("came", "left")]
    return lines("Throughput", "messages/s", series, steps=True)


def _steps(first: datetime, last: datetime, step_s: float) -> list[datetime]:
    """All steps, also those in which nothing happened."""
    step = timedelta(seconds=step_s)
    return [first + at * step for at in range((last - first) // step + 1)]


def _of(row: dict[str, Any] | None, name: str) -> float:
    return 0.0 if row is None else float(row[name])


def _backlog(steps: pa.Table) -> str:
    """Draw the longest queues, and the rest as one line, each carried on where a step has no change."""
    peaks = steps.group_by("queue").aggregate([("size", "max")]).to_pylist()
    peaks.sort(key=lambda row: (-row["size_max"], row["queue"]))
    longest = [row["queue"] for row in peaks[:LINES_MAX]]
    is_named = pc.is_in(steps["queue"], value_set=pa.array(longest, pa.string()))
    by_queue: dict[str, dict[datetime, float]] = defaultdict(dict)
    for row in steps.filter(is_named).to_pylist():
        by_queue[row["queue"]][row["time"]] = row["size"]
    rest = steps.filter(pc.invert(is_named)).sort_by([("queue", "ascending"), ("time", "ascending")])
    rest = rest.append_column("change", pc.subtract(rest["came"], rest["left"]))
    firsts = rest.group_by("queue", use_threads=False).aggregate([("size", "first"), ("change", "first")]).to_pylist()
    size = float(sum(row["size_first"] - row["change_first"] for row in firsts))
    changes = rest.group_by("time").aggregate([("change", "sum")]).sort_by("time").to_pylist()
    for row in changes:
        size += row["change_sum"]
        by_queue[ALL_OTHERS][row["time"]] = size
    times = sorted({moment for sizes in by_queue.values() for moment in sizes})
    names = [*longest, *([ALL_OTHERS] if changes else [])]
    return lines("Backlog", "messages", [(name, times, _carried(by_queue[name], times)) for name in names], steps=True)


def _carried(sizes: dict[datetime, float], times: list[datetime]) -> list[float]:
    found: list[float] = []
    last = 0.0
    for moment in times:
        last = sizes.get(moment, last)
        found.append(last)
    return found


def _latencies(queues: list[dict[str, Any]]) -> str:
    busiest = [row for row in queues if row["to_confirm_s_p50"] is not None][:BARS_MAX]
    if not busiest:
        return "<p>No message was done.</p>"
    groups = [(f"p{part}", [row[f"to_confirm_s_p{part}"] for row in busiest]) for part in (50, 95, 99)]
    return bar_chart("Latency", "seconds", [row["queue"] for row in busiest], groups)
