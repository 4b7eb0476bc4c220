"""Archive: the change log as Parquet, for ever; and compaction, which merges its small files.

A stream from the log into `ArchiveFolder`, once (what is there now) or for as long as it is let. Spark's checkpoint
says where it is; the reader's position in the log follows only behind what is in the archive: the log keeps the rest.
"""

import shutil
import threading
import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from data.archive_folder import ArchiveError, ArchiveFolder
from data.logs import ClusterLog, open_log
from data.options import LATEST, places, source_options
from data.planning import chosen, resolved
from data.progress import Progress, Silent

FORMAT: Final = 1
TRIGGER: Final = "2 seconds"
READER: Final = "archive"
MERGED_BYTES: Final = 256 << 20
POLL_S: Final = 1


def run(
    spark: SparkSession,
    options: dict[str, str],
    out: Path,
    *,
    once: bool,
    reader: str = READER,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> int:
    """Archive until nothing is left (`once`), or until `stop` is set; returns how many rows the archive gained.

    `options` are the source's. `latest` as a beginning is looked up once, and kept with the archive. Raises
    `ArchiveError`, `OptionError`, and what the source raises.
    """
    progress = progress or Silent()
    folder = ArchiveFolder(out)
    about = folder.create(_about(options))
    if about.get("format") != FORMAT:
        raise ArchiveError(f"{out} has format {about.get('format')}, and this version writes {FORMAT}")
    given = {**options, "startingOffsets": about["starting"]}
    given.pop("startingTimestamp", None)
    folder.check()
    _hold(given, reader)
    job = _Job(folder, given, reader, progress)
    stream = spark.readStream.format("quorate").options(**given).load()
    writer = stream.writeStream.foreachBatch(job.take).option("checkpointLocation", str(folder.checkpoint))
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=TRIGGER)).start()
    while not query.awaitTermination(POLL_S):
        if stop is not None and stop.is_set():
            query.stop()
            break
    return job.rows


def _about(options: dict[str, str]) -> dict[str, Any]:
    """What a new archive is about: where it begins is said in numbers, whatever was asked for."""
    parsed = source_options(options)
    starting = options.get("startingOffsets", "earliest")
    if (
        parsed.starting_time is not None
        or LATEST in places("startingOffsets", starting).by_shard.values()
        or (parsed.starting.names_latest)
    ):
        log = open_log(parsed)
        try:
            ranges = chosen(log.ranges(), parsed)
            found = resolved(log, ranges, parsed.starting, parsed.starting_time)
        finally:
            log.close()
        starting = "{" + ", ".join(f'"{shard}": {at}' for shard, at in found.items()) + "}"
    return {"format": FORMAT, "starting": starting, "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def _hold(options: dict[str, str], reader: str) -> None:
    """From now on the log keeps what the archive lacks, also before the first batch is done."""
    parsed = source_options(options)
    if not parsed.servers:
        return
    log = ClusterLog(parsed.servers)
    try:
        ranges = chosen(log.ranges(), parsed)
        for shard, at in resolved(log, ranges, parsed.starting, None).items():
            log.hold(reader, int(shard), min(at, ranges[int(shard)].end) - 1)
    finally:
        log.close()


class _Job:
    """Writes one batch after another."""

    def __init__(self, folder: ArchiveFolder, options: dict[str, str], reader: str, progress: Progress) -> None:
        self.rows = 0
        self._folder = folder
        self._servers = source_options(options).servers
        self._reader = reader
        self._progress = progress
        self._upto: dict[int, int] = {}

    def take(self, frame: DataFrame, batch: int) -> None:
        """Write a batch beside the data, and make it a part of them; one that is there already stays as it is."""
        if not self._folder.has_batch(batch):
            staged = self._folder.staged(batch)
            dated = frame.withColumn("date", F.to_date("time"))
            dated.write.partitionBy("date", "shard").option("compression", "zstd").parquet(str(staged))
            self._folder.add(batch)
        self._note(frame.sparkSession, batch)

    def _note(self, spark: SparkSession, batch: int) -> None:
        """How far the batch went, by its own files; the log may let go of what is before that."""
        path = self._folder.data / f"batch={batch}"
        if not path.exists():
            return
        by_shard = spark.read.parquet(str(path)).groupBy("shard")
        counts = by_shard.agg(
            F.max("trans_id").alias("upto"),
            F.count("*").alias("count"),
            F.count_if(F.col("kind") != "position").alias("news"),
        )
        for row in counts.collect():
            self.rows += int(row["count"])
            if row["news"]:  # to say where it is makes a record, which is archived: that alone is nothing to say again
                self._upto[int(row["shard"])] = int(row["upto"])
        self._progress.step(f"batch {batch} archived", self.rows)
        self.say_position()

    def say_position(self) -> None:
        """Behind what is in the archive."""
        if not self._servers or not self._upto:
            return
        log = ClusterLog(self._servers)
        try:
            for shard in list(self._upto):
                log.moved(self._reader, shard, self._upto[shard])
                del self._upto[shard]
        finally:
            log.close()


def compact(spark: SparkSession, out: Path, *, progress: Progress | None = None) -> tuple[int, int]:
    """Merge all batches but the last into one, in files of some 256 MiB; returns the number of files before and after.

    The last stays: Spark may do it again, and must find it. Raises `ArchiveError` for what is no archive.
    """
    progress = progress or Silent()
    folder = ArchiveFolder(out)
    folder.about()
    batches = folder.batches()[:-1]
    before = len(list(folder.data.rglob("*.parquet")))
    if len(batches) < 2:
        return before, before
    new = folder.begin_version()
    target = new / f"batch={batches[-1]}"
    progress.step(f"merging {len(batches)} batches")
    records = spark.read.option("basePath", str(folder.data)).parquet(
        *(str(folder.data / f"batch={batch}") for batch in batches)
    )
    size = sum(one.stat().st_size for batch in batches for one in (folder.data / f"batch={batch}").rglob("*.parquet"))
    files = max(-(-size // MERGED_BYTES), 1)
    (
        records.drop("batch")
        .repartitionByRange(files, "date", "shard", "trans_id")
        .sortWithinPartitions("date", "shard", "trans_id")
        .write.partitionBy("date", "shard")
        .option("compression", "zstd")
        .parquet(str(target))
    )
    (target / "_SUCCESS").unlink(missing_ok=True)
    (target / "._SUCCESS.crc").unlink(missing_ok=True)
    try:
        folder.switch(new, batches)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return before, len(list(folder.data.rglob("*.parquet")))


def archived(spark: SparkSession, out: Path) -> DataFrame:
    """The archive as a table with the source's columns. Raises `ArchiveError` for what is none, or is empty."""
    folder = ArchiveFolder(out)
    folder.about()
    if not folder.batches():
        raise ArchiveError(f"{out} holds nothing yet")
    return spark.read.parquet(str(folder.data.resolve())).drop("batch", "date")
