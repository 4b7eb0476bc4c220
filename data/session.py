"""A Spark session for the jobs: this machine's by default, any other with `master`."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from data.java import java_home
from data.shims import python_for_spark
from pyspark_quorate import DefaultSource

LOOPBACK: Final = "127.0.0.1"
SAFE_PATH: Final = "PYTHONSAFEPATH"


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep what is started meanwhile, Java with its workers, from taking a user's folder `data` for this package."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        del os.environ[SAFE_PATH]
        if before is not None:
            os.environ[SAFE_PATH] = before


def session(
    name: str, master: str | None = None, settings: dict[str, str] | None = None, *, partitions: int | None = None
) -> SparkSession:
    """Open the session. `master` as Spark takes it; None: all cores of this machine. `settings` go before ours.

    `partitions`: of a shuffle; None: two a core here, and Spark's own choice elsewhere. Raises `NoJavaError`.
    """
    is_local = master is None or master.startswith("local")
    python = python_for_spark() if is_local and "SPARK_HOME" not in os.environ else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)  # or the workers would run any python3
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
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
    with _safe_path():
        made = builder.getOrCreate()
    made.dataSource.register(DefaultSource)  # Spark finds it by itself only where a wheel is installed
    return made
