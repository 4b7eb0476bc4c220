"""Instants as Spark hands them to Python: without a zone, in this machine's time. Here they become UTC."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row


def in_utc(row: Row) -> dict[str, Any]:
    """Make a row a dict, with its instants in UTC, without a zone."""
    return {
        name: value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value
        for name, value in row.asDict().items()
    }
