"""Putting one shard's actors together, the same way in a worker process and in the simulator."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pykka

from actors.cluster.election import Election
from actors.cluster.elector import Elector
from actors.cluster.following import PULL_BYTES, PUSH_BYTES, ReplicationLimits
from actors.cluster.membership import Membership
from actors.cluster.peers import Peers
from actors.cluster.progress import WINDOW_BYTES
from actors.cluster.replicated_log import ReplicatedLog
from actors.cluster.replication import Replication
from actors.cluster.replicator import Replicator
from actors.cluster.surroundings import Neighbours, ReplicatorSettings
from actors.disk.checkpointer import Checkpointer
from actors.disk.disk_lane import DiskLane
from actors.disk.log_writer import LogWriter
from actors.disk.retention import RetentionLimits
from actors.gateway.access import AccessTable
from actors.gateway.dispatcher import MOVE_AFTER, Dispatcher
from actors.gateway.router import FORWARD_BYTES, Router
from actors.gateway.routing import HOLD_S, Routing
from actors.gateway.shard_news import ShardNews
from actors.gateway.sharding import Sharding
from actors.gateway.siblings import SiblingNetwork, Siblings
from actors.gateway.worker_keys import worker_key
from actors.messages.lifecycle import Attach
from actors.queues.appending import AppendingLimits
from actors.queues.broker import Limits
from actors.queues.queue_owner import QueueOwner
from actors.queues.surroundings import OwnerSettings, Surroundings
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.peers.greeting import Greeting
from net.peers.link import FRAME_BYTES_MAX, LinkTerms, PeerNetwork
from net.peers.proof import Keyring
from storage.disk import Folder
from storage.errors import DiskFullError, StorageError, UnknownFormatError
from storage.journal_writer import JournalWriter, begin_journal
from storage.log_store import LogStore
from storage.log_tail import LogTail
from storage.records import LEVEL, Member
from storage.recovery import Belonging, Recovered, recover
from storage.state import ShardState
from storage.tables import Tables
from storage.vote_file import Identity, VoteFile, open_vote_file

LANES: Final = 1
"""Writes that are under way at once. A second gains the disk something and costs the interpreter more."""

ENTRY_BYTES_MAX: Final = 8 << 20
"""An entry is closed when it passes this, whatever a segment holds: with one request more it must fit a frame."""

ID_MAX: Final = 1 << 62

_FORGOTTEN: Final = (
    "the record of this node's votes is gone, and the data are a cluster's: it can't remember how it voted. Remove "
    "node {0} from the cluster, empty the folder, start the node, and add it again"
)


@dataclass
class ShardSettings:
    """What a shard's actors need of the configuration.

    The shard is number `shard` of `shards`; clients reach it alone at `direct_port`, if not 0. `cluster_id` is for a
    cluster that this node founds, 0: one is drawn.
    `move_after`: see `actors.gateway.homing`. After `balance_s` another node that should lead the shard gets the place.
    `own` is this node with the address that nodes reach it at, `listed` are the others that it names; clients reach it
    at `client_host` and `client_port`. `level` is the feature level that it understands. The bytes are limits that the
    simulator makes tiny.
    """

    shard: int = 0
    shards: int = 1
    direct_port: int = 0
    cluster_id: int = 0
    balance_s: float = 0.0
    move_after: int = MOVE_AFTER
    log_records_max: int = 1_000_000
    reader_records_max: int = 10_000_000
    reader_bytes_max: int = 8 << 30
    segment_bytes: int = 16 << 20
    flush_interval_s: float | None = None
    is_lease_committed: bool = False
    own: Member = field(default_factory=lambda: Member(1, "127.0.0.1", 0))
    listed: tuple[Member, ...] = ()
    client_host: str = "127.0.0.1"
    client_port: int = 1111
    node_type: int = 1
    version: str = ""
    level: int = LEVEL
    election_timeout_s: float = 0.4
    sync_records_per_s: int = 100_000
    forwards: bool = True
    hold_s: float = HOLD_S
    snapshot_part_bytes: int = 256 << 10
    pull_bytes: int = PULL_BYTES
    push_bytes: int = PUSH_BYTES
    window_bytes: int = WINDOW_BYTES
    forward_bytes: int = FORWARD_BYTES
    frame_bytes_max: int = FRAME_BYTES_MAX
    keyring: Keyring = field(default_factory=Keyring)

    @property
    def link_terms(self) -> LinkTerms:
        """What holds for links to other workers."""
        return LinkTerms(self.keyring, self.frame_bytes_max)


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


@dataclass
class ShardActors:
    """A running shard. Requests go to `router`; `peers` and `siblings` are the actors themselves: sockets call them.

    `siblings` is None where this is the node's only shard.
    """

    journal: JournalWriter
    router: "pykka.ActorRef[Any]"
    owner: "pykka.ActorRef[Any]"
    lanes: "list[pykka.ActorRef[Any]]"
    checkpointer: "pykka.ActorRef[Any]"
    replicator: "pykka.ActorRef[Any]"
    peers: Peers
    siblings: Siblings | None = None

    def end(self, timeout_s: float) -> None:
        """After the loop's last turn: the disk's threads finish what they were given, and the journal is closed.

        Not before: an actor that has stopped while another still tells it something is a failure. Raises
        `pykka.Timeout` when the disk does not answer in time; then the journal has what recovery needs.
        """
        for ref in (*self.lanes, self.checkpointer):
            ref.stop(block=True, timeout=timeout_s)
        self.journal.close()


def open_shard(
    tables: Tables, folder: Folder, settings: ShardSettings, now: float, random: Callable[[], float]
) -> OpenShard:
    """Recover a shard from its disk; `now` is Unix seconds, `random` draws from [0, 1).

    Raises what `recover` and `open_vote_file` raise, `DiskFullError` without space for a journal, and `StorageError`
    when the folder is not the one that the cluster knows this node by.
    """
    vote_file = open_vote_file(folder, Identity(0, settings.own.node_id, _drawn(random)))
    identity = vote_file.identity
    if identity.node_id != settings.own.node_id:
        raise StorageError(f"the data are node {identity.node_id}'s, and node_id is set to {settings.own.node_id}")
    store = LogStore(tables, settings.shard)
    state = ShardState(settings.shard)

    def is_alone(belonging: Belonging) -> bool:
        members = belonging.members
        if members is not None:
            own = members.find(identity.node_id)
            return members.voters == [identity.node_id] and own is not None and own.disk_id == identity.disk_id
        if belonging.led_by not in (0, identity.node_id):
            return False  # another node's log, of which the part that says who its members are has not come yet
        if settings.shard:  # shard 0 says to which cluster: see actors.cluster.founding. But what was begun goes on
            return not identity.cluster_id and belonging.led_by == identity.node_id
        return not identity.cluster_id and (not settings.listed or belonging.log_end > 0)

    recovered = recover(tables, folder, store, state, now, is_alone)
    last_members = recovered.belonging.members
    alone = is_alone(recovered.belonging)
    if vote_file.is_new and last_members is not None and not alone:
        raise StorageError(_FORGOTTEN.format(identity.node_id))
    if last_members is not None and last_members.level > settings.level:
        reason = f"the data use feature level {last_members.level}, and this version understands {settings.level}"
        raise UnknownFormatError(f"{reason}: run the version that wrote them")
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
    return OpenShard(state, store, journal, folder, recovered, vote_file, alone, log)


def _drawn(random: Callable[[], float]) -> int:
    return int(random() * ID_MAX) + 1


def start_shard(
    runtime: Runtime,
    network: PeerNetwork,
    opened: OpenShard,
    settings: ShardSettings,
    limits: Limits,
    virtual_queues: dict[str, list[str]],
    workers: SiblingNetwork | None = None,
    access: AccessTable | None = None,
) -> ShardActors:
    """Start the shard's actors: all are made, then they learn of each other, then the first may say something.

    `workers`: how the node's other shards are reached, if there are any. `access`: who may do what.
    """
    lanes, log_writer, checkpointer = _disk(runtime, opened, settings)
    owner = _owner(runtime, opened, settings, limits)
    routing = Routing(forwards=settings.forwards, hold_s=settings.hold_s)
    is_only = settings.shards == 1
    virtual = virtual_queues if is_only else {}
    router = Router(runtime, owner.actor_ref, virtual, routing, settings.forward_bytes, access)
    peers, elector, replicator = _cluster(runtime, network, opened, settings, lanes[0])
    log_writer.attach(replicator.actor_ref)
    checkpointer.tell(Attach(replicator.actor_ref))
    owner.attach(replicator.actor_ref, checkpointer, router.actor_ref)
    others = None if is_only else _others(runtime, settings, router, workers, network, virtual_queues)
    siblings_ref = None if others is None else others.siblings.actor_ref
    news_ref = None if others is None else others.news.actor_ref
    replicator.attach(
        Neighbours(
            owner.actor_ref,
            elector.actor_ref,
            log_writer.actor_ref,
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
        others.news.attach(
            replicator.actor_ref, peers.actor_ref, others.siblings.actor_ref, others.dispatcher.actor_ref
        )
        more = [*others.routers, others.news, others.siblings, others.dispatcher]
    for actor in (log_writer, owner, router, peers, elector, replicator, *more):
        actor.begin()
    front = router.actor_ref if others is None else others.dispatcher.actor_ref
    siblings = None if others is None else others.siblings
    return ShardActors(
        opened.journal, front, owner.actor_ref, lanes, checkpointer, replicator.actor_ref, peers, siblings
    )


class _Others(NamedTuple):
    """What a worker needs where its node has more shards than its own."""

    routers: list[Router]
    siblings: Siblings
    news: ShardNews
    dispatcher: Dispatcher


def _others(
    runtime: Runtime,
    settings: ShardSettings,
    own: Router,
    workers: SiblingNetwork | None,
    nodes: PeerNetwork,
    virtual_queues: dict[str, list[str]],
) -> _Others:
    assert workers is not None, "a node of several shards has links between its workers"
    routers: dict[int, Router] = {}
    for shard in range(settings.shards):
        if shard != settings.shard:
            routing = Routing(forwards=settings.forwards, hold_s=settings.hold_s, sibling=worker_key(shard))
            routers[shard] = Router(runtime, None, {}, routing, settings.forward_bytes)
    refs = {shard: router.actor_ref for shard, router in routers.items()}
    node_id = settings.own.node_id
    siblings = Siblings(runtime, workers, nodes, _greeting(settings), node_id, own.actor_ref, refs, settings.link_terms)
    news = ShardNews(runtime, node_id, settings.shard, refs)
    siblings.attach(news.actor_ref)
    for router in routers.values():
        router.attach(siblings.actor_ref)
    by_shard = [refs.get(shard, own.actor_ref) for shard in range(settings.shards)]
    sharding = Sharding(settings.shards, settings.shard)
    dispatcher = Dispatcher(runtime, sharding, by_shard, virtual_queues, settings.move_after)
    return _Others([*routers.values()], siblings, news, dispatcher)


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
    runtime: Runtime, opened: OpenShard, settings: ShardSettings
) -> tuple["list[pykka.ActorRef[Any]]", LogWriter, "pykka.ActorRef[Any]"]:
    """Whoever waits for the disk. All votes are saved on the first lane: two would write one file at once."""
    lane = (DiskLane, opened.folder, settings.segment_bytes, opened.journal.alignment, opened.vote_file)
    lanes = [runtime.start_blocking(*lane) for _ in range(LANES)]
    log_writer = LogWriter(runtime, opened.journal, lanes, settings.flush_interval_s)
    shard = opened.state.shard
    checkpointer = runtime.start_blocking(
        Checkpointer,
        opened.store,
        RetentionLimits(settings.log_records_max, settings.reader_records_max, settings.reader_bytes_max),
        lambda: ShardState(shard),
        settings.snapshot_part_bytes,
    )
    return lanes, log_writer, checkpointer


def _owner(runtime: Runtime, opened: OpenShard, settings: ShardSettings, limits: Limits) -> QueueOwner:
    owner_settings = OwnerSettings(
        AppendingLimits(
            writes_max=LANES if settings.flush_interval_s is None else 1,
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
    runtime: Runtime, network: PeerNetwork, opened: OpenShard, settings: ShardSettings, lane: "pykka.ActorRef[Any]"
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
        settings.listed,
        opened.is_alone,
        limits.heartbeat_s,
        settings.client_host,
        settings.client_port,
        settings.log_records_max,
        settings.level,
        opened.recovered.torn or "",
        settings.version,
        settings.shard,
        settings.shards,
        settings.direct_port,
        settings.cluster_id,
        settings.balance_s,
    )
    founded = settings.cluster_id
    replicator = Replicator(
        runtime, replication, identity, replicator_settings, lambda: founded or _drawn(runtime.random)
    )
    return peers, elector, replicator
