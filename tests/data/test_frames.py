"""Lifecycles and what is made of them, against a plain computation of the same records."""

import random
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from data import frames
from data.decode import Selection, batches
from data.jobs import report, trace
from storage.records import Bury, Confirm, Deliver, Expire, Move, Produce
from tests.data.records import TIME, LogMaker, every_kind


def random_log(seed: int, messages: int = 400) -> LogMaker:
    """Messages of some queues, delivered, confirmed, expired, buried; in no order that a test could have thought of."""
    draw = random.Random(seed)
    log = LogMaker()
    live: dict[int, list[Any]] = {}
    for _ in range(messages * 3):
        choice = draw.random()
        if choice < 0.4 or not live:
            made: Produce = log.produce(draw.choice(["a", "b", "c"]))
            live[made.msg_id] = [made.queue, log.trans_id, 0]
            log.time += draw.random()
            continue
        msg_id = draw.choice(list(live))
        queue, last, deliveries = live[msg_id]
        if choice < 0.7:
            live[msg_id][2] = deliveries + 1
            log.add(Deliver(queue, [msg_id], [last], [log.time + 60], [deliveries + 1]))
        elif choice < 0.9:
            log.add(Confirm(queue, [msg_id], [last]))
            del live[msg_id]
        elif choice < 0.95 and queue != "dead":
            log.add(Bury(queue, "dead", [msg_id], [last], [log.time], [log.time + 60]))
            live[msg_id][0], live[msg_id][2] = "dead", 0
        elif choice < 0.97 and queue == "dead":
            log.add(Move(queue, "a", [msg_id], [last], [log.time], [log.time + 60]))
            live[msg_id][0], live[msg_id][2] = "a", 0
        else:
            log.add(Expire(queue, [msg_id], [last]))
            del live[msg_id]
        if msg_id in live:
            live[msg_id][1] = log.trans_id
        log.time += draw.random()
    return log


def table(spark: SparkSession, log: LogMaker, folder: Path, after: int = 0) -> DataFrame:
    folder.mkdir(parents=True)
    found = list(batches(log.entries, 0, Selection(after=after)))
    pq.write_table(pa.Table.from_batches(found), folder / "log.parquet")
    return spark.read.parquet(str(folder))


def plain_lives(log: LogMaker, after: int) -> dict[tuple[int, str], dict[str, Any]]:
    lives: dict[tuple[int, str], dict[str, Any]] = defaultdict(
        lambda: {"deliveries": 0, "produced": None, "ended": None}
    )
    for batch in batches(log.entries, 0, Selection(after=after)):
        for row in batch.to_pylist():
            life = lives[row["msg_id"], row["queue"]]
            if row["kind"] == "produce":
                life["produced"] = row["time"]
            if row["kind"] == "deliver":
                life["deliveries"] += 1
                life.setdefault("first_delivered", row["time"])
            if row["ended"]:
                life["ended"] = life[row["ended"]] = row["time"]
            if row["kind"] in ("bury", "move"):
                other = lives[row["msg_id"], row["target"]]
                other["produced"] = other["produced"] or row["time"]
                other["ended"] = None
    return lives


@pytest.mark.parametrize("after", [0, 300])
def test_lifecycles_are_what_a_plain_computation_says(spark: SparkSession, tmp_path: Path, after: int) -> None:
    log = random_log(7)
    lives = frames.lifecycles(table(spark, log, tmp_path / "log", after))
    expected = plain_lives(log, after)
    rows = {(row["msg_id"], row["queue"]): row for row in lives.collect()}
    assert rows.keys() == expected.keys()
    for key, life in expected.items():
        row = rows[key]
        for name in ("produced", "first_delivered", "ended", "confirmed", "expired", "buried", "moved"):
            found = row[name].astimezone(UTC) if row[name] else None
            assert found == life.get(name), (key, name)
        assert row["deliveries"] == life["deliveries"]
        assert row["is_truncated"] == (life["produced"] is None)
        assert row["is_open"] == (life["ended"] is None)
        done = life.get("confirmed")
        if done and life["produced"]:
            assert row["to_confirm_s"] == pytest.approx((done - life["produced"]).total_seconds(), abs=1e-5)


@pytest.mark.parametrize("after", [0, 300])
def test_the_backlog_ends_with_the_messages_that_are_there(spark: SparkSession, tmp_path: Path, after: int) -> None:
    log = random_log(8)
    lives = frames.lifecycles(table(spark, log, tmp_path / "log", after))
    rows = frames.backlog(lives, 60).collect()
    last = {row["queue"]: row["size"] for row in rows}
    there: dict[str, int] = defaultdict(int)
    for (_, queue), life in plain_lives(log, after).items():
        there[queue] += life["ended"] is None
    assert last == dict(there)
    assert all(row["size"] >= 0 for row in rows)


def test_steps_may_be_shorter_than_a_second(spark: SparkSession, tmp_path: Path) -> None:
    lives = frames.lifecycles(table(spark, random_log(8), tmp_path / "log"))
    fine, coarse = (frames.backlog(lives, step_s) for step_s in (0.01, 60))
    assert fine.count() > coarse.count()
    for name in ("came", "left"):
        assert fine.agg({name: "sum"}).collect() == coarse.agg({name: "sum"}).collect()
    assert all(row["time"].microsecond % 10_000 == 0 for row in fine.collect())


def test_a_report_says_what_a_plain_computation_says(spark: SparkSession, tmp_path: Path) -> None:
    log = random_log(9)
    totals = report.run(spark, table(spark, log, tmp_path / "log"), tmp_path / "report", source="a test")
    lives = plain_lives(log, 0)
    of_produces = Selection(kinds=frozenset({"produce"}))
    produced = sum(batch.num_rows for batch in batches(log.entries, 0, of_produces))
    assert totals["produced"] == produced
    for why in ("confirmed", "expired", "buried"):
        assert totals[why] == sum(why in life for life in lives.values())
    assert totals["open"] == sum(life["ended"] is None for life in lives.values())
    assert totals["redeliveries"] == sum(max(life["deliveries"] - 1, 0) for life in lives.values())
    text = (tmp_path / "report" / "report.html").read_text()
    assert f"{produced:,}" in text
    assert text.count("<svg") == 3
    queues = {row["queue"]: row for row in spark.read.parquet(str(tmp_path / "report" / "queues")).collect()}
    waits = sorted(
        (life["confirmed"] - life["produced"]).total_seconds()
        for (_, queue), life in lives.items()
        if queue == "a" and life.get("confirmed") and life["produced"]
    )
    assert queues["a"]["to_confirm_s_p50"] == pytest.approx(waits[(len(waits) - 1) // 2], abs=1e-4)
    for theirs in ("report.part", "report.old"):
        (tmp_path / theirs).mkdir()
        (tmp_path / theirs / "precious").touch()
    report.run(spark, table(spark, log, tmp_path / "again"), tmp_path / "report", source="once more")
    assert (tmp_path / "report.part" / "precious").exists()
    assert (tmp_path / "report.old" / "precious").exists()
    assert not list(tmp_path.glob(".report.*")), "nothing is left beside it"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").touch()
    with pytest.raises(FileExistsError):
        report.run(spark, table(spark, log, tmp_path / "third"), tmp_path / "other", source="x")


def test_a_report_tells_of_topics_and_counts_their_messages_in_no_queue(spark: SparkSession, tmp_path: Path) -> None:
    records = table(spark, every_kind(), tmp_path / "log")
    totals = report.run(spark, records, tmp_path / "report", source="a test")
    assert totals["queues"] == 3
    [topic] = spark.read.parquet(str(tmp_path / "report" / "topics")).collect()
    assert (topic["topic"], topic["appended"], topic["partitions"]) == ("t", 3, 2)
    assert "<h2>Topics" in (tmp_path / "report" / "report.html").read_text()


def test_an_empty_log_makes_a_report_too(spark: SparkSession, tmp_path: Path) -> None:
    nothing = table(spark, every_kind(), tmp_path / "log").limit(0)
    assert report.run(spark, nothing, tmp_path / "report", source="nothing")["produced"] == 0


def test_a_message_is_traced_from_archive_and_log_together(spark: SparkSession, tmp_path: Path) -> None:
    log = every_kind()
    whole = table(spark, log, tmp_path / "log")
    together = trace.together(whole.where("trans_id <= 6"), whole.where("trans_id >= 4"))
    life = trace.run(together, msg_id=3072, key=None, queue=None)
    named = [(row["trans_id"], row["kind"]) for row in life]
    assert named == [(3, "produce"), (5, "deliver"), (6, "extend"), (8, "confirm")]
    by_key = trace.run(together, msg_id=None, key="k", queue="a")
    assert by_key == life
    assert trace.run(together, msg_id=None, key="k", queue="b") == []
    with pytest.raises(ValueError, match="wanted"):
        trace.run(together, msg_id=None, key="k", queue=None)
    assert trace.shown_data(b'{"n":1}', "json") == '{"n": 1}'
    assert datetime.fromtimestamp(TIME, UTC).year == 2027
