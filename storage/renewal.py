"""Beginning anew with a shard whose data are damaged, on a node of a cluster: the others have all of it.

To keep what can be read, as `repair` does for a node alone, would lose what was acknowledged: this node has said of
records that it stores them, and counts as one that has them. So all is moved aside but the record of its votes; that
notes, first, that this node votes for nobody and leads nothing before it has again all that its leader has
(`Identity.abstains`). It gets a snapshot as a node does that is new.

A process that ends in between leaves a folder that is damaged still: the next renewal goes on.
"""

import time
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from storage.disk import Folder
from storage.errors import DamagedError
from storage.journal import is_segment_name
from storage.log_store import LogStore
from storage.real_disk import RealFolder, flush_folder
from storage.records import Members
from storage.repair import verify
from storage.tables import LmdbTables, Tables
from storage.trimming import FIRST_VOTE_ID, TrimRows, encode_row
from storage.vote_file import NAME, Identity, open_vote_file

ASIDE: Final = ".damaged-"
LMDB_FILES: Final = ("data.mdb", "lock.mdb")


def set_aside(path: Path) -> list[Path]:
    """What earlier renewals and repairs of the shard at `path` have put aside."""
    return sorted(path.parent.glob(f"{path.name}{ASIDE}*"))


def aside_name(path: Path) -> Path:
    """Where to put the shard's data now."""
    return path.with_name(f"{path.name}{ASIDE}{time.strftime('%Y%m%d-%H%M%S')}")


def members_of(path: Path, shard: int) -> Members | None:
    """The last members that can be read in damaged data; None where none can. Reads everything."""
    try:
        tables = LmdbTables(path)
    except DamagedError:
        return None
    try:
        return verify(tables, RealFolder(path / "journal"), shard).members
    except DamagedError:
        return None
    finally:
        tables.close()


def renew(path: Path, shard: int, members: Members | None) -> Path:
    """Put the data of the shard at `path` aside, and begin anew; returns where they are. The node must not run.

    Raises `DamagedError` where the record of its votes can't be read, OSError.
    """
    journal = path / "journal"
    abstain(RealFolder(journal))
    aside = aside_name(path)
    (aside / "journal").mkdir(parents=True, mode=0o700)
    for name in LMDB_FILES:
        if (path / name).exists():
            (path / name).rename(aside / name)
    for file in sorted(journal.iterdir()):
        if is_segment_name(file.name):
            file.rename(aside / "journal" / file.name)
    for folder in (path, journal, path.parent):
        flush_folder(folder)
    if members is not None:  # so that it knows whom to ask
        tables = LmdbTables(path)
        note_members(tables, shard, members)
        tables.close()
    return aside


def abstain(folder: Folder) -> None:
    """Note in the journal's folder that this node's log is lost. Raises `DamagedError` if its votes are, too."""
    if NAME not in folder.names():
        raise DamagedError(NAME, "there is no record of this node's votes")
    votes = open_vote_file(folder, Identity(0, 0, 0))
    try:
        votes.save(replace(votes.identity, abstains=True))
    finally:
        votes.close()


def note_members(tables: Tables, shard: int, members: Members) -> None:
    """Of empty data, whom to ask for all that is missing."""
    LogStore(tables, shard).replace(TrimRows([], [], encode_row(members)), 0, FIRST_VOTE_ID)
