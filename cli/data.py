"""qctl data: archive the change log, report on it, trace a message, replay, count as it grows. On Spark."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, ParamSpec, TypeVar

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from cli.output import AsJson, console, fail, print_json, print_table, speaking, without_escapes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

app = typer.Typer(help="The data pipeline, on Spark: needs the extra `spark`.", no_args_is_help=True)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

MARKS: Final = ("Error: ", "Refused: ")
NICE: Final = 10
"""How much a job on this machine stands back: a node beside it goes first."""

NEEDED: Final = "the pipeline needs Spark: pip install 'quorate-server[spark]'"

Servers = Annotated[str, typer.Option("--servers", help="Nodes to read from: HOST:PORT, several separated by commas.")]
MaybeServers = Annotated[str | None, typer.Option("--servers", help="Nodes: HOST:PORT, several separated by commas.")]
Master = Annotated[str | None, typer.Option("--master", help="Another Spark than this machine's, as Spark names it.")]
Settings = Annotated[list[str] | None, typer.Option("--conf", help="A setting of Spark's, NAME=VALUE; repeatable.")]
Options = Annotated[list[str] | None, typer.Option("--option", help="An option of the source, NAME=VALUE; repeatable.")]
Archive = Annotated[Path, typer.Option("--archive", help="An archive's folder.")]
MaybeArchive = Annotated[Path | None, typer.Option("--archive", help="An archive's folder.")]
MaybeData = Annotated[Path | None, typer.Option("--data", help="A node's data folder, or a backup of it.")]


def _saying(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Spark's errors, and ours within it, as one line and exit code 1."""

    @wraps(command)
    def run(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return speaking(command)(*arguments, **named)
        except ImportError as error:
            raise fail(NEEDED if (error.name or "").split(".")[0] in ("pyspark", "pyarrow") else error) from error
        except (typer.Exit, KeyboardInterrupt):
            raise
        except Exception as error:
            raise fail(_reason(error)) from error

    return run


def _reason(error: Exception) -> str:
    """Find the line of an error that says what is wrong: Spark wraps a task's traceback in several of its own."""
    texts = [str(error), str(getattr(error, "java_exception", ""))]
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    told = [line for line in lines if any(mark in line for mark in MARKS) and _is_name(line.split(":")[0])]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (told or causes or lines or [type(error).__name__])[-1 if told or causes else 0]


def _is_name(text: str) -> bool:
    return text.replace(".", "").isidentifier()


class _Shown:
    """A bar on a terminal, a plain line a step in a pipe."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if sys.stderr.isatty():
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, transient=True)

    def step(self, what: str, done: int | None = None, total: int | None = None) -> None:
        """Show it."""
        if self._bar is None:
            print(what if done is None else f"{what}: {done}" + ("" if total is None else f" of {total}"), flush=True)
            return
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task(what, total=total)
        text = what if total is not None or done is None else f"{what}: {done:,}"
        self._bar.update(self._task, description=text, completed=done or 0, total=total)

    def end(self) -> None:
        """Take it away."""
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def _running(name: str, master: str | None, conf: list[str] | None) -> "Iterator[tuple[SparkSession, _Shown]]":
    """Open a session for a command, with what shows how far it is."""
    from data.session import session  # Spark is an extra

    if master is None or master.startswith("local"):
        os.nice(NICE)
    spark = session(f"quorate {name}", master, _pairs("--conf", conf))
    shown = _Shown()
    try:
        yield spark, shown
    finally:
        shown.end()
        spark.stop()


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    for one in given or ():
        if "=" not in one:
            raise ValueError(f"{option} {one!r}: NAME=VALUE is wanted")
    return dict(one.split("=", 1) for one in given or ())


def _until_stopped() -> threading.Event:
    """Set by the first SIGINT or SIGTERM."""
    stop = threading.Event()

    def asked(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, asked)
    signal.signal(signal.SIGTERM, asked)
    return stop


def _records(
    spark: "SparkSession",
    archive: Path | None,
    data: Path | None,
    servers: str | None,
    columns: tuple[str, ...] | None = None,
) -> "DataFrame":
    """Read the records of an archive, of a data folder, or of a cluster; an archive's together with the cluster's."""
    from data.jobs.archive import archived
    from data.jobs.trace import together
    from data.schema import NAMES, ddl

    names = columns or NAMES
    log = None
    if data is not None:
        log = spark.read.format("quorate").schema(ddl(names)).option("path", str(data)).load()
    elif servers is not None:
        log = spark.read.format("quorate").schema(ddl(names)).option("bootstrap.servers", servers).load()
    return together(None if archive is None else archived(spark, archive).select(*names), log)


@app.command()
@_saying
def archive(
    servers: Servers,
    out: Annotated[Path, typer.Option("--out", help="The archive's folder; made if it is not there.")],
    once: Annotated[bool, typer.Option("--once", help="Take what is there now, and end.")] = False,
    reader: Annotated[str | None, typer.Option("--reader", help="Its name in the log, if not one of its own.")] = None,
    option: Options = None,
    master: Master = None,
    conf: Settings = None,
) -> None:
    """Archive the change log as Parquet: each record once, whatever is killed when. Goes on where it ended."""
    from data.jobs import archive as job

    options = {"bootstrap.servers": servers, **_pairs("--option", option)}
    with _running("archive", master, conf) as (spark, shown):
        rows = job.run(spark, options, out, once=once, reader=reader, progress=shown, stop=_until_stopped())
    console.print(f"{rows} rows archived to {out}; read them from {out / 'data'}")


@app.command()
@_saying
def compact(archive: Archive, master: Master = None, conf: Settings = None) -> None:
    """Merge an archive's small files. Who reads it meanwhile reads the files of before, or those of after."""
    from data.jobs import archive as job

    with _running("compact", master, conf) as (spark, shown):
        before, after = job.compact(spark, archive, progress=shown)
    console.print(f"{before} files before, {after} now")


@app.command()
@_saying
def report(
    out: Annotated[Path, typer.Option("--out", help="The report's folder; a report that is there is replaced.")],
    archive: MaybeArchive = None,
    data: MaybeData = None,
    servers: MaybeServers = None,
    as_json: AsJson = False,
    master: Master = None,
    conf: Settings = None,
) -> None:
    """Report on queues: throughput, latencies, redeliveries, backlog. Parquet tables and a page to read."""
    from data.frames import LIFE_COLUMNS
    from data.jobs import report as job
    from data.schema import ddl

    source = ", ".join(str(one) for one in (archive, data, servers) if one is not None)
    with _running("report", master, conf) as (spark, shown):
        records = _records(spark, archive, data, servers, LIFE_COLUMNS)
        buries = None
        if archive is None and data is not None:  # a load of its own: Spark keeps what is pushed for all uses of one
            options = {"path": str(data), "pushFilters": "true"}
            buries = spark.read.format("quorate").schema(ddl(LIFE_COLUMNS)).options(**options).load()
        totals = job.run(spark, records, out, source=source, buries=buries, progress=shown)
    if as_json:
        print_json({name: str(value) if name in ("since", "until") else value for name, value in totals.items()})
    else:
        console.print(f"{totals['produced']} messages in {totals['queues']} queues; read {out / job.PAGE}")


@app.command()
@_saying
def trace(
    msg_id: Annotated[int | None, typer.Option("--id", help="The message.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Its key, with --queue.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Where it was produced.")] = None,
    archive: MaybeArchive = None,
    data: MaybeData = None,
    servers: MaybeServers = None,
    as_json: AsJson = False,
    master: Master = None,
    conf: Settings = None,
) -> None:
    """Print one message's whole life, from an archive, the log, or both together."""
    from data.jobs import trace as job

    with _running("trace", master, conf) as (spark, _):
        rows = job.run(_records(spark, archive, data, servers), msg_id=msg_id, key=key, queue=queue)
    if not rows:
        raise fail("no record is about such a message")
    for row in rows:
        row["data"] = job.shown_data(row["data"], row["encoding"])
    if as_json:
        for row in rows:
            print_json({name: value for name, value in row.items() if value not in (None, "")})
        return
    for number in dict.fromkeys(row["msg_id"] for row in rows):
        about = [row for row in rows if row["msg_id"] == number]
        console.print(f"message {number}, shard {about[0]['shard']}")
        for row in about:
            if row["data"]:
                console.print(f"data ({row['encoding']}): {without_escapes(row['data'])[:1000]}")
        print_table(["record", "time (UTC)", "what", "queue", "about"], [_life(row) for row in about])


def _life(row: dict[str, Any]) -> list[Any]:
    named = ("key", "priority", "retry", "due", "expires", "deliveries", "consumer", "ended", "target")
    about = " ".join(f"{name}={_moment(row[name])}" for name in named if row[name] is not None)
    return [row["trans_id"], _moment(row["time"]), row["kind"], row["queue"] or "", about]


def _moment(value: Any) -> str:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] if hasattr(value, "strftime") else str(value)


@app.command()
@_saying
def replay(
    servers: Annotated[str, typer.Option("--servers", help="Nodes to produce to: HOST:PORT, several by commas.")],
    archive: MaybeArchive = None,
    parquet: Annotated[str | None, typer.Option("--parquet", help="Any Parquet instead, with a column data.")] = None,
    where: Annotated[str | None, typer.Option("--where", help="Which rows, in SQL: \"queue = 'mail'\".")] = None,
    into: Annotated[str | None, typer.Option("--into", help="The queue; without it each goes into its own.")] = None,
    rate: Annotated[int, typer.Option("--rate", min=0, help="Messages a second; 0: as fast as it goes.")] = 0,
    refused: Annotated[Path | None, typer.Option("--refused", help="Put refused rows here, and go on.")] = None,
    notes: Annotated[Path | None, typer.Option("--notes", help="Note here how far it came; go on from there.")] = None,
    master: Master = None,
    conf: Settings = None,
) -> None:
    """Produce an archive's messages again. Each once, as long as it is still in its queue when it comes again."""
    from data.jobs import replay as job

    if (archive is None) == (parquet is None):
        raise ValueError("either --archive or --parquet is wanted")
    with _running("replay", master, conf) as (spark, shown):
        rows = _records(spark, archive, None, None) if parquet is None else spark.read.parquet(parquet)
        count = job.run(
            spark,
            rows,
            into=into,
            servers=servers,
            where=where,
            rate=rate,
            refused=refused,
            notes=notes,
            progress=shown,
        )
    console.print(f"{count} messages replayed")


@app.command()
@_saying
def stream(
    servers: Servers,
    window: Annotated[str, typer.Option("--window", help="How long a window is, as '1 minute'.")] = "1 minute",
    out: Annotated[Path | None, typer.Option("--out", help="A folder for Parquet; without it: the console.")] = None,
    into: Annotated[str | None, typer.Option("--into", help="A queue for the counts, as JSON.")] = None,
    checkpoint: Annotated[Path | None, typer.Option("--checkpoint", help="Where it notes how far it is.")] = None,
    late: Annotated[str, typer.Option("--late", help="How long a window waits for what comes late.")] = "1 minute",
    once: Annotated[bool, typer.Option("--once", help="Take what is there now, and end.")] = False,
    option: Options = None,
    master: Master = None,
    conf: Settings = None,
) -> None:
    """Count by queue and window as the log grows: produced, delivered, redelivered, done, expired, dead-lettered."""
    from data.jobs import stream as job

    options = {"bootstrap.servers": servers, **_pairs("--option", option)}
    with _running("stream", master, conf) as (spark, _):
        batches = job.run(
            spark, options, window=window, out=out, into=into, checkpoint=checkpoint, late=late, once=once,
            stop=_until_stopped(),
        )  # fmt: skip
    console.print(f"{batches} batches")
