"""Putting one shard's actors together, the same way in a worker process and in the simulator."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pykka

from actors.cluster.election import Election
from actors.cluster.elector import Elector
from actors.cluster.membership import Membership
from actors.cluster.peers import PeerNetwork, Peers
from actors.cluster.progress import WINDOW_BYTES
from actors.cluster.replication import PULL_BYTES, Replication
from actors.cluster.replicator import Neighbours, Replicator, ReplicatorSettings
from actors.disk.checkpointer import Checkpointer
from actors.disk.disk_lane import DiskLane
from actors.disk.log_writer import LogWriter
from actors.gateway.router import Router
from actors.gateway.routing import Routing
from actors.messages.node_view import NodeView
from actors.queues.broker import Limits
from actors.queues.queue_owner import OwnerSettings, QueueOwner
from actors.runtime.contract import Runtime
from storage.disk import Folder
from storage.errors import DiskFullError, StorageError
from storage.journal_writer import JournalWriter, begin_journal
from storage.log_store import LogStore
from storage.log_tail import LogTail
from storage.records import Member, Members
from storage.recovery import Recovered, recover
from storage.state import ShardState
from storage.tables import Tables
from storage.vote_file import Identity, VoteFile, open_vote_file

LANES: Final = 1
"""Writes that are under way at once. A second gains the disk something and costs the interpreter more."""

ID_MAX: Final = 1 << 62

_FORGOTTEN: Final = (
    "the record of this node's votes is gone, and the data are a cluster's: it can't remember how it voted. Remove "
    "node {0} from the cluster, empty the folder, start the node, and add it again"
)


@dataclass
class ShardSettings:
    """What a shard's actors need of the configuration. `own` is this node, `listed` are the others that it names."""

    shard: int = 0
    log_records_max: int = 1_000_000
    segment_bytes: int = 16 << 20
    flush_interval_s: float | None = None
    is_lease_committed: bool = False
    own: Member = field(default_factory=lambda: Member(1, "127.0.0.1", 1111))
    listed: tuple[Member, ...] = ()
    node_type: int = 1
    election_timeout_s: float = 0.4
    sync_records_per_s: int = 100_000
    forwards: bool = True
    snapshot_part_bytes: int = 256 << 10
    pull_bytes: int = PULL_BYTES
    window_bytes: int = WINDOW_BYTES


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
    tail: LogTail


@dataclass
class ShardActors:
    """A running shard. Requests go to `router`; `peers` is the actor itself, since sockets call it."""

    router: "pykka.ActorRef[Any]"
    owner: "pykka.ActorRef[Any]"
    log_writer: "pykka.ActorRef[Any]"
    lanes: "list[pykka.ActorRef[Any]]"
    checkpointer: "pykka.ActorRef[Any]"
    replicator: "pykka.ActorRef[Any]"
    peers: Peers


def open_shard(
    tables: Tables, folder: Folder, settings: ShardSettings, queue_size: int, now: float, random: Callable[[], float]
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
    state = ShardState(settings.shard, queue_size)

    def is_alone(members: Members | None, log_end: int) -> bool:
        if members is not None:
            own = members.find(identity.node_id)
            return members.voters == [identity.node_id] and own is not None and own.disk_id == identity.disk_id
        return not identity.cluster_id and (not settings.listed or log_end > 0)

    recovered = recover(tables, folder, store, state, now, is_alone)
    last_members = recovered.later_members[-1][1] if recovered.later_members else recovered.members
    alone = is_alone(last_members, recovered.log_records + store.bounds.trimmed)
    if vote_file.is_new and last_members is not None and not alone:
        raise StorageError(_FORGOTTEN.format(identity.node_id))
    committed = [entry for entry in recovered.unstored if entry.last_trans_id <= state.trans_id]
    if committed:
        with contextlib.suppress(DiskFullError):  # then the journal keeps them, and the checkpoints try again
            store.store(committed)
    unstored = [entry for entry in recovered.unstored if entry.last_trans_id > store.bounds.stored]
    tail = LogTail(recovered.history, store.bounds.stored, unstored)
    journal = begin_journal(
        folder,
        settings.segment_bytes,
        writes_are_durable=settings.flush_interval_s is None,
        stored=store.bounds.stored,
        last_trans_id=tail.end.trans_id,
        torn_at=recovered.torn_at,
    )
    return OpenShard(state, store, journal, folder, recovered, vote_file, alone, tail)


def _drawn(random: Callable[[], float]) -> int:
    return int(random() * ID_MAX) + 1


def start_shard(
    runtime: Runtime,
    network: PeerNetwork,
    opened: OpenShard,
    settings: ShardSettings,
    limits: Limits,
    view: NodeView,
    virtual_queues: dict[str, list[str]],
) -> ShardActors:
    """Start the shard's actors."""
    now = runtime.monotonic()
    identity = opened.vote_file.identity
    view.max_log_size = settings.log_records_max
    view.trimmed, view.stored = opened.store.bounds
    view.recovery = opened.recovered.torn or ""
    view.cluster_id = identity.cluster_id
    shard, queue_size = opened.state.shard, opened.state.default_max_size
    lanes = [
        runtime.start_blocking(
            DiskLane, opened.folder, settings.segment_bytes, opened.journal.alignment, opened.vote_file
        )
        for _ in range(LANES)
    ]
    log_writer = LogWriter.start(runtime, opened.journal, lanes, settings.flush_interval_s)
    checkpointer = runtime.start_blocking(
        Checkpointer,
        opened.store,
        settings.log_records_max,
        lambda: ShardState(shard, queue_size),
        settings.snapshot_part_bytes,
    )
    owner_settings = OwnerSettings(
        writes_max=LANES if settings.flush_interval_s is None else 1,
        entry_bytes_max=settings.segment_bytes // 4,
        tail_bytes_max=settings.segment_bytes,
        journal_low_bytes=settings.segment_bytes // 2,
        lease_committed=settings.is_lease_committed,
    )
    owner = QueueOwner(runtime, opened.state, limits, view, owner_settings)
    router = Router(runtime, owner.actor_ref, virtual_queues, Routing(forwards=settings.forwards))
    peers = Peers(runtime, network, settings.node_type)
    election = Election(identity, settings.election_timeout_s, runtime.random, now)
    elector = Elector(runtime, election, lanes[0])
    own = Member(identity.node_id, settings.own.host, settings.own.port, identity.disk_id)
    membership = Membership(own, opened.recovered.members, opened.recovered.later_members)
    replication = Replication(
        opened.tail,
        membership,
        opened.state.trans_id,
        identity.vote_id,
        settings.election_timeout_s,
        settings.sync_records_per_s,
        now,
    )
    replication.pull_bytes, replication.window_bytes = settings.pull_bytes, settings.window_bytes
    replication.trimmed = opened.store.bounds.trimmed
    replicator = Replicator(
        runtime,
        replication,
        membership,
        identity,
        view,
        ReplicatorSettings(settings.listed, opened.is_alone, settings.election_timeout_s / 8, peers.faults),
        opened.store.staged,
        lambda: _drawn(runtime.random),
    )
    near = Neighbours(owner.actor_ref, elector.actor_ref, log_writer, checkpointer, peers.actor_ref, router.actor_ref)
    replicator.attach(near)
    owner.attach(replicator.actor_ref, checkpointer, router.actor_ref)
    router.attach(peers.actor_ref)
    peers.attach(replicator.actor_ref, router.actor_ref)
    elector.attach(replicator.actor_ref)
    for actor in (owner, router, peers, elector, replicator):
        actor.begin()
    return ShardActors(router.actor_ref, owner.actor_ref, log_writer, lanes, checkpointer, replicator.actor_ref, peers)
