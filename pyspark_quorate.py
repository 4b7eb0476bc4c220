"""What Spark looks for when asked for `format("quorate")`: a top-level module of this name, and this class in it."""

from data.source import QuorateDataSource as DefaultSource

__all__ = ["DefaultSource"]
