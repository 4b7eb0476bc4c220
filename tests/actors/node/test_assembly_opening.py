"""What is on a node's disk before anybody hears of it."""

from actors.node.assembly import open_shard
from actors.node.shard_settings import ShardSettings
from storage.records import Member
from storage.vote_file import Identity, open_vote_file
from tests.storage.memory import MemoryFolder, MemoryTables

OWN = Member(1, "n1", 1)


def promised(folder: MemoryFolder) -> float:
    return open_vote_file(folder, Identity(0, 1, 7)).identity.promise_s


def opened(folder: MemoryFolder, tables: MemoryTables, timeout_s: float) -> None:
    settings = ShardSettings(own=OWN, election_timeout_s=timeout_s, log_records_max=1000, segment_bytes=64 << 10)
    open_shard(tables, folder, settings, lambda: 1.0, lambda: 0.5)


def test_what_a_node_promises_its_leaders_is_on_its_disk_before_it_is_told_and_the_longer_one_is_kept() -> None:
    """A follower that was restarted with a shorter time-out took a leader's lease that it had promised."""
    folder, tables = MemoryFolder(), MemoryTables()
    opened(folder, tables, 2.0)
    assert promised(folder) == 2.0
    opened(folder, tables, 0.5)
    assert promised(folder) == 2.0, "a leader may count on it still"
    opened(folder, tables, 3.0)
    assert promised(folder) == 3.0
