"""A Spark session for the jobs: this machine's by default, any other with `master`."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from data.java import java_home
from data.shims import python_for_spark
from pyspark_quorate import DefaultSource

LOOPBACK: Final = "127.0.0.1"
SAFE_PATH: Final = "PYTHONSAFEPATH"


PYTHONS: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set variables for what is started meanwhile, Java with its workers."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _pythons(*, is_local: bool) -> dict[str, str]:
    """Say what Spark is to start as Python, or it would be any python3; what is set already stays.

    Elsewhere than on this machine what is there under this Python's own name. A Spark that SPARK_HOME names brings a
    pyspark of its own.
    """
    missing = [name for name in PYTHONS if name not in os.environ]
    if not missing:
        return {}
    is_pips = is_local and "SPARK_HOME" not in os.environ
    python = python_for_spark(Path(pyspark.__file__).parent) if is_pips else sys.executable
    return dict.fromkeys(missing, python)


def session(
    name: str, master: str | None = None, settings: dict[str, str] | None = None, *, partitions: int | None = None
) -> SparkSession:
    """Open the session. `master` as Spark takes it; None: all cores of this machine. `settings` go before ours.

    `partitions`: of a shuffle; None: two a core here, and Spark's own choice elsewhere. Raises `NoJavaError`.
    """
    master = (settings or {}).get("spark.master", master)
    is_local = master is None or master.startswith("local")
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    builder = SparkSession.builder.appName(name).master(master or "local[*]")
    ours = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.maxConcurrentOutputFileWriters": "32",  # or every task sorts its rows by date and shard first
        "spark.sql.sources.partitionColumnTypeInference.enabled": "true",
        f"spark.executorEnv.{SAFE_PATH}": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        ours |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        quiet = Path(__file__).with_name("log4j2.properties")
        ours["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={quiet}"
        ours["spark.sql.shuffle.partitions"] = str(partitions or 2 * (os.cpu_count() or 1))
    elif partitions is not None:
        ours["spark.sql.shuffle.partitions"] = str(partitions)
    for key, value in {**ours, **(settings or {})}.items():
        builder = builder.config(key, value)
    apart = {SAFE_PATH: "1"}  # a user's folder `data` is not taken for this package
    with _environment(**apart, **_pythons(is_local=is_local)):
        made = builder.getOrCreate()
    made.dataSource.register(DefaultSource)  # Spark finds it by itself only where a wheel is installed
    return made
