"""The source and the sink against real nodes and data folders."""

import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from quorate import Client, NewMessage
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.node import Node


def load(spark: SparkSession, node: Node, **options: object) -> DataFrame:
    reader = spark.read.format("quorate").option("bootstrap.servers", f"127.0.0.1:{node.port}")
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def fill(client: Client, messages: int = 300) -> None:
    """Produced, half of them delivered and confirmed."""
    for first in range(0, messages, 100):
        client.produce_many("mail", [{"n": n} for n in range(first, first + 100)], retry=60)
    client.confirm(client.consume_many("mail", messages // 2))
    client.produce("other", b"\x00\xff", key="k")


def records_of(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while (reply := client.log(found[-1]["trans_id"] if found else 0, 1000))["records"]:
        found += reply["records"]
    return found


def test_a_batch_is_what_the_log_action_says(spark: SparkSession, start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        fill(client)
        records = records_of(client)
    rows = load(spark, node).orderBy("trans_id").collect()
    assert {row["trans_id"] for row in rows} == {record["trans_id"] for record in records}
    kinds = Counter({r["kind"]: 0 for r in records})
    for record in records:
        kinds[record["kind"]] += len(record.get("msg_ids", [0]))
    assert Counter(row["kind"] for row in rows) == kinds
    [other] = [row for row in rows if row["queue"] == "other"]
    assert (other["key"], bytes(other["data"]), other["encoding"]) == ("k", b"\x00\xff", "bytes")


def test_options_and_filters_choose(spark: SparkSession, start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        fill(client)
    all_rows = load(spark, node)
    last = all_rows.agg({"trans_id": "max"}).collect()[0][0]
    assert load(spark, node, subscribe="other").count() == 1
    assert load(spark, node, subscribePattern="ma.*").where("queue <> 'mail'").count() == 0
    some = load(spark, node, startingOffsets='{"0": 10}', endingOffsets='{"0": 20}')
    assert sorted(row["trans_id"] for row in some.select("trans_id").distinct().collect()) == list(range(10, 20))
    assert load(spark, node, startingOffsets="latest").count() == 0
    assert load(spark, node, startingTimestamp=int(time.time() * 1000) + 60_000).count() == 0
    assert load(spark, node, includeData="false").where("data is not null").count() == 0
    parts = load(spark, node, minPartitions=7)
    assert parts.rdd.getNumPartitions() >= 7
    assert parts.count() == all_rows.count()
    condition = f"kind = 'produce' and trans_id > 5 and trans_id <= {last - 3}"
    assert load(spark, node, pushFilters="true").where(condition).count() == all_rows.where(condition).count()
    named = spark.read.format("quorate").schema("kind string, msg_id bigint")
    named = named.option("bootstrap.servers", f"127.0.0.1:{node.port}")
    assert named.load().columns == ["kind", "msg_id"]
    with pytest.raises(Exception, match="no option 'subscibe'"):
        load(spark, node, subscibe="x").count()


def test_a_data_folder_is_read_beside_its_node_and_so_is_a_copy(
    spark: SparkSession, start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node()
    with node.client() as client:
        fill(client)
        end = client.status()["shards"][0]["committed"]
        wait_for(lambda: client.status()["shards"][0]["checkpointed"] == end)
    folder = Path(node.config["data_dir"])
    of_node = load(spark, node).count()
    assert spark.read.format("quorate").option("path", str(folder)).load().count() == of_node
    node.kill()
    shutil.copytree(folder, tmp_path / "backup")
    assert spark.read.format("quorate").option("path", str(tmp_path / "backup")).load().count() == of_node


def test_a_loss_is_an_error_that_names_it_or_is_passed_over(spark: SparkSession, start_node: StartNode) -> None:
    node = start_node(queue_log_size=100)
    with node.client() as client:
        for _ in range(5):
            client.produce_many("q", list(range(100)))
        wait_for(lambda: client.status()["shards"][0]["first_trans_id"] > 300)
    with pytest.raises(Exception, match=r"shard 0: record 5 is wanted, and the first that is kept is \d+"):
        load(spark, node, startingOffsets='{"0": 5}').count()
    assert 0 < load(spark, node, startingOffsets='{"0": 5}', failOnDataLoss="false").count() < 300


def test_a_stream_takes_all_that_is_there_in_batches_and_goes_on(
    spark: SparkSession, start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node()
    taken: list[tuple[int, list[int]]] = []

    def take(frame: DataFrame, batch: int) -> None:
        taken.append((batch, sorted(row["trans_id"] for row in frame.select("trans_id").distinct().collect())))

    def run() -> None:
        stream = spark.readStream.format("quorate").option("bootstrap.servers", f"127.0.0.1:{node.port}")
        stream = stream.option("maxOffsetsPerTrigger", "150").option("groupId", "me")
        writer = stream.load().writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with node.client() as client:
        fill(client)
        run()
        before = [number for _, numbers in taken for number in numbers]
        assert before == list(range(1, max(before) + 1))
        assert len(taken) >= 3
        assert all(len(numbers) <= 150 for _, numbers in taken)
        client.produce_many("mail", list(range(200)))
        run()
        after = [number for _, numbers in taken for number in numbers]
        assert after == list(range(1, max(after) + 1))
        assert max(after) > max(before)
        assert 0 < (client.position("me") or 0) <= max(after), "Spark says so one batch later"


def sink(frame: DataFrame, node: Node, **options: str) -> None:
    writer = frame.write.format("quorate").option("bootstrap.servers", f"127.0.0.1:{node.port}")
    writer.options(**options).mode("append").save()


def test_rows_become_messages_each_once_through_its_key(spark: SparkSession, start_node: StartNode) -> None:
    node = start_node()
    rows = [(f"text {n}", "q", f"k{n}", 60.0, n % 3) for n in range(2500)]
    frame = spark.createDataFrame(rows, "data string, queue string, key string, retry double, priority int")
    with node.client() as client:
        client.produce("q", "text 7", key="k7", retry=60)
        sink(frame, node)
        sink(frame.limit(1200), node)
        assert client.monitor("q")["size"] == 2500
        shown = client.show(queue="q", key="k8")
        assert (shown.data, shown.priority, shown.retry) == ("text 8", 2, 60.0)
        sink(frame.where("key < 'k2'").drop("queue"), node, queue="elsewhere")
        assert client.monitor("elsewhere")["size"] == frame.where("key < 'k2'").count()


def test_a_row_that_is_refused_fails_the_job_with_its_reason_or_is_put_aside(
    spark: SparkSession, start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node()
    frame = spark.createDataFrame([("ok", 5.0), ("late", -1.0), ("fine", 7.0)], "data string, ttl double").coalesce(1)
    with pytest.raises(Exception, match=r"a row for queue 'q' is refused: time_error: .*late"):
        sink(frame, node, queue="q")
    sink(frame, node, queue="r", refused=str(tmp_path / "refused"))
    with node.client() as client:
        assert sorted(message.data for message in client.consume_many("r", 10)) == ["fine", "ok"]
    [line] = [line for path in (tmp_path / "refused").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert '"data":"late"' in line
    assert "time_error" in line
    with pytest.raises(Exception, match="column nonsense is none of"):
        sink(frame.withColumnRenamed("ttl", "nonsense"), node, queue="q")


def test_a_full_queue_is_waited_for(spark: SparkSession, start_node: StartNode) -> None:
    node = start_node()
    frame = spark.createDataFrame([(f"m{n}", f"k{n}") for n in range(300)], "data string, key string").coalesce(1)
    with node.client() as client:
        client.configure("q", max_size=100)
        taken: list[str] = []

        def consume() -> None:
            with node.client() as consumer:
                while len(taken) < 300:
                    messages = consumer.consume_many("q", 50, wait=5)
                    taken.extend(message.data for message in messages)

        thread = threading.Thread(target=consume)
        thread.start()
        sink(frame, node, queue="q", batchSize="50")
        thread.join(30)
        assert sorted(taken) == sorted(f"m{n}" for n in range(300))


def test_json_and_bytes_come_back_as_they_were(spark: SparkSession, start_node: StartNode) -> None:
    node = start_node()
    payloads: list[Any] = [{"a": [1, 2.5, None]}, "text", 12, None, b"\x00\xff", b"plain", [True]]
    with node.client() as client:
        client.produce_many("from", [NewMessage(one, key=f"k{n}") for n, one in enumerate(payloads)], retry=60)
        produced = load(spark, node, subscribe="from").where("kind = 'produce'").select("data", "encoding", "key")
        sink(produced, node, queue="to")
        for number, one in enumerate(payloads):
            got = client.show(queue="to", key=f"k{number}").data
            assert (got.encode() if isinstance(one, bytes) and isinstance(got, str) else got) == one
