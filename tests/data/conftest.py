"""One Spark session for all tests, and logs to read with it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from data.session import session

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """On two cores of this machine. What its workers run is found by PYTHONPATH, as in a checkout."""
    os.environ["PYTHONPATH"] = str(ROOT)
    made = session("tests", "local[2]", {"spark.sql.warehouse.dir": "/nonexistent"}, partitions=2)
    yield made
    made.stop()
