"""The Replicator as a host: who is told what, when LMDB is fed, what counts from whom, and what it takes to stop."""

import logging
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors.cluster.following import ReplicationLimits
from actors.cluster.membership import Membership
from actors.cluster.replicated_log import ReplicatedLog
from actors.cluster.replication import Replication
from actors.cluster.replicator import Replicator
from actors.cluster.replicator_settings import Recipients, ReplicatorSettings
from actors.disk.disk_lane import DiskLane
from actors.disk.log_writer import LogWriter
from actors.disk.write_ways import WriteWays
from actors.messages.call import Call
from actors.messages.calls import Answered, ClusterAsked, StatusAsked
from actors.messages.checkpoints import Checkpoint, Checkpointed, CheckpointFailed
from actors.messages.disk import BytesWritten, ErrandFailed, RunErrand, WriteBytes
from actors.messages.election import ElectionFacts, LeaderHeard, Standing, VoteGiven
from actors.messages.lifecycle import Stop
from actors.messages.log import Append, Apply, Drain, Drained, LogAdvanced, Promoted, Propose
from actors.messages.measures import ClientCounts
from actors.messages.peers import Introduce, LeaderChanged, MembersChanged, PeerDown, PeerSaid, SendPeers
from net.peers.messages import Push, Stored, TakeOver, Vote
from quorate.protocol import Action, Reply, Request
from storage.entry import StoredEntry
from storage.entry_codec import encode
from storage.journal_writer import begin_journal
from storage.log_tail import LogTail
from storage.records import BASE_LEVEL, LEVEL, STREAMS_LEVEL, Lead, Member, Members, Remove
from storage.vote_file import Identity, open_vote_file
from tests.actors.cranked import CrankedRuntime, Probe, ref
from tests.storage.memory import MemoryFolder

THREE = Members("", 9, [Member(n, f"n{n}", 1, n * 11, is_voter=True) for n in (1, 2, 3)], [], level=LEVEL)


def entry(trans_id: int, vote_id: int, record: Any) -> StoredEntry:
    return StoredEntry(trans_id, trans_id, vote_id, encode(vote_id, trans_id, 1.0, [record]))


class Host:
    """The Replicator of node 1 with probes around it; a log without an entry; `cluster_id` 0: of no cluster."""

    def __init__(
        self, members: Members | None = None, cluster_id: int = 9, flush_interval_s: float | None = None
    ) -> None:
        self.runtime = CrankedRuntime()
        self.owner, self.elector, self.lane = Probe(), Probe(), Probe()
        self.checkpointer, self.peers, self.router = Probe(), Probe(), Probe()
        self.folder, self.counts = MemoryFolder(), ClientCounts()
        journal = begin_journal(
            self.folder, 8192, writes_are_durable=flush_interval_s is None, stored=0, last_trans_id=0
        )
        writer = LogWriter(self.runtime, journal, WriteWays(self.runtime, [ref(self.lane)], None), flush_interval_s)
        log = ReplicatedLog(LogTail([(0, 0)], 0, []), Membership(Member(1, "n1", 1, 11), members), 0)
        replication = Replication(log, ReplicationLimits(), 1, self.runtime.time)
        settings = ReplicatorSettings(is_alone=members is None and cluster_id == 0)
        self.actor = Replicator(
            self.runtime,
            replication,
            writer,
            Identity(cluster_id, 1, 11),
            settings,
            new_cluster_id=lambda: 77,
            counts=self.counts,
        )
        probes = (self.owner, self.elector, self.checkpointer, self.peers, self.router)
        self.actor.attach(Recipients(*map(ref, probes)))
        self.actor.begin()
        self.runtime.crank()
        self.tell(Checkpointed(0, 0))

    def tell(self, *messages: Any) -> None:
        for message in messages:
            self.actor.actor_ref.tell(message)
        self.runtime.crank()

    def write(self) -> int:
        """The lane makes durable what it was given; how many writes that were."""
        writes = 0
        while given := self.lane.take(WriteBytes):
            writes += len(given)
            self.tell(*(BytesWritten(one.write) for one in given))
        return writes

    def push(self, *entries: StoredEntry, committed: int, vote_id: int = 1, cluster_id: int = 9) -> None:
        """Node 2 leads, and says this."""
        pushed = Push(vote_id, 0, 0, [one.data for one in entries], committed, 1.0)
        self.tell(PeerSaid(2, pushed, cluster_id, 22))

    def pushed(self) -> list[tuple[tuple[int, ...], int]]:
        """Who was pushed how many entries."""
        return [(nodes, len(push.entries)) for nodes, push in self.said(Push) if push.entries]

    def said(self, kind: type) -> list[tuple[tuple[int, ...], Any]]:
        """What of that kind was said, and to whom."""
        return [(one.node_ids, one.message) for one in self.peers.take(SendPeers) if isinstance(one.message, kind)]

    def stored(self) -> list[Stored]:
        """What was said to be on this node's disk."""
        return [one.message for one in self.peers.take(SendPeers) if isinstance(one.message, Stored)]


def leading() -> Host:
    """A node alone that leads a cluster, with its founding on the disk."""
    host = Host(cluster_id=0)
    host.tell(Standing(2, 1), Append(2, [entry(1, 2, Lead("", 1))]))
    host.write()
    founding = host.owner.take(Propose)[0].record
    host.tell(Append(2, [entry(2, 2, founding)]))
    host.write()
    return host


def test_a_node_alone_founds_a_cluster_and_belongs_to_it_when_that_is_committed() -> None:
    host = Host(cluster_id=0)
    assert host.elector.take(ElectionFacts) == [ElectionFacts(frozenset({1}), 0)]
    host.tell(Standing(2, 1))
    assert host.owner.take(Promoted)[0].vote_id == 2
    assert host.router.take(LeaderChanged)[-1].is_self
    host.tell(Append(2, [entry(1, 2, Lead("", 1))]))
    host.write()
    founding = host.owner.take(Propose)[0].record
    assert founding.cluster_id == 77
    host.tell(Append(2, [entry(2, 2, founding)]))
    assert {one.cluster_id for one in host.elector.take(ElectionFacts)} <= {0}
    host.write()
    assert host.elector.take(ElectionFacts) == [ElectionFacts(frozenset({1}), 77)]
    assert host.peers.take(Introduce)[-1].identity.cluster_id == 77


def test_a_new_node_belongs_to_a_cluster_when_it_has_its_log_and_not_when_somebody_says_that_it_leads() -> None:
    host = Host(cluster_id=0)
    host.push(committed=0)
    host.tell(Standing(1, 2))
    host.push(committed=0)
    assert host.elector.take(LeaderHeard)[-1] == LeaderHeard(1, 2)
    assert {one.cluster_id for one in host.elector.take(ElectionFacts)} == {0}
    host.push(entry(1, 1, THREE), committed=1)
    assert {one.cluster_id for one in host.elector.take(ElectionFacts)} == {0}, (
        "it is not on its disk, and so not committed here"
    )
    host.write()
    assert host.elector.take(ElectionFacts)[-1].cluster_id == 9
    assert host.owner.take(MembersChanged)[-1].nodes == 3


@pytest.mark.parametrize("level", [BASE_LEVEL, STREAMS_LEVEL])
def test_lmdb_is_told_which_level_the_cluster_has_settled(level: int) -> None:
    host = Host(replace(THREE, level=level))
    host.tell(Standing(1, 2))
    host.push(entry(1, 1, Remove("q")), committed=1)
    host.write()
    host.checkpointer.take(Checkpoint)
    host.runtime.crank(0.1)
    assert [one.level for one in host.checkpointer.take(Checkpoint)] == [level]


def test_an_entry_is_applied_when_it_is_on_disk_and_committed_and_then_lmdb_gets_it() -> None:
    host = Host(THREE)
    host.tell(Standing(1, 2))
    host.push(entry(1, 1, Remove("q")), committed=1)
    assert host.owner.take(Apply) == []
    assert [one.trans_id for one in host.stored()] in ([], [0])
    host.write()
    assert len(host.owner.take(Apply)) == 1
    assert host.stored()[-1].trans_id == 1
    host.checkpointer.take(Checkpoint)
    host.runtime.crank(0.1)
    assert [len(one.entries) for one in host.checkpointer.take(Checkpoint)] == [1]
    host.tell(Checkpointed(1, 0))
    host.runtime.crank(1.0)
    assert host.checkpointer.take(Checkpoint) == [], "there is nothing more to store"


@pytest.mark.parametrize("cluster_id", [0, 9])
def test_between_nodes_without_a_cluster_nothing_counts(cluster_id: int) -> None:
    host = Host(cluster_id=0)
    host.push(committed=0, vote_id=3, cluster_id=cluster_id)
    assert bool(host.elector.take(LeaderHeard)) == bool(cluster_id)


def test_votes_count_only_from_the_disk_that_the_members_know() -> None:
    host = Host(THREE)
    host.tell(PeerSaid(2, Vote(2, False, True), 9, 99))
    assert host.elector.take(VoteGiven) == []
    host.tell(PeerSaid(2, Vote(2, False, True), 9, 22))
    assert host.elector.take(VoteGiven) == [VoteGiven(2, Vote(2, False, True))]


def test_a_node_that_contradicts_its_leader_says_so_and_stands_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    host = Host(THREE)
    host.tell(Standing(1, 2))
    host.push(entry(1, 1, Remove("q")), committed=1)
    host.write()
    host.tell(Standing(2, 3))
    other = Push(2, 0, 0, [entry(1, 2, Remove("other")).data], 1, 1.0)
    host.tell(PeerSaid(3, other, 9, 33))
    assert "remove node 1 from the cluster, empty its folder" in caplog.text
    assert host.elector.take(ElectionFacts)[-1].voters == frozenset()
    assert host.write() == 0, "and nothing of it is taken"


def test_a_full_disk_is_said_once_and_so_is_its_end_which_a_segment_brings_that_lmdb_has_freed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = leading()
    lane = DiskLane(host.runtime, host.folder, host.folder.alignment, open_vote_file(host.folder, Identity(0, 1, 7)))
    with caplog.at_level(logging.INFO, "quorate.cluster"):
        for trans_id in (3, 4, 5):  # of 3 KB each: the first segment is full, and the second one is begun
            host.tell(Append(2, [entry(trans_id, 2, Remove("q" * 3000))]))
            host.write()
        assert len(host.lane.take(RunErrand)) == 1
        host.tell(ErrandFailed("no space"), ErrandFailed("no space"))
        assert host.owner.take(LogAdvanced)[-1].disk_full == "no space"
        host.tell(CheckpointFailed("no space"))
        assert host.lane.take(RunErrand) == [], "each try fills the disk: not at once"
        host.runtime.crank(0.3)
        host.tell(Checkpointed(5, 0))
        [errand] = host.lane.take(RunErrand)
        assert errand.errand.reuse is not None, "it needs no space"
        lane.on_receive(errand)
        host.runtime.crank()
    assert host.owner.take(LogAdvanced)[-1].disk_full is None
    said = [record.getMessage() for record in caplog.records]
    assert len([one for one in said if "is full" in one]) == 1
    assert len([one for one in said if "has space again" in one]) == 1


def test_what_the_loop_has_written_counts_in_the_same_turn() -> None:
    host = Host(cluster_id=0, flush_interval_s=0.1)
    host.tell(Standing(2, 1))
    host.owner.take(LogAdvanced)
    host.actor.on_receive(Append(2, [entry(1, 2, Lead("", 1))]))
    assert host.owner.take(LogAdvanced)[-1].durable == 1


def test_it_stops_when_lmdb_has_what_is_committed() -> None:
    host = leading()
    host.checkpointer.take(Checkpoint)
    host.tell(Stop(ref(host.owner)))
    assert host.peers.take(Stop) == []
    assert [one.entries[-1].last_trans_id for one in host.checkpointer.take(Checkpoint)] == [2], "at once, not in time"
    host.tell(Checkpointed(2, 0))
    assert len(host.peers.take(Stop)) == 1
    host.tell(Append(2, [entry(3, 2, Remove("q"))]))
    assert host.write() == 0, "nothing happens after that"


def test_a_full_disk_does_not_keep_a_node_from_stopping() -> None:
    host = leading()
    host.runtime.crank(0.1)
    host.tell(Stop(ref(host.owner)), CheckpointFailed("no space"))
    assert len(host.peers.take(Stop)) == 1, "the journal keeps what LMDB has no space for"


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_removal_that_is_not_committed_when_the_leader_steps_down_is_not_said_to_be_done(is_settled: bool) -> None:
    host = Host(THREE)
    host.tell(Standing(2, 1), Append(2, [entry(1, 2, Lead("", 1))]))
    host.write()
    host.tell(PeerSaid(2, Stored(2, 1, 100.0), 9, 22))
    asker = Probe()
    call = Call(Request(Action.CLUSTER, command="remove", node_id=3), Asker(), 1, ref(asker))
    host.tell(ClusterAsked(call))
    [proposed] = host.owner.take(Propose)
    host.tell(Append(2, [entry(2, 2, proposed.record)]))
    host.write()
    assert asker.take(Answered) == []
    if is_settled:
        host.tell(PeerSaid(2, Stored(2, 2, 100.0), 9, 22))
    host.tell(Standing(3, None))
    [answered] = asker.take(Answered)
    assert [reply.error for _, reply in answered.answers] == [None if is_settled else "unknown_outcome"]


class Asker:
    """A client."""

    has_left = is_gone = False

    has_ended = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """By the probe."""


def test_a_status_tells_of_the_queues_the_log_the_process_and_its_clients() -> None:
    host = leading()
    host.counts.connections, host.counts.limits_reached = 3, ["max_connections"]
    asker = Probe()
    call = Call(Request(Action.NODE_STATUS, seq=7), Asker(), 1, ref(asker))
    host.tell(StatusAsked(call, {"shard": 0, "messages": 5}))
    [(_, reply)] = asker.take(Answered)[0].answers
    assert (reply.node_id, reply.seq, reply.connections, reply.limits_reached) == (1, 7, 3, ["max_connections"])
    [row] = reply.shards
    assert (row["messages"], row["role"], row["log_size"]) == (5, "leader", 2)


def leading_three() -> Host:
    """Node 1 leads three, and all have answered; LMDB has the first entry."""
    host = Host(THREE)
    host.tell(Standing(2, 1), Append(2, [entry(1, 2, Lead("", 1))]))
    assert host.pushed() == [((2, 3), 1)]
    host.runtime.crank(0.001)
    host.write()
    host.tell(*(PeerSaid(n, Stored(2, 1, 0.0), 9, n * 11) for n in (2, 3)))
    host.runtime.crank(0.06)
    assert len(host.checkpointer.take(Checkpoint)[-1].entries) == 1
    host.tell(Checkpointed(1, 0))
    return host


def test_who_comes_late_is_pushed_to_when_the_time_is_over() -> None:
    host = leading_three()
    host.tell(Append(2, [entry(2, 2, Remove("q"))]))
    host.write()
    host.tell(PeerSaid(2, Stored(2, 2, 0.0), 9, 22))
    assert host.pushed() == [((2,), 1)]
    host.runtime.crank(0.008)
    assert host.pushed() == []
    host.runtime.crank(0.003)
    assert host.pushed() == [((3,), 1)]
    host.runtime.crank(0.02)
    assert host.pushed() == [], "once"


def test_when_nobody_answers_for_long_the_other_is_pushed_to() -> None:
    host = leading_three()
    host.tell(Append(2, [entry(2, 2, Remove("q"))]))
    assert host.pushed() == [((2,), 1)]
    host.runtime.crank(0.003)
    assert host.pushed() == [((3,), 1)]


def test_what_lmdb_gets_was_pushed_to_all_before() -> None:
    """It is in memory no more then."""
    host = leading_three()
    host.tell(Append(2, [entry(2, 2, Remove("q"))]))
    host.write()
    host.tell(PeerSaid(2, Stored(2, 2, 0.0), 9, 22))
    host.runtime.crank(0.045)
    host.pushed()
    host.tell(Append(2, [entry(3, 2, Remove("q"))]))
    host.write()
    host.tell(PeerSaid(2, Stored(2, 3, 0.0), 9, 22))
    assert host.pushed() == [((2,), 1)]
    host.checkpointer.take(Checkpoint)
    host.runtime.crank(0.006)
    assert len(host.checkpointer.take(Checkpoint)[-1].entries) == 2
    assert host.pushed() == [((3,), 1)]


def test_when_a_link_closes_who_comes_late_is_pushed_to() -> None:
    host = leading_three()
    host.tell(Append(2, [entry(2, 2, Remove("q"))]))
    assert host.pushed() == [((2,), 1)]
    host.tell(PeerDown(2))
    assert host.pushed() == [((3,), 1)]


def test_a_place_is_handed_over_as_soon_as_the_successor_has_all() -> None:
    host = leading_three()
    host.tell(Append(2, [entry(2, 2, Remove("q"))]))
    host.write()
    assert host.pushed() == [((2,), 1)]
    asker = Probe()
    host.tell(ClusterAsked(Call(Request(Action.CLUSTER, command="transfer", node_id=3), Asker(), 1, ref(asker))))
    assert host.router.take(Drain) == [Drain(2)]
    host.tell(Drained(2))
    assert host.said(Push) == [((3,), Push(2, 1, 2, [entry(2, 2, Remove("q")).data], 1, host.runtime.time))]
    host.tell(PeerSaid(3, Stored(2, 2, 0.0), 9, 33))
    assert host.said(TakeOver) == [((3,), TakeOver(2))], "and not with the next heartbeat"


def test_whether_a_node_is_ready_is_said_with_the_reason_and_nothing_else() -> None:
    host, asker = Host(THREE), Probe()

    def asked() -> tuple[str | None, set[str]]:
        call = Call(Request(Action.NODE_READY), Asker(), 1, ref(asker))
        host.tell(StatusAsked(call, {}))
        [(_, reply)] = asker.take(Answered)[-1].answers
        said = msgspec.to_builtins(reply)
        return reply.error, {name for name, value in said.items() if value not in (None, [])}

    assert asked() == ("no_leader", {"action", "code", "error", "reason"})
    host.tell(Standing(1, 2))
    assert asked() == (None, {"action", "code"})
    host.actor._log.disk_full = "no space: /where/it/is"
    assert asked() == ("disk_full", {"action", "code", "error", "reason"})
