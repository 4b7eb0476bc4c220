"""What a data folder was founded with and never changes: how many shards there are, and which cluster they are of.

`founding.json` in the data folder, written before the first shard is. A folder of a version that knew one shard alone
has none.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.real_disk import write_whole
from storage.vote_file import drawn_id

FILE: Final = "founding.json"
FORMAT: Final = 1


class FoundingError(Exception):
    """The folder was founded with something else than is asked for now."""


@dataclass(frozen=True)
class FoundedWith:
    """`cluster_id` is the number that all shards' clusters get that this node founds; 0: each draws its own."""

    shards: int
    cluster_id: int


def founded(folder: Path, shards: int) -> FoundedWith:
    """Read what the folder was founded with; founds it with `shards` if nothing is there yet.

    Raises `FoundingError` where that is another number of shards, or can't be read; OSError.
    """
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise FoundingError(f"{path} is of another version, or damaged: {str(found)[:80]}")
        founding = FoundedWith(int(found["shards"]), int(str(found["cluster_id"]), 16))
    except FileNotFoundError:
        founding = FoundedWith(1, 0) if (folder / "shard-0").exists() else _found(path, shards)
    except (ValueError, KeyError) as error:
        raise FoundingError(f"{path} can't be read: {error!r}") from error
    if founding.shards != shards:
        raise FoundingError(
            f"shards is set to {shards}, and the data in {folder} were founded with {founding.shards}: which shard a "
            f"queue is in depends on that. Set shards to {founding.shards}, or begin anew with an empty folder"
        )
    _check_first(folder)
    return founding


def _check_first(folder: Path) -> None:
    """Shard 0 says which cluster all others are of: without it they would be taken for those of a new one.

    So its folder is made before any worker makes another.
    """
    first = folder / "shard-0" / "journal"
    if first.exists():
        return
    if not any(folder.glob("shard-*/journal")):
        first.mkdir(parents=True, mode=0o700)
        return
    raise FoundingError(
        f"shard-0 is gone from {folder}, and others are there: restore it from a backup, or, where the folder is that "
        "of a node of a cluster, remove the node from it, empty the folder, and add the node again"
    )


def _found(path: Path, shards: int) -> FoundedWith:
    """Write it, whole or not at all."""
    founding = FoundedWith(shards, drawn_id(random.SystemRandom().random))
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"format": FORMAT, "shards": shards, "cluster_id": f"{founding.cluster_id:x}"}
    write_whole(path, json.dumps(told) + "\n")
    return founding
