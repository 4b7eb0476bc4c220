"""One node's replication on its own: what it is told, and what it decides."""

from typing import Any

from actors.cluster.decisions import WriteEntries
from actors.cluster.following import ReplicationLimits
from actors.cluster.membership import Membership
from actors.cluster.pushing import Lateness
from actors.cluster.replicated_log import ReplicatedLog
from actors.cluster.replication import Replication
from actors.messages.election import Standing
from actors.messages.log import Append
from actors.messages.peers import PeerSaid, SendPeers
from net.peers.messages import (
    Push,
)
from storage.entry import LogEnd, StoredEntry
from storage.entry_codec import encode
from storage.log_tail import LogTail
from storage.records import LEVEL, Member, Members, Remove
from tests.actors.cluster.recorded import Recorded

THREE = Members("", 9, [Member(n, f"n{n}", 1, n * 11, is_voter=True) for n in (1, 2, 3)], [], level=LEVEL)
AT_ONCE = Lateness(seconds=0.0)


def made(first: int, last: int, vote_id: int) -> StoredEntry:
    records: list[Any] = [Remove(f"q{n}") for n in range(first, last + 1)]
    return StoredEntry(first, last, vote_id, encode(vote_id, first, 1.0, records))


class Node:
    """Node 1 of three, driven by hand: what it writes is on its disk when `written` is called."""

    def __init__(self, *entries: StoredEntry, committed: int = 0, vote_id: int = 1, **limits: Any) -> None:
        tail = LogTail([(0, 0)], 0, list(entries))
        self.log = ReplicatedLog(tail, Membership(THREE.members[0], THREE), committed)
        limits = {"lateness": AT_ONCE, "timeout_s": 0.4, **limits}
        self.machine = Recorded(Replication(self.log, ReplicationLimits(**limits), vote_id, 0.0))
        self.writes = 0

    def heard(self, now: float, node_id: int, message: Any) -> None:
        """Another member says something, over a link from the disk that the members know it by."""
        self.machine.heard(now, PeerSaid(node_id, message, 9, node_id * 11))

    def said(self, kind: type) -> list[Any]:
        """What was said to other nodes, of that kind."""
        return [sent.message for sent in self.machine.take(SendPeers) if isinstance(sent.message, kind)]

    def written(self) -> None:
        """All that was to be written is on the disk."""
        self.writes += sum(len(write.entries) for write in self.machine.take(WriteEntries))
        self.machine.written(0.0, self.writes, 1e9)

    def push(self, after: LogEnd, *entries: StoredEntry, committed: int = 0, vote_id: int = 5) -> None:
        data = [entry.data for entry in entries]
        self.heard(0.0, 2, Push(vote_id, after.trans_id, after.vote_id, data, committed, 0.0))


def following(*entries: StoredEntry, committed: int = 0) -> Node:
    node = Node(*entries, committed=committed)
    node.machine.stand(0.0, Standing(5, 2))
    node.machine.take_out()
    return node


def leading(*entries: StoredEntry, **limits: Any) -> Node:
    node = Node(*entries, **limits)
    node.machine.stand(0.0, Standing(5, 1))
    first = node.log.tail.end.trans_id + 1
    node.machine.append(0.0, Append(5, [made(first, first, 5)]))
    node.written()
    node.machine.take_out()
    return node
