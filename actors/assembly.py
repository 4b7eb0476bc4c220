"""Putting one shard's actors together, the same way in a worker process and in the simulator."""

from dataclasses import dataclass
from typing import Any

import pykka

from actors.broker import Broker, Limits
from actors.checkpointer import Checkpointer
from actors.log_writer import LogWriter
from actors.queries import NodeView
from actors.queue_owner import OwnerSettings, QueueOwner
from actors.router import Router
from actors.runtime import Runtime
from storage.disk import Folder
from storage.journal import Journal
from storage.log_store import LogStore
from storage.recovery import Recovered, recover
from storage.state import ShardState
from storage.tables import Tables


@dataclass
class ShardSettings:
    """What a shard's actors need of the configuration."""

    shard: int = 0
    log_records_max: int = 1_000_000
    segment_bytes: int = 16 << 20
    flush_interval_s: float | None = None
    is_lease_committed: bool = False


@dataclass
class OpenShard:
    """A recovered shard: its state, and the disk's parts, ready to be written."""

    state: ShardState
    store: LogStore
    journal: Journal
    recovered: Recovered


@dataclass
class ShardActors:
    """A running shard. Requests go to `router`."""

    router: "pykka.ActorRef[Any]"
    owner: "pykka.ActorRef[Any]"
    log_writer: "pykka.ActorRef[Any]"
    checkpointer: "pykka.ActorRef[Any]"


def open_shard(tables: Tables, folder: Folder, settings: ShardSettings, queue_size: int, now: float) -> OpenShard:
    """Recover a shard from its disk. Raises what `recover` raises, and `DiskFullError` without space for a journal."""
    store = LogStore(tables, settings.shard)
    state = ShardState(settings.shard, queue_size)
    recovered = recover(tables, folder, store, state, now)
    journal = Journal(folder, settings.segment_bytes)
    journal.begin(state.trans_id)
    return OpenShard(state, store, journal, recovered)


def start_shard(
    runtime: Runtime,
    opened: OpenShard,
    settings: ShardSettings,
    limits: Limits,
    view: NodeView,
    virtual_queues: dict[str, list[str]],
) -> ShardActors:
    """Start the shard's actors."""
    view.vote_id = max(opened.recovered.vote_id, 1)
    view.max_log_size = settings.log_records_max
    view.trimmed, view.stored = opened.store.bounds
    view.recovery = opened.recovered.torn or ""
    broker = Broker(opened.state, limits, view, lease_committed=settings.is_lease_committed)
    log_writer = runtime.start_blocking(LogWriter, opened.journal, settings.flush_interval_s is None)
    checkpointer = runtime.start_blocking(Checkpointer, opened.store, settings.log_records_max)
    owner_settings = OwnerSettings(
        flush_interval_s=settings.flush_interval_s,
        entry_bytes_max=settings.segment_bytes // 4,
        tail_bytes_max=settings.segment_bytes * 2,
        journal_low_bytes=settings.segment_bytes // 2,
    )
    owner = QueueOwner.start(
        runtime, broker, view, log_writer, checkpointer, owner_settings, opened.recovered.unstored
    )
    router = Router.start(runtime, owner, virtual_queues)
    return ShardActors(router, owner, log_writer, checkpointer)
