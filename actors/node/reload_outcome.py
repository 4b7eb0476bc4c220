"""What came of the last reload: the supervisor notes it in the data folder, and `qctl node reload` waits for it."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FILE: Final = "reload.json"


@dataclass(frozen=True)
class ReloadOutcome:
    """Of the `serial`-th reload of supervisor `pid`: a line for each thing `said`; `is_taken` False: all stays."""

    pid: int
    serial: int
    is_taken: bool
    said: list[str]


def note(folder: Path, outcome: ReloadOutcome) -> None:
    """Write it, whole or not at all. Raises OSError."""
    beside = folder / f"{FILE}.new"
    beside.write_text(json.dumps(asdict(outcome)) + "\n", encoding="utf-8")
    os.replace(beside, folder / FILE)


def last(folder: Path) -> ReloadOutcome | None:
    """What was noted last; None if nothing was, or it can't be read."""
    try:
        return ReloadOutcome(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
