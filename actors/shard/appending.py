"""When the records that have gathered become an entry, and which ones do. A machine; its host is the QueueOwner.

While entries are on their way to the disk, records gather for the next. Those that somebody waits for go at once, or
after the moment that `CommitDelay` wants, where it is asked; those that nobody waits for (deliveries) may linger for
others to come along. `Appender` sends them to the Replicator then, a part of the QueueOwner.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from actors.messages.log import Append
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToReplicator
from actors.messages.measures import Histogram, of_records
from actors.runtime.commit_delay import CommitDelay
from actors.runtime.contract import Runtime, Timer
from actors.shard.ledger import Ledger
from actors.shard.owner_stage import OwnerStage
from storage.entry_making import make_entries
from storage.records import Change

LINGER_S: Final = 0.002
"""How long records that no reply waits for may wait for others to be flushed with."""

LINGER_RECORDS_MAX: Final = 1000


class Step(Enum):
    """What is to be done about the records that there are."""

    NOTHING = "nothing"
    APPEND = "append"
    GATHER = "gather"
    """When more has come, or after `Appending.gather_s`: clients may ask again meanwhile."""
    LINGER = "linger"
    """After `LINGER_S`."""


@dataclass(frozen=True, kw_only=True)
class AppendingLimits:
    """Bytes, and how many entries may be on their way to the disk at once.

    `entry_bytes_max`: an entry is closed when it passes this; a quarter of a journal segment at most, so that it fits.
    `tail_bytes_max`: entries that wait for LMDB; more are not sent to the journal before some have left.
    `waits_for_disk`: replies wait until it has what they are about. Where they don't, and no other node is to have
    it, an entry costs some 10 us, and to wait for others to share it costs more.
    """

    writes_max: int = 2
    waits_for_disk: bool = True
    entry_bytes_max: int = 512 << 10
    tail_bytes_max: int = 64 << 20


class Appending:
    """Of one tenure: `begin` makes it one's anew. `logged`: what has left for the log, by its trans_id.

    Measured in all tenures: `commit_seconds`, from an entry's leaving until it is committed, and `entry_records`.
    """

    def __init__(self, limits: AppendingLimits, logged: int) -> None:
        self.logged = logged
        self._limits = limits
        self._under_way: deque[int] = deque()
        self._tail_bytes = 0
        self._proposal: Change | None = None
        self._gathering = CommitDelay()
        self._uncommitted: deque[tuple[int, float]] = deque()
        self.commit_seconds = Histogram()
        self.entry_records = of_records()

    def begin(self, logged: int) -> None:
        """Begin to lead, with a log that ends at `logged`."""
        self.logged = logged
        self._under_way.clear()
        self._tail_bytes = 0
        self._proposal = None
        self._uncommitted.clear()

    @property
    def measured(self) -> dict[str, Any]:
        """As a node's numbers have it."""
        return {"commit_seconds": self.commit_seconds.told, "entry_records": self.entry_records.told}

    def propose(self, record: Change) -> None:
        """Have this record in the log, in an entry of its own."""
        self._proposal = record

    def advanced(self, settled: int, tail_bytes: int) -> None:
        """Note that the log is durable here, or committed by other nodes' disks (10.2.1), up to `settled`.

        So many bytes of it wait for LMDB. A disk of this node's own that does not answer holds up nobody who needs it
        not: what is committed counts as well.
        """
        self._tail_bytes = tail_bytes
        while self._under_way and self._under_way[0] <= settled:
            self._under_way.popleft()

    def committed(self, now: float, trans_id: int, still_parked: int, freed: int, *, is_shared: bool = False) -> None:
        """Note that a commit up to `trans_id` has freed so many replies (monotonic seconds).

        `is_shared`: other nodes are to have entries, too.
        """
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= trans_id:
            self.commit_seconds.note(now - uncommitted.popleft()[1])
        self._gathering.committed(now, still_parked, freed, is_shared=is_shared)

    def step(self, now: float, ledger: Ledger, *, is_urgent: bool) -> Step:
        """Decide what is to be done now (monotonic seconds)."""
        if not ledger.records or len(self._under_way) >= self._limits.writes_max:
            return Step.NOTHING
        if is_urgent:
            return Step.APPEND
        if not ledger.is_awaited and len(ledger.records) < LINGER_RECORDS_MAX:
            return Step.LINGER
        if not self._limits.waits_for_disk and ledger.replicated.majority == 1:
            return Step.APPEND
        return Step.APPEND if self._gathering.is_over(now, ledger.parked_count) else Step.GATHER

    def gather_s(self, now: float) -> float:
        """For how long what has gathered waits for more, if none comes."""
        return self._gathering.left_s(now)

    @property
    def may_append(self) -> bool:
        """Whether an entry more may be on its way."""
        return len(self._under_way) < self._limits.writes_max

    def append(self, ledger: Ledger, vote_id: int, now: float, *, is_disk_full: bool) -> Append | None:
        """All that there is, as entries of the leader of `vote_id`; None if there is nothing, or it has to wait.

        `now`: monotonic seconds.
        """
        if not (ledger.records or self._proposal):
            return None
        if self._tail_bytes > self._limits.tail_bytes_max and not is_disk_full:
            return None  # LMDB is behind: requests wait for it, but not for a full disk: the journal has room for them
        records, together = ledger.take_records()
        state = ledger.state
        first = state.trans_id - len(records) + 1
        state.time = ledger.now
        entries = make_entries(vote_id, first, ledger.now, records, self._limits.entry_bytes_max, together)
        begin = 0
        for entry in entries:
            end = entry.last_trans_id + 1 - first
            part = records if len(entries) == 1 else records[begin:end]
            state.stretches.note(vote_id, entry.last_trans_id, part)
            begin = end
            self.entry_records.note(len(part))
        if self._proposal is not None:  # so that a follower sees it without decoding all others
            ledger.append(self._proposal)
            self._proposal = None
            proposed = ledger.take_records()[0]
            entries += make_entries(vote_id, state.trans_id, ledger.now, proposed, 1)
            state.stretches.note(vote_id, state.trans_id, proposed)
            self.entry_records.note(len(proposed))
        state.undo.close(state.trans_id, state.time)
        self.logged = state.trans_id
        self._tail_bytes += sum(len(entry.data) for entry in entries)
        self._under_way.append(state.trans_id)
        self._uncommitted.append((state.trans_id, now))
        return Append(vote_id, entries, ledger.replicated.is_counted)


class Appender:
    """Of one QueueOwner, which says whose records (`ledger`), and to whom they go. `again`: called in a later turn.
    `machine` says when.
    """

    ledger: Ledger
    replicator: Mailbox[ToReplicator]

    def __init__(self, runtime: Runtime, machine: Appending, stage: OwnerStage, again: Callable[[], None]) -> None:
        self.is_disk_full = False
        self._runtime = runtime
        self.machine = machine
        self._stage = stage
        self._again = again
        self._linger: Timer | None = None
        self._is_gathering = False

    def go_on(self) -> None:
        """There are records."""
        now = self._runtime.monotonic()
        step = self.machine.step(now, self.ledger, is_urgent=self._stage.is_urgent)
        if step is Step.APPEND:
            self.append()
        elif step is Step.GATHER:
            if not self._is_gathering:
                self._is_gathering = True
                # what is too short for a timer is the next turn of the loop
                self._runtime.call_later(self.machine.gather_s(now), self._gathered)
        elif step is Step.LINGER and self._linger is None:
            self._linger = self._runtime.call_later(LINGER_S, self._linger_over)

    def _gathered(self) -> None:
        self._is_gathering = False
        if self.ledger.records:  # else they have left meanwhile
            self._again()

    def rest(self) -> None:
        """Nothing is to leave any more but what is sent at once."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _linger_over(self) -> None:
        self._linger = None
        if self.machine.may_append:
            self.append()

    def append(self) -> None:
        """All that has gathered, as one entry; not as long as another may lead: what has left is uncertain then.

        What has not left when the lead is lost was certainly not done, whoever made it: a client, time, or a piece of
        what was begun before.
        """
        if not self._stage.leads:
            return
        now, lease = self._runtime.monotonic(), self.ledger.lease
        # Another may have been elected since the lease ended (6.4.1), whose log drops what this one adds (3.5): what is
        # not in the log when that is heard goes to it, and is not uncertain.
        lease.pass_time(now)
        if not lease.is_doubtful:
            append = self.machine.append(self.ledger, self._stage.vote_id, now, is_disk_full=self.is_disk_full)
            if append is not None:
                self.replicator.tell(append)
