"""One Spark session for all tests, and logs to read with it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from data.session import session
from tests.sharing import made_here


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """On two cores of this machine."""
    made_here("spark", tmp_path_factory)
    made = session("tests", "local[2]", {"spark.sql.warehouse.dir": "/nonexistent"}, partitions=2)
    yield made
    made.stop()
