"""Putting one shard's actors together, the same way in a worker process and in the simulator."""

import contextlib
from dataclasses import dataclass
from typing import Any, Final

import pykka

from actors.broker import Broker, Limits
from actors.checkpointer import Checkpointer
from actors.disk_lane import DiskLane
from actors.log_writer import LogWriter
from actors.queries import NodeView
from actors.queue_owner import OwnerSettings, QueueOwner
from actors.router import Router
from actors.runtime import Runtime
from storage.disk import Folder
from storage.errors import DiskFullError
from storage.journal_writer import JournalWriter, begin_journal
from storage.log_store import LogStore
from storage.recovery import Recovered, recover
from storage.state import ShardState
from storage.tables import Tables

LANES: Final = 1
"""Writes that are under way at once. A second gains the disk something and costs the interpreter more."""


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
    journal: JournalWriter
    folder: Folder
    recovered: Recovered


@dataclass
class ShardActors:
    """A running shard. Requests go to `router`."""

    router: "pykka.ActorRef[Any]"
    owner: "pykka.ActorRef[Any]"
    log_writer: "pykka.ActorRef[Any]"
    lanes: "list[pykka.ActorRef[Any]]"
    checkpointer: "pykka.ActorRef[Any]"


def open_shard(tables: Tables, folder: Folder, settings: ShardSettings, queue_size: int, now: float) -> OpenShard:
    """Recover a shard from its disk. Raises what `recover` raises, and `DiskFullError` without space for a journal."""
    store = LogStore(tables, settings.shard)
    state = ShardState(settings.shard, queue_size)
    recovered = recover(tables, folder, store, state, now)
    if recovered.unstored:
        with contextlib.suppress(DiskFullError):  # then the journal keeps them, and the checkpoints try again
            store.store(recovered.unstored)
            recovered.unstored.clear()
    journal = begin_journal(
        folder,
        settings.segment_bytes,
        writes_are_durable=settings.flush_interval_s is None,
        stored=store.bounds.stored,
        last_trans_id=state.trans_id,
        torn_at=recovered.torn_at,
    )
    return OpenShard(state, store, journal, folder, recovered)


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
    lanes = [
        runtime.start_blocking(DiskLane, opened.folder, settings.segment_bytes, opened.journal.alignment)
        for _ in range(LANES)
    ]
    log_writer = LogWriter.start(runtime, opened.journal, lanes, settings.flush_interval_s)
    checkpointer = runtime.start_blocking(Checkpointer, opened.store, settings.log_records_max)
    owner_settings = OwnerSettings(
        writes_max=LANES if settings.flush_interval_s is None else 1,
        entry_bytes_max=settings.segment_bytes // 4,
        tail_bytes_max=settings.segment_bytes,
        journal_low_bytes=settings.segment_bytes // 2,
    )
    owner = QueueOwner.start(runtime, broker, view, log_writer, checkpointer, owner_settings, opened.recovered.unstored)
    router = Router.start(runtime, owner, virtual_queues)
    return ShardActors(router, owner, log_writer, lanes, checkpointer)
