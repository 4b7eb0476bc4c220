"""What Spark looks for when asked for `format("quorate")`: a top-level module of this name, and `DefaultSource` in it.

It runs in users' processes, whose own modules may be called as our packages are (`data`, `storage`, `net`, `cli`,
`actors`). This module's name is nobody else's, so whatever Spark carries from process to process is a class of this
module: to read it, a worker imports this module first, and that puts the folder it was found in before all others. A
worker that reads or writes with `format("quorate")` thus finds our packages by those names; a user's function that
needs his own of the same name belongs in a query without it.
"""

import sys
from pathlib import Path
from typing import Final

OURS: Final = ("actors", "cli", "data", "net", "storage")


def _ours_first() -> None:
    """Whatever stands in the current folder or on PYTHONPATH: our packages are found where this module was."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here), *(entry for entry in sys.path if entry != str(here))]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in OURS and not (file and Path(file).resolve().is_relative_to(here)):
            del sys.modules[name]


_ours_first()

from data.sink import QuorateStreamWriter, QuorateWriter  # noqa: E402
from data.source import LogBatchReader, LogStreamReader, PushingReader, QuorateDataSource  # noqa: E402


class BatchReader(LogBatchReader):
    """As its base; named here, see above. So are the others."""


class FilteringReader(PushingReader):
    """As its base."""


class StreamReader(LogStreamReader):
    """As its base."""


class BatchWriter(QuorateWriter):
    """As its base."""


class StreamWriter(QuorateStreamWriter):
    """As its base."""


class DefaultSource(QuorateDataSource):
    """`format("quorate")`."""

    batch_reader = BatchReader
    filtering_reader = FilteringReader
    stream_reader = StreamReader
    batch_writer = BatchWriter
    stream_writer = StreamWriter


__all__ = ["DefaultSource"]
