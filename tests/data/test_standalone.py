"""A Spark cluster of its own: master and worker as processes from the pip package, an executor killed in the middle."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest

from data.archive_folder import ArchiveFolder
from data.java import java_home
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.data.test_archive import assert_exact
from tests.node import free_port
from tests.quick_java import LIGHT

SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster's address."""
    port, home = free_port(), java_home()
    environment = {
        **os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": f"{LIGHT} -Dspark.master.rest.enabled=false", "SPARK_DAEMON_MEMORY": "256m",
    }  # fmt: skip
    if home is not None:
        environment["JAVA_HOME"] = str(home)
    words = [str(SPARK_HOME / "bin" / "spark-class")]
    address = f"spark://127.0.0.1:{port}"
    commands = [
        ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "2", "--memory", "1g",
         "--webui-port", "0", "--work-dir", str(tmp_path / "work"), address],
    ]  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    log = tmp_path / "spark.log"
    try:
        for command in commands:
            with log.open("ab") as file:
                options: dict[str, Any] = {"env": environment, "stdout": file, "stderr": file, "cwd": tmp_path}
                started.append(subprocess.Popen([*words, *command], start_new_session=True, **options))
            wait_for(partial(_says, log, "New state: ALIVE"), 60)
        wait_for(partial(_says, log, "Successfully registered with master"), 60)
        yield address
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def executors(folder: Path) -> list[int]:
    """The executors' processes: those that work in the worker's folder."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            works_there = str(folder) in os.readlink(process / "cwd")
            is_one = b"CoarseGrained" in (process / "cmdline").read_bytes()
        except OSError:
            continue
        if works_there and is_one:
            found.append(int(process.name))
    return found


@pytest.mark.slow
def test_an_archive_is_exact_on_a_cluster_whose_executor_is_killed(
    master: str, start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node()
    out = tmp_path / "archive"
    with node.client() as client:
        for _ in range(60):
            client.produce_many("q", list(range(200)), retry=60)
        end = client.raw_log(0, count=1)["committed"]
    words = [sys.executable, "-c", "from quorate_server import qctl; qctl()", "data", "archive", "--once"]
    words += ["--servers", f"127.0.0.1:{node.port}", "--out", str(out), "--master", master]
    words += ["--option", "maxOffsetsPerTrigger=2000", "--conf", "spark.sql.shuffle.partitions=2"]
    words += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (tmp_path / "job.log").open("wb") as log:
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, cwd=tmp_path)
    try:
        wait_for(partial(_has_batches, out, 2), 120)
        for pid in executors(tmp_path / "work"):
            os.kill(pid, signal.SIGKILL)
        assert process.wait(150) == 0, (tmp_path / "job.log").read_text()
    finally:
        process.kill()
        process.wait()
    assert_exact(out, end)


def _says(log: Path, text: str) -> bool:
    return text in log.read_text()


def _has_batches(out: Path, count: int) -> bool:
    return out.exists() and len(ArchiveFolder(out).batches()) >= count
