"""The archive job: killed at every stage of a batch, and beside a cluster whose leader is killed."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from data.archive_folder import ArchiveFolder
from data.jobs import archive, replay, stream
from data.logs import ClusterLog
from quorate import Client, UnknownOutcomeError
from tests.cluster import Cluster, wait_for
from tests.conftest import StartNode
from tests.node import Node


def listed(out: Path) -> list[tuple[int, int, int | None]]:
    """What any tool finds in the archive: shard, trans_id and msg_id of every row."""
    found = ds.dataset(out / "data", format="parquet", partitioning="hive").to_table(["shard", "trans_id", "msg_id"])
    return sorted(zip(*(found[name].to_pylist() for name in ("shard", "trans_id", "msg_id")), strict=True), key=str)


def assert_exact(out: Path, upto: int) -> None:
    """Every record up to there is in the archive, and every row once."""
    rows = listed(out)
    assert len(set(rows)) == len(rows)
    assert sorted({trans_id for _, trans_id, _ in rows}) == list(range(1, max(upto, max(r[1] for r in rows)) + 1))


def grown(out: Path, before: int) -> bool:
    """Whether the archive has two batches more."""
    return out.exists() and len(ArchiveFolder(out).batches()) > before + 1


def options(node: Node, **more: str) -> dict[str, str]:
    return {"bootstrap.servers": f"127.0.0.1:{node.port}", **more}


STAGES: list[tuple[str, Any, str]] = [
    ("before the batch is written", ArchiveFolder, "staged"),
    ("when it is written and not a part of the data", ArchiveFolder, "add"),
    ("when it is a part of the data and not noted", archive._Job, "_note"),
    ("before the position is moved", ClusterLog, "moved"),
]


@pytest.mark.parametrize(("stage", "where", "name"), STAGES, ids=[stage for stage, _, _ in STAGES])
def test_a_job_killed_at_any_stage_goes_on_without_loss_or_duplicate(
    spark: SparkSession, start_node: StartNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    stage: str, where: Any, name: str,
) -> None:  # fmt: skip
    node = start_node()
    out = tmp_path / "archive"
    with node.client() as client:
        for _ in range(3):
            client.produce_many("q", list(range(100)), retry=60)
        original: Callable[..., Any] = getattr(where, name)
        calls = 0

        def dies(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2:  # the first batch goes well
                raise RuntimeError("killed")
            return original(*arguments, **named)

        monkeypatch.setattr(where, name, dies)
        with pytest.raises(Exception, match="killed"):
            archive.run(spark, options(node, maxOffsetsPerTrigger="100"), out, once=True)
        [reader] = client.readers()
        archived = max((trans_id for _, trans_id, _ in listed(out)), default=0)
        assert reader["trans_id"] <= archived, "the log keeps what the archive lacks"
        monkeypatch.undo()
        archive.run(spark, options(node, maxOffsetsPerTrigger="100"), out, once=True)
        assert_exact(out, 303)
        assert 300 <= client.readers()[0]["trans_id"] <= max(trans_id for _, trans_id, _ in listed(out))
        client.produce_many("q", list(range(100)), retry=60)
        archive.run(spark, options(node), out, once=True)
        assert_exact(out, 403)
        before = listed(out)
        files = archive.compact(spark, out)
        assert files[1] < files[0]
        assert listed(out) == before
        archive.run(spark, options(node), out, once=True)
        assert archive.archived(spark, out).where("kind = 'produce'").count() == 400


def test_the_logs_of_all_shards_are_archived_and_a_shard_that_is_down_stops_the_job(
    spark: SparkSession, start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node(shards=2)
    out = tmp_path / "archive"
    with node.client() as client:
        for queue in ("q0", "q1", "q4", "q5"):
            client.produce_many(queue, list(range(100)), retry=60)
        committed = {row["shard"]: row["committed"] for row in client.status()["shards"]}
        archive.run(spark, options(node, maxOffsetsPerTrigger="150"), out, once=True)
        assert len(committed) == 2
        for shard, end in committed.items():
            found = {trans_id for its, trans_id, _ in listed(out) if its == shard}
            assert found >= set(range(1, end + 1))
            assert client.readers(shard)[0]["trans_id"] > 200
    assert len(set(listed(out))) == len(listed(out))
    assert node.stop() == 0
    (Path(node.config["data_dir"]) / "shard-1" / "data.mdb").write_bytes(b"no LMDB")
    node.start()
    with pytest.raises(Exception, match="shard 1 is down"):
        archive.run(spark, options(node), out, once=True)


def test_an_archive_may_begin_at_the_end_which_is_looked_up_once(
    spark: SparkSession, start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node()
    out = tmp_path / "archive"
    with node.client() as client:
        client.produce_many("q", list(range(50)))
        begin = client.raw_log(0, count=1)["committed"]
        latest = options(node, startingOffsets="latest")
        assert archive.run(spark, latest, out, once=True) == 1, "that it holds the log is a record"
        assert archive.run(spark, latest, out, once=True) == 0, "and no reason to say more"
        client.produce_many("q", list(range(50)))
        archive.run(spark, latest, out, once=True)
        rows = sorted(trans_id for _, trans_id, _ in listed(out))
        assert rows == list(range(begin + 1, begin + 52)), "what came between the runs is not skipped"


@pytest.mark.slow
def test_a_process_killed_again_and_again_archives_every_record_once(start_node: StartNode, tmp_path: Path) -> None:
    node = start_node()
    out = tmp_path / "archive"
    command = [sys.executable, "-c", "from quorate_server import qctl; qctl()", "data", "archive"]
    command += ["--servers", f"127.0.0.1:{node.port}", "--out", str(out), "--master", "local[2]"]
    command += ["--option", "maxOffsetsPerTrigger=400"]
    with node.client() as client:
        done = threading.Event()

        def produce() -> None:
            while not done.is_set():
                client.produce_many("q", list(range(100)), retry=60)
                time.sleep(0.4)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            for _ in range(2):
                process = subprocess.Popen(command, start_new_session=True, cwd=tmp_path)
                batches = len(ArchiveFolder(out).batches()) if out.exists() else 0
                wait_for(partial(grown, out, batches), 90)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if out.exists():
                    rows = listed(out)
                    assert len(set(rows)) == len(rows), "also before it goes on"
        finally:
            done.set()
            thread.join()
        end = client.raw_log(0, count=1)["committed"]
        subprocess.run([*command[:-2], "--once"], cwd=tmp_path, check=True, timeout=300)
    assert_exact(out, end)


def test_a_clusters_log_is_archived_while_its_leader_is_killed(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    servers = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())
    out = tmp_path / "archive"
    stop = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            given = {"bootstrap.servers": servers, "maxOffsetsPerTrigger": "500", "timeout": "20"}
            archive.run(spark, given, out, once=False, stop=stop)
        except Exception as error:
            failed.append(error)

    with Client(nodes=servers.split(","), timeout=30) as client:
        client.produce_many("q", list(range(100)), retry=60)
        thread = threading.Thread(target=work)
        thread.start()
        wait_for(lambda: out.exists() and ArchiveFolder(out).batches(), 60)
        leader = cluster.leader()
        for number in range(20):
            if number == 5:
                leader.kill()
            with contextlib.suppress(UnknownOutcomeError):  # what the kill does to a produce without a key
                client.produce_many("q", [f"{number}.{n}" for n in range(100)], retry=60)
        begun = len(ArchiveFolder(out).batches())
        wait_for(lambda: failed or len(ArchiveFolder(out).batches()) > begun, 60)
        stop.set()
        thread.join(60)
        leader.start()
        assert not failed, failed
        archive.run(spark, {"bootstrap.servers": servers}, out, once=True)
        end = client.status()["shards"][0]["committed"]
    assert_exact(out, end - 2)


def test_messages_are_replayed_from_an_archive_each_once(
    spark: SparkSession, start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node()
    out, notes = tmp_path / "archive", tmp_path / "notes.json"
    servers = f"127.0.0.1:{node.port}"
    with node.client() as client:
        client.produce_many("mail", [{"n": n} for n in range(300)], retry=60)
        client.produce("other", "x")
        archive.run(spark, options(node), out, once=True)
        rows = archive.archived(spark, out)
        where = "queue = 'mail' and get_json_object(cast(data as string), '$.n') < 250"
        for _ in range(2):
            replay.run(spark, rows, into="mail2", servers=servers, where=where)
            assert client.monitor("mail2")["size"] == 250
        assert replay.run(spark, rows, into="mail3", servers=servers, where=where, notes=notes, piece=100) == 250
        client.confirm(client.consume_many("mail3", 200))
        assert replay.run(spark, rows, into="mail3", servers=servers, where=where, notes=notes) == 0, "all is done"
        with pytest.raises(replay.ReplayError, match="another replay"):
            replay.run(spark, rows, into="mail4", servers=servers, where=where, notes=notes)
        begun = time.monotonic()
        replay.run(spark, rows, into="slow", servers=servers, where="queue = 'mail'", rate=200)
        assert time.monotonic() - begun > 0.9
        any_parquet = tmp_path / "any"
        spark.createDataFrame([("hello", "q5")], "data string, queue string").write.parquet(str(any_parquet))
        assert replay.run(spark, spark.read.parquet(str(any_parquet)), into=None, servers=servers) == 1
        message = client.consume("q5")
        assert message is not None
        assert message.data == "hello"


def test_counts_by_window_are_streamed(spark: SparkSession, start_node: StartNode, tmp_path: Path) -> None:
    node = start_node()
    with node.client() as client:
        client.produce_many("q", list(range(100)), retry=60)
        client.confirm(client.consume_many("q", 40))
        for n in range(3):
            time.sleep(1.1)
            client.produce("other", n)
        given = options(node)
        stream.run(spark, given, window="1 second", out=tmp_path / "out", late="1 second", once=True)
        rows = spark.read.parquet(str(tmp_path / "out")).where("queue = 'q'").groupBy().sum().collect()[0]
        assert (rows["sum(produced)"], rows["sum(delivered)"], rows["sum(done)"]) == (100, 40, 40)
        stream.run(
            spark, given, window="1 second", into="counts", checkpoint=tmp_path / "c", late="1 second", once=True
        )
        found = [message.data for message in client.consume_many("counts", 100)]
        assert sum(one["produced"] for one in found if one["queue"] == "q") == 100
