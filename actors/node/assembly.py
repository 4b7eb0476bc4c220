"""Recovering one shard from its disk, and putting its actors together: alike in a worker and in the simulator."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pykka
from msgspec.structs import replace

from actors.cluster.election import Election
from actors.cluster.elector import Elector
from actors.cluster.following import ReplicationLimits
from actors.cluster.membership import Membership
from actors.cluster.replicated_log import ReplicatedLog
from actors.cluster.replication import Replication
from actors.cluster.replicator import Replicator
from actors.cluster.replicator_settings import Recipients, ReplicatorSettings
from actors.disk.block_reader import BlockReader
from actors.disk.checkpointer import Checkpointer, RetentionLimits, stretch_records
from actors.disk.disk_lane import DiskLane
from actors.disk.log_writer import LogWriter
from actors.disk.write_ways import WriteWays
from actors.gateway.access import AccessTable
from actors.gateway.router import Router
from actors.gateway.routing import Routing
from actors.gateway.shard_news import ShardNews
from actors.gateway.sharding import Sharding
from actors.links.links import LinkNetwork, Links
from actors.messages.lifecycle import Attach
from actors.messages.mailboxes import ToQueueOwner, ToReplicator
from actors.messages.measures import ClientCounts
from actors.messages.peers import worker_key
from actors.node.shard_settings import ShardSettings
from actors.registrar.registrar import Registrar
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor, LoopRef
from actors.shard.appending import AppendingLimits
from actors.shard.node_view import Limits, NodeView
from actors.shard.queue_owner import OwnerSettings, QueueOwner
from actors.streams.machines import shard_machines
from net.peers.greeting import Greeting
from storage.disk import AsyncWrites, Folder
from storage.errors import DiskFullError, StorageError, UnknownFormatError
from storage.journal_writer import JournalWriter, begin_journal
from storage.log_store import LogStore
from storage.log_tail import LogTail
from storage.records import Member
from storage.recovery import Belonging, Recovered, recover
from storage.sections import level_fault
from storage.state import ShardState
from storage.tables import Tables
from storage.vote_file import Identity, VoteFile, drawn_id, open_vote_file

_FORGOTTEN: Final = (
    "the record of this node's votes is gone, and the data are a cluster's: it can't remember how it voted. Remove "
    "node {0} from the cluster, empty the folder, start the node, and add it again"
)


LANES: Final = 1
"""Threads that wait for the disk. A second gains the disk something and costs the interpreter more."""

ASYNC_WRITES_MAX: Final = 2
"""Writes under way at once that the system finishes by itself."""

ENTRY_BYTES_MAX: Final = 512 << 10
"""An entry is closed when it passes this, whatever a segment holds: with one request more it must fit a frame, and what
is decoded in one turn is no more."""


@dataclass
class OpenShard:
    """A recovered shard: its state, and the disk's parts, ready to be written."""

    state: ShardState
    store: LogStore
    journal: JournalWriter
    folder: Folder
    recovered: Recovered
    vote_file: VoteFile
    is_alone: bool
    log: ReplicatedLog


def open_shard(
    tables: Tables, folder: Folder, settings: ShardSettings, now: Callable[[], float], random: Callable[[], float]
) -> OpenShard:
    """Recover a shard from its disk; `now` tells Unix seconds, `random` draws from [0, 1).

    Raises what `recover` and `open_vote_file` raise, `DiskFullError` without space for a journal, and `StorageError`
    when the folder is not the one that the cluster knows this node by.
    """
    vote_file = open_vote_file(folder, Identity(0, settings.own.node_id, drawn_id(random)))
    if vote_file.identity.promise_s < settings.election_timeout_s:  # noted before any leader can be told of it
        vote_file.save(replace(vote_file.identity, promise_s=settings.election_timeout_s))
    identity = vote_file.identity
    if identity.node_id != settings.own.node_id:
        raise StorageError(f"the data are node {identity.node_id}'s, and node_id is set to {settings.own.node_id}")
    store = LogStore(tables, settings.shard)
    state = ShardState(settings.shard, stretch_records(settings.log_records_max))

    def is_alone(belonging: Belonging) -> bool:
        members = belonging.members
        if members is not None:
            own = members.find(identity.node_id)
            return members.voters == [identity.node_id] and own is not None and own.disk_id == identity.disk_id
        if belonging.led_by not in (0, identity.node_id):
            return False  # another node's log, of which the part that says who its members are has not come yet
        if settings.shard:  # shard 0 says to which cluster: see actors.cluster.root_members. But what was begun goes on
            return not identity.cluster_id and belonging.led_by == identity.node_id
        return not identity.cluster_id and (not settings.listed or belonging.log_end > 0)

    recovered = recover(tables, folder, store, state, now, is_alone)
    last_members = recovered.belonging.members
    alone = is_alone(recovered.belonging)
    if vote_file.is_new and last_members is not None and not alone:
        raise StorageError(_FORGOTTEN.format(identity.node_id))
    if last_members is not None and (fault := level_fault(last_members.level, settings.level)):
        own_row = last_members.find(identity.node_id)
        votes = own_row is not None and own_row.is_voter and not identity.abstains
        if alone or votes or last_members.level > settings.level:  # else it follows, and knows less than the leader
            raise UnknownFormatError(fault)
    committed = [entry for entry in recovered.unstored if entry.last_trans_id <= state.trans_id]
    if committed:
        with contextlib.suppress(DiskFullError):  # then the journal keeps them, and the checkpoints try again
            store.store(committed)
    unstored = [entry for entry in recovered.unstored if entry.last_trans_id > store.bounds.checkpointed]
    tail = LogTail(recovered.history, store.bounds.checkpointed, unstored)
    journal = begin_journal(
        folder,
        settings.segment_bytes,
        writes_are_durable=settings.flush_interval_s is None,
        stored=store.bounds.checkpointed,
        last_trans_id=tail.end.trans_id,
        torn_at=recovered.torn_at,
    )
    own = Member(identity.node_id, settings.own.host, settings.own.port, identity.disk_id)
    membership = Membership(own, recovered.members, recovered.later_members)
    log = ReplicatedLog(tail, membership, state.trans_id, store.bounds.trimmed)
    log.abstains = identity.abstains
    return OpenShard(state, store, journal, folder, recovered, vote_file, alone, log)


GOODBYE_S: Final = 1.0
"""So long ZooKeeper is waited for when a worker ends: else the session ends by itself, a little later."""


@dataclass
class ShardActors:
    """A running shard. Requests go to `router`; it and `links` are the actors themselves: sockets call them."""

    journal: JournalWriter
    router: Router
    owner: LoopRef[ToQueueOwner]
    lanes: "list[pykka.ActorRef[Any]]"
    checkpointer: "pykka.ActorRef[Any]"
    replicator: LoopRef[ToReplicator]
    links: Links
    async_writes: AsyncWrites | None = None
    zookeeper: "pykka.ActorRef[Any] | None" = None

    def end(self, timeout_s: float) -> None:
        """After the loop's last turn: the disk finishes what it was given, and the journal is closed.

        Not before: an actor that has stopped while another still tells it something is a failure. Raises
        `pykka.Timeout` when the disk does not answer in time; then the journal has what recovery needs.
        """
        for ref in (*self.lanes, self.checkpointer):
            ref.stop(block=True, timeout=timeout_s)
        if self.zookeeper is not None:
            with contextlib.suppress(pykka.Timeout):
                self.zookeeper.stop(block=True, timeout=GOODBYE_S)
        if self.async_writes is not None and not self.async_writes.close(timeout_s):
            raise pykka.Timeout(f"writes to the journal did not end in {timeout_s:g} s")
        self.journal.close()


def start_shard(
    runtime: Runtime,
    network: LinkNetwork,
    opened: OpenShard,
    settings: ShardSettings,
    limits: Limits,
    virtual_queues: dict[str, list[str]],
    *,
    access: AccessTable | None = None,
    counts: ClientCounts | None = None,
) -> ShardActors:
    """Start the shard's actors: all are made, then they learn of each other, then the first may say something.

    `access`: who may do what.
    `counts`: what a status says of this worker's clients.
    """
    async_writes = None if settings.flush_interval_s is not None else opened.folder.async_writes()
    writes_max = LANES if async_writes is None else ASYNC_WRITES_MAX
    lanes, log_writer, checkpointer = _disk(runtime, opened, settings, async_writes, writes_max)
    reader = runtime.start_blocking(BlockReader, opened.store)
    owner = _owner(runtime, opened, settings, limits, writes_max)
    routings = [
        Routing(
            forwards=settings.forwards,
            hold_s=settings.hold_s,
            sibling=0 if shard == settings.shard else worker_key(shard),
        )
        for shard in range(settings.shards)
    ]
    elector, replicator = _cluster(runtime, opened, settings, lanes[0], log_writer, counts)
    router = Router(
        runtime,
        owner.mailbox,
        Sharding(settings.shards, settings.shard),
        routings,
        virtual_queues,
        forward_bytes=settings.forward_bytes,
        access=access,
        move_after=settings.move_after,
    )
    links = Links(runtime, network, _greeting(settings), settings.link_terms, settings.own.node_id)
    news: ShardNews | None = None
    if settings.shards > 1:
        news = ShardNews(runtime, settings.own.node_id, settings.shard, settings.shards, router.mailbox)
        news.attach(replicator.mailbox, links.mailbox)
    news_ref = None if news is None else news.mailbox
    registrar: Registrar | None = None
    zookeeper: pykka.ActorRef[Any] | None = None
    if settings.registration is not None:
        registering = settings.registration
        registrar = Registrar(runtime, registering.place, settings.facts)
        zookeeper = runtime.start_blocking(registering.lane, *registering.arguments, registrar.mailbox)
        registrar.attach(owner.mailbox, zookeeper)
    for disk in (checkpointer, reader):
        disk.tell(Attach(replicator.mailbox, owner.mailbox))
    registrar_ref = None if registrar is None else registrar.mailbox
    owner.attach(replicator.mailbox, checkpointer, router.mailbox, reader)
    replicator.attach(
        Recipients(owner.mailbox, elector.mailbox, checkpointer, links.mailbox, router.mailbox, news_ref, registrar_ref)
    )
    router.attach(links.mailbox)
    links.attach(replicator.mailbox, router.mailbox, news_ref)
    elector.attach(replicator.mailbox)
    actors: list[LoopActor[Any] | None] = [owner, router, links, elector, replicator, news, registrar]
    for actor in actors:
        if actor is not None:
            actor.begin()
    return ShardActors(
        opened.journal,
        router,
        owner.mailbox,
        [*lanes, reader],
        checkpointer,
        replicator.mailbox,
        links,
        async_writes,
        zookeeper,
    )


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
        listeners=settings.listeners,
        facts=settings.facts,
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
    log_writer = LogWriter(
        runtime, opened.journal, WriteWays(runtime, lanes, async_writes), settings.flush_interval_s, writes_max
    )
    shard = opened.state.messages.shard
    checkpointer = runtime.start_blocking(
        Checkpointer,
        opened.store,
        RetentionLimits(
            records_max=settings.log_records_max,
            reader_records_max=settings.reader_records_max,
            reader_bytes_max=settings.reader_bytes_max,
            bytes_max=settings.log_bytes_max,
        ),
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
        shard_machines,
        journal_low_bytes=settings.segment_bytes // 2,
        lease_committed=settings.is_lease_committed,
        undo_piece=settings.undo_piece,
        commit_piece=settings.commit_piece,
    )
    view = NodeView(
        node_id=settings.own.node_id,
        node_type=settings.node_type,
        version=settings.version,
        max_log_size=settings.log_records_max,
        trimmed=opened.log.trimmed,
        committed=opened.log.committed,
        shards=settings.shards,
    )
    return QueueOwner(runtime, opened.state, limits, view, owner_settings)


def _cluster(
    runtime: Runtime,
    opened: OpenShard,
    settings: ShardSettings,
    lane: "pykka.ActorRef[Any]",
    log_writer: LogWriter,
    counts: ClientCounts | None,
) -> tuple[Elector, Replicator]:
    now, identity = runtime.monotonic(), opened.vote_file.identity
    elector = Elector(runtime, Election(identity, settings.election_timeout_s, runtime.random, now), lane)
    limits = ReplicationLimits(
        timeout_s=settings.election_timeout_s,
        records_per_s=settings.sync_records_per_s,
        pull_bytes=settings.pull_bytes,
        window_bytes=settings.window_bytes,
        push_bytes=settings.push_bytes,
        lateness=settings.lateness,
    )
    replication = Replication(opened.log, limits, identity.vote_id, now, opened.store.staged)
    replicator_settings = ReplicatorSettings(
        listed=settings.listed,
        is_alone=opened.is_alone,
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
        listeners=settings.listeners,
        facts=settings.facts,
    )
    founded = settings.cluster_id
    replicator = Replicator(
        runtime,
        replication,
        log_writer,
        identity,
        replicator_settings,
        new_cluster_id=lambda: founded or drawn_id(runtime.random),
        counts=counts or ClientCounts(now),
    )
    return elector, replicator
