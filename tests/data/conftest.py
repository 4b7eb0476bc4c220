"""One Spark session for all tests, and logs to read with it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from data.session import session


def pytest_itemcollected(item: pytest.Item) -> None:
    """All tests of this folder run in one process, so that there is one Spark."""
    item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """On two cores of this machine."""
    made = session("tests", "local[2]", {"spark.sql.warehouse.dir": "/nonexistent"}, partitions=2)
    yield made
    made.stop()
