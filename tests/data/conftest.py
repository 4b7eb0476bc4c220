"""One Spark session for all tests, and logs to read with it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from data.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """On two cores of this machine."""
    made = session("tests", "local[2]", {"spark.sql.warehouse.dir": "/nonexistent"}, partitions=2)
    yield made
    made.stop()
