"""From the table of records to tables that say something: pure functions of DataFrames, without Python in the rows.

A message's life is told by grouping its rows by shard, msg_id and queue, and aggregating numbers and instants alone: a
text in an aggregate's buffer would make Spark sort instead of hash. A message that moved to a dead letter queue has a
life in each of the two.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

PERCENTILES: Final = (0.5, 0.95, 0.99)
ACCURACY: Final = 10_000
WINDOW_COUNTS: Final = ("queue", "produced", "delivered", "redelivered", "done", "expired", "buried")
LIFE_COLUMNS: Final = ("shard", "trans_id", "time", "kind", "queue", "msg_id", "due", "ended", "target", "partition")
"""What lifecycles and topics are made of: a source that is asked for no more is nearly twice as fast."""

APPEND: Final = "append"
"""Records by which a message comes into a topic."""

MOVES: Final = ("bury", "move")
"""Records by which a message comes into another queue."""

ENDS: Final = ("confirmed", "taken", "expired", "cleared", "buried", "moved")


def _first(condition: Column) -> Column:
    return F.min(F.when(condition, F.col("time")))


def _last(condition: Column) -> Column:
    return F.max(F.when(condition, F.col("time")))


def _of_queues() -> Column:
    """Whether a row is about a queue's message: one of a topic has no life, it stays."""
    return F.col("msg_id").isNotNull() & (F.col("kind") != APPEND)


def per_topic(records: DataFrame) -> DataFrame:
    """One row a topic: in how many partitions how many messages were appended, and how many a second."""
    summed = (
        records.where(F.col("kind") == APPEND)
        .groupBy(F.col("queue").alias("topic"))
        .agg(
            F.count("*").alias("appended"),
            F.count_distinct("partition").alias("partitions"),
            F.min("time").alias("since"),
            F.max("time").alias("until"),
        )
    )
    spans = F.greatest(F.col("until").cast("double") - F.col("since").cast("double"), F.lit(1e-3))
    return summed.select("*", (F.col("appended") / spans).alias("appended_per_s")).orderBy(F.desc("appended"), "topic")


def with_arrivals(records: DataFrame, buries: DataFrame | None = None) -> DataFrame:
    """Add to the rows about messages one more for each bury and move: the arrival in the other queue, of kind `arrive`.

    A union, which reads the few buries once more: to explode every row for their sake takes longer than all the rest.
    `buries`: the same records, from where those of that kind alone are read more quickly.
    """
    about = records.where(_of_queues())
    arrivals = (
        (records if buries is None else buries)
        .where(F.col("kind").isin(*MOVES))
        .withColumns({"kind": F.lit("arrive"), "queue": F.col("target"), "ended": F.lit(None).cast("string")})
    )
    return about.unionByName(arrivals)


def lifecycles(records: DataFrame, buries: DataFrame | None = None) -> DataFrame:
    """One row a message and queue: when it was produced, first delivered, and why and when it left.

    `is_truncated`: its beginning lies before the records; `is_open`: it had not left by their end. `to_deliver_s` is
    from when it was due (or arrived) to its first delivery, `to_confirm_s` from produce to confirm.
    """
    kind = F.col("kind")
    begins = kind.isin("produce", "arrive")
    ended = [_last(F.col("ended") == why).alias(why) for why in ENDS]
    grouped = (
        with_arrivals(records, buries)
        .groupBy("shard", "msg_id", "queue")
        .agg(
            _first(begins).alias("produced"),
            _last(begins).alias("last_begun"),
            F.min(F.when(begins, F.col("due"))).alias("due"),
            _first(kind.isin("deliver", "take")).alias("first_delivered"),
            _last(kind.isin("deliver", "take")).alias("last_delivered"),
            F.count_if(kind.isin("deliver", "take")).alias("deliveries"),
            F.count_if(kind == "release").alias("releases"),
            F.count_if(kind == "produce").alias("produces"),
            F.count_if(kind == "arrive").alias("arrivals"),
            F.min("trans_id").alias("first_trans_id"),
            F.max("trans_id").alias("last_trans_id"),
            *ended,
        )
    )
    last_end = F.greatest(*ENDS)  # one that came back is there again
    left = F.when(F.coalesce(F.col("last_begun") <= last_end, F.lit(True)), last_end)
    return grouped.select(
        *(name for name in grouped.columns if name != "last_begun"),
        left.alias("ended"),
        F.col("produced").isNull().alias("is_truncated"),
        left.isNull().alias("is_open"),
        _seconds(F.greatest("produced", "due"), F.col("first_delivered")).alias("to_deliver_s"),
        _seconds(F.col("produced"), F.coalesce("confirmed", "taken")).alias("to_confirm_s"),
    )


def _seconds(since: Column, until: Column) -> Column:
    """How long it took; never below 0, since a message may be delivered in the moment in which it is produced."""
    took = until.cast("double") - since.cast("double")
    return F.when(took.isNotNull(), F.greatest(took, F.lit(0.0)))  # greatest alone would take null for nothing


def per_queue(lives: DataFrame) -> DataFrame:
    """One row a queue: counts, rates and latencies (s, p50, p95, p99), the busiest first.

    `arrived` are those that another queue gave up on: this one is its dead letter queue.
    """
    of_time = [
        F.percentile_approx(name, F.array(*map(F.lit, PERCENTILES)), ACCURACY).alias(f"_{name}")
        for name in ("to_deliver_s", "to_confirm_s")
    ]
    summed = lives.groupBy("queue").agg(
        F.count_if(F.col("produces") > 0).alias("produced"),
        F.count_if(F.col("arrivals") > 0).alias("arrived"),
        F.count_if(F.col("deliveries") > 0).alias("delivered"),
        *(F.count_if(F.col(why).isNotNull()).alias(why) for why in ENDS),
        F.sum(F.greatest(F.col("deliveries") - 1, F.lit(0))).alias("redeliveries"),
        F.sum("releases").alias("releases"),
        F.count_if("is_open").alias("open"),
        F.count_if("is_truncated").alias("truncated"),
        F.min(F.coalesce("produced", "first_delivered", "ended")).alias("since"),
        F.max(F.coalesce("ended", "last_delivered", "produced")).alias("until"),
        *of_time,
    )
    latencies = [
        F.col(f"_{name}")[index].alias(f"{name}_p{round(100 * part)}")
        for name in ("to_deliver_s", "to_confirm_s")
        for index, part in enumerate(PERCENTILES)
    ]
    spans = F.greatest(F.col("until").cast("double") - F.col("since").cast("double"), F.lit(1e-3))
    kept = [name for name in summed.columns if not name.startswith("_")]
    return summed.select(*kept, (F.col("produced") / spans).alias("produced_per_s"), *latencies).orderBy(
        F.desc("produced"), "queue"
    )


def backlog(lives: DataFrame, step_s: float) -> DataFrame:
    """One row a queue and `step_s` seconds: how many came, how many left, and how many were there at the end.

    What had come before the records began stands in the opening balance: those that leave and were never seen to come,
    and those that are seen and neither.
    """
    came = lives.select("queue", F.col("produced").alias("time"), F.lit(1).alias("came"), F.lit(0).alias("left"))
    left = lives.select("queue", F.col("ended").alias("time"), F.lit(0).alias("came"), F.lit(1).alias("left"))
    step_us = round(step_s * 1e6)
    start = F.timestamp_micros(F.floor(F.unix_micros("time") / step_us) * step_us)
    steps = (
        came.union(left)
        .where(F.col("time").isNotNull())
        .groupBy("queue", start.alias("time"))
        .agg(F.sum("came").alias("came"), F.sum("left").alias("left"))
    )
    opening = lives.groupBy("queue").agg(F.count_if("is_truncated").alias("opening"))
    ordered = Window.partitionBy("queue").orderBy("time").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        steps.join(opening, "queue")
        .select(
            "queue", "time", "came", "left", "opening", F.sum(F.col("came") - F.col("left")).over(ordered).alias("_d")
        )
        .select("queue", "time", "came", "left", (F.col("opening") + F.col("_d")).alias("size"))
        .orderBy("queue", "time")
    )


def slowest(lives: DataFrame, count: int) -> DataFrame:
    """Find the messages that took longest from produce to confirm."""
    return (
        lives.where(F.col("to_confirm_s").isNotNull())
        .select("queue", "msg_id", "shard", "produced", "first_delivered", "ended", "deliveries", "to_confirm_s")
        .orderBy(F.desc("to_confirm_s"), "msg_id")
        .limit(count)
    )


def windows(records: DataFrame, length: str) -> DataFrame:
    """Count by queue and window of `length` ('1 minute') what was produced, delivered, redelivered, and left, how."""
    kind, ended = F.col("kind"), F.col("ended")
    return (
        records.where(_of_queues())
        .groupBy(F.window("time", length).alias("window"), "queue")
        .agg(
            F.count_if(kind == "produce").alias("produced"),
            F.count_if(kind.isin("deliver", "take")).alias("delivered"),
            F.count_if((kind == "deliver") & (F.col("deliveries") > 1)).alias("redelivered"),
            F.count_if(ended.isin("confirmed", "taken")).alias("done"),
            F.count_if(ended == "expired").alias("expired"),
            F.count_if(ended == "buried").alias("buried"),
        )
        .select("window.start", "window.end", *WINDOW_COUNTS)
        .withColumnsRenamed({"start": "since", "end": "until"})
    )
