"""Putting one shard's actors together, the same way in a worker process and in the simulator."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pykka

from actors.cluster.election import Election
from actors.cluster.elector import Elector
from actors.cluster.following import ReplicationLimits
from actors.cluster.peers import Peers
from actors.cluster.replication import Replication
from actors.cluster.replicator import Replicator
from actors.cluster.surroundings import Neighbours, ReplicatorSettings
from actors.disk.checkpointer import Checkpointer
from actors.disk.disk_lane import DiskLane
from actors.disk.log_writer import LogWriter
from actors.disk.retention import RetentionLimits, stretch_records
from actors.gateway.access import AccessTable
from actors.gateway.router import Router
from actors.gateway.routing import Routing
from actors.gateway.shard_news import ShardNews
from actors.gateway.sharding import Sharding
from actors.gateway.siblings import SiblingNetwork, Siblings
from actors.gateway.worker_keys import worker_key
from actors.messages.client_counts import ClientCounts
from actors.messages.lifecycle import Attach
from actors.node.opening import OpenShard
from actors.node.shard_settings import ShardSettings
from actors.queues.appending import AppendingLimits
from actors.queues.broker import Limits
from actors.queues.queue_owner import QueueOwner
from actors.queues.surroundings import OwnerSettings, Surroundings
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.peers.greeting import Greeting
from net.peers.link import PeerNetwork
from storage.disk import AsyncWrites
from storage.journal_writer import JournalWriter
from storage.state import ShardState
from storage.vote_file import drawn_id

LANES: Final = 1
"""Threads that wait for the disk. A second gains the disk something and costs the interpreter more."""

ASYNC_WRITES_MAX: Final = 2
"""Writes under way at once that the system finishes by itself."""

ENTRY_BYTES_MAX: Final = 8 << 20
"""An entry is closed when it passes this, whatever a segment holds: with one request more it must fit a frame."""


@dataclass
class ShardActors:
    """A running shard. Requests go to `router`; it, `peers` and `siblings` are the actors themselves.

    `siblings` is None where this is the node's only shard.
    """

    journal: JournalWriter
    router: Router
    owner: "pykka.ActorRef[Any]"
    lanes: "list[pykka.ActorRef[Any]]"
    checkpointer: "pykka.ActorRef[Any]"
    replicator: "pykka.ActorRef[Any]"
    peers: Peers
    siblings: Siblings | None = None
    async_writes: AsyncWrites | None = None

    def end(self, timeout_s: float) -> None:
        """After the loop's last turn: the disk finishes what it was given, and the journal is closed.

        Not before: an actor that has stopped while another still tells it something is a failure. Raises
        `pykka.Timeout` when the disk does not answer in time; then the journal has what recovery needs.
        """
        for ref in (*self.lanes, self.checkpointer):
            ref.stop(block=True, timeout=timeout_s)
        if self.async_writes is not None and not self.async_writes.close(timeout_s):
            raise pykka.Timeout(f"writes to the journal did not end in {timeout_s:g} s")
        self.journal.close()


def start_shard(
    runtime: Runtime,
    network: PeerNetwork,
    opened: OpenShard,
    settings: ShardSettings,
    limits: Limits,
    virtual_queues: dict[str, list[str]],
    workers: SiblingNetwork | None = None,
    access: AccessTable | None = None,
    counts: ClientCounts | None = None,
) -> ShardActors:
    """Start the shard's actors: all are made, then they learn of each other, then the first may say something.

    `workers`: how the node's other shards are reached, if there are any. `access`: who may do what.
    `counts`: what a status says of this worker's clients.
    """
    async_writes = None if settings.flush_interval_s is not None else opened.folder.async_writes()
    writes_max = LANES if async_writes is None else ASYNC_WRITES_MAX
    lanes, log_writer, checkpointer = _disk(runtime, opened, settings, async_writes, writes_max)
    owner = _owner(runtime, opened, settings, limits, writes_max)
    routings = [
        Routing(
            forwards=settings.forwards,
            hold_s=settings.hold_s,
            sibling=0 if shard == settings.shard else worker_key(shard),
        )
        for shard in range(settings.shards)
    ]
    router = Router(
        runtime,
        owner.actor_ref,
        Sharding(settings.shards, settings.shard),
        routings,
        virtual_queues,
        forward_bytes=settings.forward_bytes,
        access=access,
        move_after=settings.move_after,
    )
    peers, elector, replicator = _cluster(runtime, network, opened, settings, lanes[0], log_writer, counts)
    checkpointer.tell(Attach(replicator.actor_ref, owner.actor_ref))
    owner.attach(replicator.actor_ref, checkpointer, router.actor_ref)
    others = None if settings.shards == 1 else _others(runtime, settings, router.actor_ref, workers, network)
    siblings_ref = None if others is None else others.siblings.actor_ref
    news_ref = None if others is None else others.news.actor_ref
    replicator.attach(
        Neighbours(
            owner.actor_ref,
            elector.actor_ref,
            checkpointer,
            peers.actor_ref,
            router.actor_ref,
            siblings_ref,
            news_ref,
        )
    )
    router.attach(peers.actor_ref, siblings_ref)
    peers.attach(replicator.actor_ref, router.actor_ref, siblings_ref, news_ref)
    elector.attach(replicator.actor_ref)
    more: list[LoopActor] = []
    if others is not None:
        others.news.attach(replicator.actor_ref, peers.actor_ref, others.siblings.actor_ref)
        more = [others.news, others.siblings]
    for actor in (owner, router, peers, elector, replicator, *more):
        actor.begin()
    siblings = None if others is None else others.siblings
    return ShardActors(
        opened.journal,
        router,
        owner.actor_ref,
        lanes,
        checkpointer,
        replicator.actor_ref,
        peers,
        siblings,
        async_writes,
    )


class _Others(NamedTuple):
    """What a worker needs where its node has more shards than its own."""

    siblings: Siblings
    news: ShardNews


def _others(
    runtime: Runtime,
    settings: ShardSettings,
    router: "pykka.ActorRef[Any]",
    workers: SiblingNetwork | None,
    nodes: PeerNetwork,
) -> _Others:
    assert workers is not None, "a node of several shards has links between its workers"
    node_id = settings.own.node_id
    siblings = Siblings(runtime, workers, nodes, _greeting(settings), node_id, router, settings.link_terms)
    news = ShardNews(runtime, node_id, settings.shard, settings.shards, router)
    siblings.attach(news.actor_ref)
    return _Others(siblings, news)


def _greeting(settings: ShardSettings) -> Greeting:
    return Greeting(
        node_type=settings.node_type,
        client_host=settings.client_host,
        client_port=settings.client_port,
        level=settings.level,
        version=settings.version,
        shard=settings.shard,
        shards=settings.shards,
        direct_port=settings.direct_port,
    )


def _disk(
    runtime: Runtime,
    opened: OpenShard,
    settings: ShardSettings,
    async_writes: AsyncWrites | None,
    writes_max: int,
) -> tuple["list[pykka.ActorRef[Any]]", LogWriter, "pykka.ActorRef[Any]"]:
    """Whoever waits for the disk. All votes are saved on the first lane: two would write one file at once."""
    lane = (DiskLane, opened.folder, opened.journal.alignment, opened.vote_file)
    lanes = [runtime.start_blocking(*lane) for _ in range(LANES)]
    log_writer = LogWriter(runtime, opened.journal, lanes, settings.flush_interval_s, async_writes, writes_max)
    shard = opened.state.shard
    checkpointer = runtime.start_blocking(
        Checkpointer,
        opened.store,
        RetentionLimits(settings.log_records_max, settings.reader_records_max, settings.reader_bytes_max),
        lambda: ShardState(shard, stretch_records(settings.log_records_max)),
        settings.snapshot_part_bytes,
    )
    return lanes, log_writer, checkpointer


def _owner(runtime: Runtime, opened: OpenShard, settings: ShardSettings, limits: Limits, writes_max: int) -> QueueOwner:
    owner_settings = OwnerSettings(
        AppendingLimits(
            writes_max=writes_max,
            waits_for_disk=settings.flush_interval_s is None,
            entry_bytes_max=min(settings.segment_bytes // 4, ENTRY_BYTES_MAX),
            tail_bytes_max=settings.segment_bytes,
        ),
        journal_low_bytes=settings.segment_bytes // 2,
        lease_committed=settings.is_lease_committed,
    )
    around = Surroundings(
        node_id=settings.own.node_id,
        node_type=settings.node_type,
        version=settings.version,
        max_log_size=settings.log_records_max,
        trimmed=opened.log.trimmed,
        committed=opened.log.committed,
    )
    return QueueOwner(runtime, opened.state, limits, around, owner_settings)


def _cluster(
    runtime: Runtime,
    network: PeerNetwork,
    opened: OpenShard,
    settings: ShardSettings,
    lane: "pykka.ActorRef[Any]",
    log_writer: LogWriter,
    counts: ClientCounts | None,
) -> tuple[Peers, Elector, Replicator]:
    now, identity = runtime.monotonic(), opened.vote_file.identity
    peers = Peers(runtime, network, _greeting(settings), settings.link_terms)
    elector = Elector(runtime, Election(identity, settings.election_timeout_s, runtime.random, now), lane)
    limits = ReplicationLimits(
        settings.election_timeout_s,
        settings.sync_records_per_s,
        settings.pull_bytes,
        settings.window_bytes,
        settings.push_bytes,
    )
    replication = Replication(opened.log, limits, identity.vote_id, now, opened.store.staged)
    replicator_settings = ReplicatorSettings(
        listed=settings.listed,
        is_alone=opened.is_alone,
        heartbeat_s=limits.heartbeat_s,
        client_host=settings.client_host,
        client_port=settings.client_port,
        log_records_max=settings.log_records_max,
        level=settings.level,
        recovery=settings.renewed or opened.recovered.torn or "",
        version=settings.version,
        node_type=settings.node_type,
        shard=settings.shard,
        shards=settings.shards,
        direct_port=settings.direct_port,
        founding_id=settings.cluster_id,
        balance_s=settings.balance_s,
    )
    founded = settings.cluster_id
    replicator = Replicator(
        runtime,
        replication,
        log_writer,
        identity,
        replicator_settings,
        lambda: founded or drawn_id(runtime.random),
        counts or ClientCounts(now),
    )
    return peers, elector, replicator
