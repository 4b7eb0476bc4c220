"""A topic as a Spark source, against real nodes."""

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from quorate import Client, NewTopicMessage
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.node import Node


def load(spark: SparkSession, node: Node, **options: object) -> DataFrame:
    reader = spark.read.format("quorate").option("bootstrap.servers", f"127.0.0.1:{node.port}").option("topic", "t")
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def places(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())


def filled(client: Client, messages: int = 2500) -> None:
    client.create_topic("t", partitions=3)
    client.append("t", b"\x00\xff", partition=0, key="k", headers={"a": "1", "b": "2"}, attribute="red")
    client.append("t", {"n": [1, 2.5, "x", None]}, partition=1)
    for first in range(0, messages, 500):
        client.append_many("t", [NewTopicMessage(n, key=f"k{n}") for n in range(first, first + 500)], partition=2)


def test_a_batch_is_what_the_topic_holds(spark: SparkSession, start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        begun = time.time()
        filled(client)
        rows = {(row["partition"], row["offset"]): row for row in load(spark, node).collect()}
        assert sorted(rows) == [(0, 0), (1, 0), *((2, n) for n in range(2500))]
        first = rows[0, 0]
        assert (first["topic"], bytes(first["data"]), first["encoding"]) == ("t", b"\x00\xff", "bytes")
        assert (first["key"], first["headers"], first["attribute"]) == ("k", {"a": "1", "b": "2"}, "red")
        assert begun - 1 < first["time"].timestamp() < time.time() + 1
        message = next(iter(client.read("t", partitions=[0])))
        assert (first["msg_id"], first["position"]) == (message.msg_id, message.position)
        assert (bytes(rows[1, 0]["data"]), rows[1, 0]["encoding"]) == (b'{"n":[1,2.5,"x",null]}', "json")
        assert (rows[1, 0]["key"], rows[1, 0]["headers"], rows[1, 0]["attribute"]) == (None, {}, None)
        assert [bytes(rows[2, n]["data"]) for n in range(2500)] == [b"%d" % n for n in range(2500)]
        assert load(spark, node).rdd.getNumPartitions() == 3
        assert load(spark, node, minPartitions=10).rdd.getNumPartitions() >= 10
        assert load(spark, node, includeData="false").where("data is not null").count() == 0


def test_it_begins_and_ends_as_it_is_told(spark: SparkSession, start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        filled(client, 500)
        time.sleep(0.05)
        middle = time.time()
        client.append_many("t", ["later"] * 5, partition=2)
        later = [(2, n) for n in range(500, 505)]
        assert places(load(spark, node, startingTimestamp=int(middle * 1000))) == later
        assert places(load(spark, node, endingTimestamp=int(middle * 1000), startingOffsets='{"2": 498}')) == [
            (0, 0),
            (1, 0),
            (2, 498),
            (2, 499),
        ]
        chosen = load(spark, node, startingOffsets='{"0": -1, "1": -1, "2": 10}', endingOffsets='{"2": 12}')
        assert places(chosen) == [(2, 10), (2, 11)]
        assert places(load(spark, node, startingOffsets="latest")) == []
        client.trim_topic("t", partition=2, before=400)
        with pytest.raises(Exception, match="partition 2: message 10 is wanted, and the first that is kept is 400"):
            load(spark, node, startingOffsets='{"2": 10}').count()
        assert load(spark, node, startingOffsets='{"2": 10}', failOnDataLoss="false").count() == 107
        with pytest.raises(Exception, match="no_such_topic"):
            load(spark, node, topic="none").count()


def test_a_stream_goes_on_where_it_was_and_its_group_follows(
    spark: SparkSession, start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node()
    taken: list[list[Any]] = []

    def run() -> None:
        stream = spark.readStream.format("quorate").option("bootstrap.servers", f"127.0.0.1:{node.port}")
        stream = stream.option("topic", "t").option("maxOffsetsPerTrigger", "400").option("groupId", "spark")
        writer = stream.load().writeStream.foreachBatch(lambda frame, batch: taken.append(places(frame)))
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()

    with node.client() as client:
        filled(client, 1000)
        run()
        assert sorted(place for batch in taken for place in batch) == [(0, 0), (1, 0), *((2, n) for n in range(1000))]
        assert len(taken) >= 3
        client.configure_topic("t", partitions=4)
        client.append_many("t", ["new"] * 10, partition=3)
        before = len(taken)
        run()
        assert sorted(place for batch in taken[before:] for place in batch) == [(3, n) for n in range(10)]
        wait_for(lambda: client.group("t", "spark").lag is not None)
        assert {row.partition: row.position for row in client.group("t", "spark").partitions or ()}[2] == 1000


def test_rows_are_appended_to_a_topic(spark: SparkSession, start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        client.create_topic("t", partitions=4)
        rows = spark.createDataFrame([("a", "k1"), ("b", "k2"), ("c", "k1")], "data STRING, key STRING")
        writer = rows.coalesce(1).write.format("quorate").option("bootstrap.servers", f"127.0.0.1:{node.port}")
        writer.option("queue", "t").mode("append").save()
        found: dict[str | None, list[Any]] = {message.key: [] for message in client.read("t")}
        for message in client.read("t"):
            found[message.key].append(message.data)
        assert found == {"k1": ["a", "c"], "k2": ["b"]}
