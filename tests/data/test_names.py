"""A user's own modules may be called as our packages are."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark_quorate
from tests.conftest import StartNode

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys

import data.helper
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
path, port = sys.argv[1:]
there = spark.read.format("quorate").option("path", path).load()
assert sorted(row["n"] for row in spark.createDataFrame([(1,), (2,)], ["n"]).collect()) == data.helper.NUMBERS
print("found", there.where("kind = 'produce'").count())
there.where("kind = 'produce'").selectExpr("data").write.format("quorate").mode("append").options(
    **{"bootstrap.servers": f"127.0.0.1:{port}", "queue": "copied"}
).save()
"""


def test_a_script_beside_a_folder_called_data_uses_the_source_and_the_sink(
    start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node()
    for name in ("data", "storage", "net", "actors", "cli"):
        (tmp_path / "own" / name).mkdir(parents=True)
        (tmp_path / "own" / name / "__init__.py").write_text("")
        (tmp_path / "own" / name / "helper.py").write_text("NUMBERS = [1, 2]\n")
    (tmp_path / "own" / "script.py").write_text(SCRIPT)
    with node.client() as client:
        client.produce_many("q", [b"a", b"b", b"c"])
        done = subprocess.run(
            [sys.executable, "script.py", str(node.config["data_dir"]), str(node.port)],
            cwd=tmp_path / "own",
            env={
                **os.environ,
                "PYTHONPATH": f"{tmp_path / 'own'}:{ROOT}",  # ours behind his, as site-packages are
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[:4000]
        assert "found 3" in done.stdout
        assert [message.data for message in client.consume_many("copied", 10)] == [b"a", b"b", b"c"]


ALONE = """
import importlib
import sys

name, kind, path = sys.argv[1:]
his = importlib.import_module(name)
assert getattr(his, "HIS", kind == "a folder"), f"{name} is his own until Spark looks for ours"

import pyspark_quorate
from pyspark.sql.types import StringType, StructField, StructType

source = pyspark_quorate.DefaultSource({"path": path})
reader = source.reader(StructType([StructField("kind", StringType())]))
rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
print("found", sum(row["kind"] == "produce" for row in rows))
"""
KINDS = {"a package": "{}/__init__.py", "a module": "{}.py", "a folder": "{}/helper.py"}


def test_each_of_our_names_may_be_a_users_package_module_or_folder(start_node: StartNode, tmp_path: Path) -> None:
    """One alone, too: what he has not stays ours beside what he has."""
    node = start_node()
    with node.client() as client:
        client.produce_many("q", [b"a", b"b", b"c"])
    node.stop()
    for name in pyspark_quorate.OURS:
        for kind, file in KINDS.items():
            own = tmp_path / name / kind.replace(" ", "-")
            (own / file.format(name)).parent.mkdir(parents=True, exist_ok=True)
            (own / file.format(name)).write_text("HIS = True\n")
            (own / "script.py").write_text(ALONE)
            done = subprocess.run(
                [sys.executable, "script.py", name, kind, str(node.config["data_dir"])],
                cwd=own,
                env={**os.environ, "PYTHONPATH": f"{own}:{ROOT}"},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert done.returncode == 0, f"{name}, {kind}: {done.stderr[-2000:]}"
            assert "found 3" in done.stdout, f"{name}, {kind}: {done.stdout}"
