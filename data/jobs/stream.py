"""Stream: counts by queue and window, as the log grows, to Parquet, the console, or a queue."""

import threading
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from data import frames
from data.options import SHOWN
from data.planning import start_in_numbers, started_at

LATE: Final = "1 minute"
TRIGGER: Final = "5 seconds"
POLL_S: Final = 1
CHECKPOINT: Final = "_checkpoint"
WAY_IN: Final = frozenset({"bootstrap.servers", *SHOWN})
"""Options of the source that its sink needs as well: where the nodes are, and who asks."""


def run(
    spark: SparkSession,
    options: dict[str, str],
    *,
    window: str,
    out: Path | None = None,
    checkpoint: Path | None = None,
    into: str | None = None,
    late: str = LATE,
    once: bool = False,
    stop: threading.Event | None = None,
) -> int:
    """Run until `stop` is set, or until nothing is left (`once`); returns how many batches there were.

    A window is told when `late` has passed behind its end: what comes later is not counted. To the folder `out`, the
    queue `into` (with a `checkpoint`), or the console. Raises what the source raises.
    """
    at = checkpoint or (None if out is None else out / CHECKPOINT)
    given = options if at is None else _kept_start(options, at)
    records = spark.readStream.format("quorate").options(**{"includeData": "false", **given}).load()
    counts = frames.windows(records.withWatermark("time", late), window)
    if out is not None:
        writer = counts.writeStream.format("parquet").option("path", str(out))
        writer = writer.option("checkpointLocation", str(checkpoint or out / CHECKPOINT)).outputMode("append")
    elif into is not None:
        if checkpoint is None:
            raise ValueError("into a queue: a folder for the checkpoint is wanted")
        about = F.concat_ws("/", F.lit(window), F.col("since").cast("string"), "queue")
        key = F.concat(F.lit("window:"), F.sha2(about, 256))  # a queue's name may be as long as a key
        messages = counts.select(F.to_json(F.struct("*")).cast("binary").alias("data"), key.alias("key"))
        messages = messages.withColumn("encoding", F.lit("json")).withColumn("retry", F.lit(60.0))
        writer = messages.writeStream.format("quorate").option("queue", into).outputMode("append")
        writer = writer.options(**{name: text for name, text in options.items() if name.lower() in WAY_IN})
        writer = writer.option("checkpointLocation", str(checkpoint))
    else:
        writer = counts.writeStream.format("console").option("truncate", "false").outputMode("update")
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=TRIGGER)).start()
    while not query.awaitTermination(POLL_S):
        if stop is not None and stop.is_set():
            query.stop()
            break
    last = query.lastProgress
    return 0 if last is None else int(last["batchId"]) + 1


def _kept_start(options: dict[str, str], checkpoint: Path) -> dict[str, str]:
    """`latest` and times as numbers, looked up once and kept: Spark would look again if it were killed early on."""
    note = checkpoint.with_name(f"{checkpoint.name}.start.json")
    if not note.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        part = note.with_name(f"{note.name}.part")
        part.write_text(start_in_numbers(options))
        part.replace(note)
    return started_at(options, note.read_text())
