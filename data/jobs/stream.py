"""Stream: counts by queue and window, as the log grows, to Parquet, the console, or a queue."""

import threading
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from data import frames

LATE: Final = "1 minute"
TRIGGER: Final = "5 seconds"
POLL_S: Final = 1
CHECKPOINT: Final = "_checkpoint"


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
    records = spark.readStream.format("quorate").options(**{"includeData": "false", **options}).load()
    counts = frames.windows(records.withWatermark("time", late), window)
    if out is not None:
        writer = counts.writeStream.format("parquet").option("path", str(out))
        writer = writer.option("checkpointLocation", str(checkpoint or out / CHECKPOINT)).outputMode("append")
    elif into is not None:
        if checkpoint is None:
            raise ValueError("into a queue: a folder for the checkpoint is wanted")
        key = F.concat_ws("/", F.lit("window"), "queue", F.col("since").cast("string"))
        messages = counts.select(F.to_json(F.struct("*")).cast("binary").alias("data"), key.alias("key"))
        messages = messages.withColumn("encoding", F.lit("json")).withColumn("retry", F.lit(60.0))
        writer = messages.writeStream.format("quorate").option("queue", into).outputMode("append")
        writer = writer.option("bootstrap.servers", options["bootstrap.servers"])
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
