"""Beginning anew with a shard whose data are damaged, on a node of a cluster: the others have all of it.

To keep what can be read, as `repair` does for a node alone, would lose what was acknowledged: this node has said of
records that it stores them, and counts as one that has them. So all is moved aside but the record of its votes; that
notes, first, that this node votes for nobody and leads nothing before it has again all that its leader has
(`Identity.abstains`). It gets a snapshot as a node does that is new. Where too many begin anew, the rest can't elect:
`others_can_elect` says whether to ask somebody first.

A process that ends in between leaves a mark with what it has put aside (`unfinished`): the next renewal goes on there.
"""

import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from storage.disk import Folder
from storage.errors import DamagedError, NoMembersError
from storage.journal import is_segment_name
from storage.log_store import LogStore
from storage.real_disk import RealFolder, flush_folder
from storage.records import Members
from storage.repair import verify
from storage.sections import rows_with
from storage.tables import LmdbTables, Tables
from storage.trimming import FIRST_VOTE_ID, TrimRows
from storage.vote_file import NAME, Identity, open_vote_file

ASIDE: Final = ".damaged-"
LMDB_FILES: Final = ("data.mdb", "lock.mdb")
MARK: Final = "unfinished"
"""A file beside what is put aside, while not all of it is."""


def set_aside(path: Path) -> list[Path]:
    """List what earlier renewals and repairs of the shard at `path` have put aside."""
    return sorted(path.parent.glob(f"{path.name}{ASIDE}*"))


def unfinished(path: Path) -> Path | None:
    """Where a renewal of the shard at `path` was putting its data when its process ended; None: nowhere."""
    return next((one for one in set_aside(path) if (one / MARK).exists()), None)


def others_can_elect(node_id: int, members: Members | None, listed: Collection[int]) -> bool:
    """Whether the other nodes can elect a leader while this one votes for nobody: they do not need it for a majority.

    By the `members` if they are known, else by the nodes that are `listed` in the configuration.
    """
    voters = set(listed) | {node_id} if members is None else set(members.voters)
    return len(voters - {node_id}) > len(voters) // 2


def aside_name(path: Path) -> Path:
    """Where to put the shard's data now."""
    return path.with_name(f"{path.name}{ASIDE}{time.strftime('%Y%m%d-%H%M%S')}")


def members_of(path: Path, shard: int) -> Members | None:
    """Find the last members that can be read in damaged data; None where nothing can. Reads everything.

    Raises `NoMembersError` where data can be read that name none.
    """
    try:
        tables = LmdbTables(path)
    except DamagedError:
        return None
    try:
        members = verify(tables, RealFolder(path / "journal"), shard).members
    except DamagedError:
        return None
    finally:
        tables.close()
    if members is None:
        raise NoMembersError(f"{path.name}: what can be read names no members")
    return members


def renew(path: Path, shard: int, members: Members | None, *, votes: bool = False) -> Path:
    """Put the data of the shard at `path` aside, and begin anew; returns where they are. The node must not run.

    With `votes` it votes at once: whatever it alone had may be lost. Raises `DamagedError` where the record of its
    votes can't be read, OSError.
    """
    journal = path / "journal"
    abstain(RealFolder(journal), not votes)
    aside = unfinished(path) or aside_name(path)
    (aside / "journal").mkdir(parents=True, mode=0o700, exist_ok=True)
    (aside / MARK).touch()
    for folder in (aside, path.parent):
        flush_folder(folder)
    for name in LMDB_FILES:
        if (path / name).exists():
            (path / name).rename(aside / name)
    for file in sorted(journal.iterdir()):
        if is_segment_name(file.name):
            file.rename(aside / "journal" / file.name)
    for folder in (path, journal, aside, aside / "journal"):
        flush_folder(folder)
    if members is not None:  # so that it knows whom to ask
        tables = LmdbTables(path)
        note_members(tables, shard, members)
        tables.close()
    (aside / MARK).unlink()
    flush_folder(aside)
    return aside


def abstain(folder: Folder, abstains: bool = True) -> None:
    """Note in the journal's folder that this node's log is lost, or that it counts again with what it has.

    Raises `DamagedError` if the record of its votes is lost, too.
    """
    if NAME not in folder.names():
        raise DamagedError(NAME, "there is no record of this node's votes")
    votes = open_vote_file(folder, Identity(0, 0, 0))
    try:
        votes.save(replace(votes.identity, abstains=abstains))
    finally:
        votes.close()


def note_members(tables: Tables, shard: int, members: Members) -> None:
    """Of empty data, whom to ask for all that is missing."""
    LogStore(tables, shard).replace(TrimRows([], [], rows_with(members)), 0, FIRST_VOTE_ID)
