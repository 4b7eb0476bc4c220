"""Recovering one shard from its disk, the same way in a worker process and in the simulator."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from actors.cluster.membership import Membership
from actors.cluster.replicated_log import ReplicatedLog
from actors.disk.retention import stretch_records
from actors.node.shard_settings import ShardSettings
from storage.disk import Folder
from storage.errors import DiskFullError, StorageError, UnknownFormatError
from storage.journal_writer import JournalWriter, begin_journal
from storage.log_store import LogStore
from storage.log_tail import LogTail
from storage.records import Member
from storage.recovery import Belonging, Recovered, recover
from storage.state import ShardState
from storage.tables import Tables
from storage.vote_file import Identity, VoteFile, drawn_id, open_vote_file

_FORGOTTEN: Final = (
    "the record of this node's votes is gone, and the data are a cluster's: it can't remember how it voted. Remove "
    "node {0} from the cluster, empty the folder, start the node, and add it again"
)


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
    log.abstains = identity.abstains
    return OpenShard(state, store, journal, folder, recovered, vote_file, alone, log)
