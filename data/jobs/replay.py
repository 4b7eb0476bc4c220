"""Replay: messages of an archive, or rows of any Parquet, into queues, chosen by SQL, at a rate.

It goes on where it ended: an archive's rows are replayed in pieces, in the order of the log (within a piece several
tasks write at the same time, unless a rate is given), and after each piece a file notes how far it came. A piece that
is done again, and a replay that is begun anew, produce nothing twice: each message has a key that says where it is
from, as long as it is still in its queue.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it
from pyspark.sql.types import BinaryType, StringType

from data.progress import Progress, Silent

PIECE: Final = 200_000
MESSAGE_COLUMNS: Final = ("data", "encoding", "key", "delay", "ttl", "retry", "priority")


class ReplayError(RuntimeError):
    """What is to be replayed can't be."""


def run(
    spark: SparkSession,
    rows: DataFrame,
    *,
    into: str | None,
    servers: str,
    where: str | None = None,
    rate: int = 0,
    refused: Path | None = None,
    notes: Path | None = None,
    piece: int = PIECE,
    progress: Progress | None = None,
) -> int:
    """Replay; returns how many messages were taken up. `into`: a queue, None: each into its own. `rate`: a second.

    `refused`: a folder for rows that a queue refuses, which fail the replay otherwise. `notes`: the file that says how
    far it came; only for rows with shard and trans_id. Raises `ReplayError`, and what the sink raises.
    """
    progress = progress or Silent()
    is_log = {"kind", "shard", "trans_id"} <= set(rows.columns)
    chosen = rows.where(F.col("kind") == "produce") if is_log else rows
    if where:
        chosen = chosen.where(where)
    options = {"bootstrap.servers": servers, "rate": str(rate)}
    if into is not None:
        options["queue"] = into
    if refused is not None:
        options["refused"] = str(refused)
    if not is_log:
        if notes is not None:
            raise ReplayError("only rows with shard and trans_id can be gone on with: leave the notes out")
        return _write(_messages(chosen, into), options, rate)
    asked = hashlib.sha256(json.dumps([into, servers, where], sort_keys=True).encode()).hexdigest()[:16]
    done = _noted(notes, asked)
    total = 0
    for shard, first, last in _shards(chosen):
        after = max(done.get(str(shard), 0), first - 1)
        while after < last:
            of_shard = chosen.where((F.col("shard") == shard) & (F.col("trans_id") > after))
            ends = of_shard.select("trans_id").orderBy("trans_id").limit(piece).agg(F.max("trans_id")).collect()
            end = int(ends[0][0])
            rows_now = of_shard.where(F.col("trans_id") <= end).orderBy("trans_id")
            total += _write(_messages(rows_now, into), options, rate)
            after = done[str(shard)] = end
            _note(notes, asked, done)
            progress.step(f"shard {shard} replayed up to record {end}", total)
    return total


def _shards(rows: DataFrame) -> list[tuple[int, int, int]]:
    ends = rows.groupBy("shard").agg(F.min("trans_id").alias("first"), F.max("trans_id").alias("last"))
    return sorted((int(row["shard"]), int(row["first"]), int(row["last"])) for row in ends.collect())


def _messages(rows: DataFrame, into: str | None) -> DataFrame:
    """Make the rows what the sink takes: what they were produced with, but due now, and with a key of their own."""
    types = {field.name: field.dataType for field in rows.schema}
    if not isinstance(types.get("data"), BinaryType | StringType):
        raise ReplayError("the rows have no column data that is text or binary")
    if into is None and "queue" not in types:
        raise ReplayError("the rows have no column queue: say into which one")
    named = [] if into is not None else [F.col("queue")]
    if "msg_id" in types:
        from_whom = F.concat(F.lit("replay:"), F.col("msg_id").cast("string"))
        kept = [F.col(name) for name in ("data", "encoding", "retry", "priority") if name in types]
        return rows.select(*named, *kept, from_whom.alias("key"))
    return rows.select(*named, *[F.col(name) for name in MESSAGE_COLUMNS if name in types])


def _write(messages: DataFrame, options: dict[str, str], rate: int) -> int:
    """Through the sink; one task where the order or the rate is one for all."""
    if rate:
        messages = messages.coalesce(1)  # one task, so that the rate is one for all
    counted = Observation()
    rows = messages.observe(counted, F.count("*").alias("rows"))
    rows.write.format("quorate").options(**options).mode("append").save()
    return int(counted.get["rows"])


def _noted(notes: Path | None, asked: str) -> dict[str, int]:
    if notes is None or not notes.exists():
        return {}
    try:
        found: dict[str, Any] = json.loads(notes.read_text())
    except ValueError as error:
        raise ReplayError(f"{notes} is not a replay's: {error}") from error
    if found.get("asked") != asked:
        raise ReplayError(f"{notes} is of another replay: other servers, queue or condition")
    return {shard: int(at) for shard, at in found["done"].items()}


def _note(notes: Path | None, asked: str, done: dict[str, int]) -> None:
    if notes is not None:
        part = notes.with_name(f"{notes.name}.part")
        part.write_text(json.dumps({"asked": asked, "done": done}) + "\n")
        part.replace(notes)
