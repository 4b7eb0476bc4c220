"""Checkpointer: moves committed entries into LMDB's log in bulk, trims the log's head, and reads the log for others.

On a thread of its own, since LMDB's commits wait for the disk. The only one that opens the shard's LMDB. Trimming
goes in pieces, each with one question to the queue owner in between, so that it never holds up requests.
"""

from typing import Any, Final

import pykka

from actors.messages import (
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    DescribeRows,
    LogRead,
    ReadLog,
    RowsDescribed,
)
from actors.runtime import BlockingActor, Runtime
from storage.errors import DiskFullError
from storage.log_store import LogStore

TRIM_RECORDS: Final = 5000
"""Records that one step of trimming takes: its question costs the owner a few ms at worst."""


class Checkpointer(BlockingActor):
    """Owns the shard's tables. Keeps the last `log_records_max` records in the log, and up to a tenth more."""

    def __init__(self, runtime: Runtime, store: LogStore, log_records_max: int) -> None:
        super().__init__(runtime)
        self._store = store
        self._log_records_max = log_records_max
        self._is_trimming = False
        self._described: RowsDescribed | None = None

    def on_receive(self, message: Any) -> None:
        """Dispatch."""
        if isinstance(message, Checkpoint):
            self._checkpoint(message)
        elif isinstance(message, RowsDescribed):
            self._described = message
            self._trim()
        elif isinstance(message, ReadLog):
            entries = self._store.read(message.after, message.count, message.bytes_max)
            message.reply_to.tell(LogRead(message.call, message.after, message.count, entries))
        else:
            raise TypeError(message)

    def on_stop(self) -> None:
        """Close LMDB."""
        self._store.close()

    def _checkpoint(self, message: Checkpoint) -> None:
        store = self._store
        entries = [entry for entry in message.entries if entry.last_trans_id > store.bounds.stored]
        try:
            if entries:
                store.store(entries)
        except DiskFullError as error:
            message.reply_to.tell(CheckpointFailed(str(error)))
        else:
            self._report(message.reply_to)
        self._reply_to = message.reply_to
        self._trim()
        self._plan_trim()

    def _plan_trim(self) -> None:
        """Ask about the head's messages if the log is too long."""
        if self._is_trimming:
            return
        trimmed, stored = self._store.bounds
        slack = max(self._log_records_max // 10, 1)
        if stored - trimmed > self._log_records_max + slack:
            self._ask(stored - self._log_records_max)

    def _ask(self, until: int) -> None:
        plan = self._store.plan_trim(until, TRIM_RECORDS)
        self._is_trimming = plan is not None
        if plan is not None:
            self._reply_to.tell(DescribeRows(plan))

    def _trim(self) -> None:
        """Trim what was described, once the log holds all that the description rests on."""
        described = self._described
        if described is None or described.as_of > self._store.bounds.stored:
            return
        self._described = None
        self._is_trimming = False
        try:
            self._store.trim(described.plan, described.rows)
        except DiskFullError:
            return  # asked again with the next checkpoint
        self._report(self._reply_to)
        trimmed, stored = self._store.bounds
        if stored - trimmed > self._log_records_max:
            self._ask(stored - self._log_records_max)

    def _report(self, reply_to: "pykka.ActorRef[Any]") -> None:
        trimmed, stored = self._store.bounds
        reply_to.tell(Checkpointed(stored, trimmed))
