"""What a follower does in a cluster of an older version, and what a node does that starts with such data."""

import pytest
from msgspec.structs import replace

from actors.messages.peers import CutPeer
from actors.node.assembly import open_shard
from actors.node.shard_settings import ShardSettings
from storage.entry import LogEnd, StoredEntry
from storage.entry_codec import encode
from storage.errors import UnknownFormatError
from storage.log_store import LogStore
from storage.records import BASE_LEVEL, LEVEL, Member
from storage.vote_file import Identity, open_vote_file
from tests.actors.cluster.replication_node import THREE, following, made
from tests.storage.memory import MemoryFolder, MemoryTables


def members_entry(at: int, vote_id: int, level: int) -> StoredEntry:
    return StoredEntry(at, at, vote_id, encode(vote_id, at, 1.0, [replace(THREE, level=level)]))


def test_a_leader_of_an_older_version_is_cut_once_its_level_is_known_and_the_worker_goes_on() -> None:
    node = following(made(1, 3, 1), committed=3)
    node.push(LogEnd(1, 3), members_entry(4, 5, BASE_LEVEL - 1), committed=4)
    node.written()
    node.push(LogEnd(5, 4), committed=4)
    assert [f"needs {BASE_LEVEL} at least" in one.reason for one in node.machine.take(CutPeer)] == [True]


def test_a_raise_that_is_here_and_not_known_to_be_committed_counts() -> None:
    node = following(members_entry(1, 1, BASE_LEVEL - 1), members_entry(2, 1, BASE_LEVEL), committed=0)
    node.push(LogEnd(1, 2), committed=0)
    assert node.machine.take(CutPeer) == []


@pytest.mark.parametrize(
    ("node_id", "level", "starts"), [(1, 4, False), (4, 4, True), (1, 5, True), (4, LEVEL + 1, False)]
)
def test_a_voter_with_data_of_a_lower_level_does_not_start_and_a_node_that_is_still_pulling_does(
    node_id: int, level: int, starts: bool
) -> None:
    folder, tables = MemoryFolder(), MemoryTables()
    open_vote_file(folder, Identity(9, node_id, 11))
    LogStore(tables, 0).store([members_entry(1, 1, level), made(2, 50, 1)])
    settings = ShardSettings(
        own=Member(node_id, f"n{node_id}", 1), election_timeout_s=1.0, log_records_max=1000, segment_bytes=64 << 10
    )
    if starts:
        open_shard(tables, folder, settings, lambda: 1.0, lambda: 0.5)
    else:
        with pytest.raises(UnknownFormatError, match=f"feature level {level}"):
            open_shard(tables, folder, settings, lambda: 1.0, lambda: 0.5)
