"""Archive: the change log as Parquet, for ever; and compaction, which merges its small files.

A stream from the log into `ArchiveFolder`, once (what is there now) or for as long as it is let. Spark's checkpoint
says where it is; the reader's position in the log follows only behind what is in the archive: the log keeps the rest.
"""

import threading
import time
import uuid
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from data.archive_folder import ARCHIVING, COMPACTING, ArchiveError, ArchiveFolder
from data.logs import ClusterLog
from data.options import source_options
from data.planning import chosen, resolved, start_in_numbers, started_at
from data.progress import Progress, Silent
from data.schema import DDL

FORMAT: Final = 1
TRIGGER: Final = "2 seconds"
MERGED_BYTES: Final = 256 << 20
POLL_S: Final = 1
STORED: Final = f"{DDL}, batch BIGINT, date DATE"
"""The columns of the archive's files, told, or Spark would look into one of them: older files lack the last columns."""


def run(
    spark: SparkSession,
    options: dict[str, str],
    out: Path,
    *,
    once: bool,
    reader: str | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> int:
    """Archive until nothing is left (`once`), or until `stop` is set; returns how many rows the archive gained.

    `options` are the source's. `reader`: the name under which the log keeps the position, None: one of its own.
    `latest` as a beginning is looked up once, and kept with the archive. Raises `ArchiveError`, `OptionError`, and what
    the source raises.
    """
    progress = progress or Silent()
    folder = ArchiveFolder(out)
    about = folder.create(_about(options))
    if about.get("format") != FORMAT:
        raise ArchiveError(f"{out} has format {about.get('format')}, and this version writes {FORMAT}")
    given = started_at(options, about["starting"])
    with folder.alone(ARCHIVING):
        folder.check()
        name = reader or f"archive-{about['id']}"
        _hold(folder, given, name, about)
        job = _Job(folder, given, name, progress)
        stream = spark.readStream.format("quorate").options(**given).load()
        writer = stream.writeStream.foreachBatch(job.take).option("checkpointLocation", str(folder.checkpoint))
        query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=TRIGGER)).start()
        try:
            while not query.awaitTermination(POLL_S):
                if stop is not None and stop.is_set():
                    break
        finally:
            query.stop()
        job.say_position()
    return job.rows


def _about(options: dict[str, str]) -> dict[str, Any]:
    """Say what a new archive is about: where it begins is said in numbers, whatever was asked for."""
    starting = start_in_numbers(options)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"format": FORMAT, "id": uuid.uuid4().hex[:8], "starting": starting, "created": created}


def _hold(folder: ArchiveFolder, options: dict[str, str], reader: str, about: dict[str, Any]) -> None:
    """From now on the log keeps what the archive lacks, also before the first batch is done.

    Raises `ArchiveError` if the archive is of another cluster than the one that answers.
    """
    parsed = source_options(options)
    if not parsed.servers:
        return
    log = ClusterLog(parsed.servers, parsed.timeout_s, parsed.credentials)
    try:
        cluster = log.cluster_id()
        if "cluster" not in about:
            folder.write_about({**about, "cluster": cluster})
        elif about["cluster"] != cluster:
            raise ArchiveError(f"{folder.path} is of cluster {about['cluster']}, and this one is {cluster}")
        ranges = chosen(log.ranges(), parsed)
        begins = {int(shard): at for shard, at in resolved(log, ranges, parsed.starting, None).items()}
        places = {**begins, **(folder.committed_ends() or {})}
        log.hold(reader, {at: max(min(to, ranges[at].end) - 1, 0) for at, to in places.items() if at in ranges})
    finally:
        log.close()


class _Job:
    """Writes one batch after another."""

    def __init__(self, folder: ArchiveFolder, options: dict[str, str], reader: str, progress: Progress) -> None:
        self.rows = 0
        self._folder = folder
        self._source = source_options(options)
        self._reader = reader
        self._progress = progress
        self._has_news = False

    def take(self, frame: DataFrame, batch: int) -> None:
        """Write a batch beside the data, and make it a part of them; one that is there already stays as it is."""
        self.say_position()  # of the batches before: Spark has noted that they are done
        if not self._folder.has_batch(batch):
            staged = self._folder.staged(batch)
            dated = frame.withColumn("date", F.to_date("time"))
            dated.write.partitionBy("date", "shard").option("compression", "zstd").parquet(str(staged))
            self._folder.add(batch)
        self._note(frame.sparkSession, batch)

    def _note(self, spark: SparkSession, batch: int) -> None:
        """Count what the batch holds, by its own files."""
        path = self._folder.data / f"batch={batch}"
        if not any(path.rglob("*.parquet")):
            return
        is_news = F.col("kind") != "position"  # to say where it is makes a record: that alone is no reason to say it
        count = spark.read.parquet(str(path)).agg(F.count("*").alias("rows"), F.count_if(is_news).alias("news"))
        [row] = count.collect()
        self.rows += int(row["rows"])
        self._has_news = self._has_news or row["news"] > 0
        self._progress.step(f"batch {batch} archived", self.rows)

    def say_position(self) -> None:
        """Behind what Spark has noted as done: it never asks for that again, whatever is killed."""
        ends = self._folder.committed_ends()
        if not self._source.servers or not self._has_news or ends is None:
            return
        self._has_news = False
        source = self._source
        log = ClusterLog(source.servers, source.timeout_s, source.credentials)
        try:
            log.moved(self._reader, {shard: end - 1 for shard, end in ends.items()})
        finally:
            log.close()


def compact(spark: SparkSession, out: Path, *, progress: Progress | None = None) -> tuple[int, int]:
    """Merge all batches but the last into one, in files of some 256 MiB; returns the number of files before and after.

    The last stays: Spark may do it again, and must find it. Raises `ArchiveError` for what is no archive.
    """
    progress = progress or Silent()
    folder = ArchiveFolder(out)
    folder.about()
    with folder.alone(COMPACTING):
        return _compacted(spark, folder, progress)


def _compacted(spark: SparkSession, folder: ArchiveFolder, progress: Progress) -> tuple[int, int]:
    batches = folder.batches()[:-1]
    before = len(list(folder.data.rglob("*.parquet")))
    files_before = [one for batch in batches for one in (folder.data / f"batch={batch}").rglob("*.parquet")]
    if len(batches) < 2 or not files_before:
        return before, before
    new = folder.begin_version()
    target = new / f"batch={batches[-1]}"
    progress.step(f"merging {len(batches)} batches")
    paths = sorted({str(one.parent.parent.parent) for one in files_before})
    records = spark.read.schema(STORED).option("basePath", str(folder.data)).parquet(*paths)
    files = max(-(-sum(one.stat().st_size for one in files_before) // MERGED_BYTES), 1)
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
    if spark.read.parquet(str(target)).count() != records.count():
        raise ArchiveError(f"{target} does not hold what was to be merged; nothing has changed")
    folder.switch(new, batches)
    return before, len(list(folder.data.rglob("*.parquet")))


def archived(spark: SparkSession, out: Path) -> DataFrame:
    """Read the archive as a table with the source's columns. Raises `ArchiveError` for what is none, or is empty."""
    folder = ArchiveFolder(out)
    folder.about()
    if not any(folder.data.resolve().rglob("*.parquet")):
        raise ArchiveError(f"{out} holds nothing yet")
    return spark.read.schema(STORED).parquet(str(folder.data.resolve())).drop("batch", "date")
