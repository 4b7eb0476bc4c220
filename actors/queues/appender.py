"""Appender: sends what has gathered to the Replicator now, soon, or a little later, as Appending decides."""

from collections.abc import Callable

from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToReplicator
from actors.queues.appending import LINGER_S, Appending, Step
from actors.queues.ledger import Ledger
from actors.queues.owner_stage import OwnerStage
from actors.runtime.contract import Runtime, Timer


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
        """All that has gathered, as one entry."""
        if self._stage.leads:
            now = self._runtime.monotonic()
            append = self.machine.append(self.ledger, self._stage.vote_id, now, is_disk_full=self.is_disk_full)
            if append is not None:
                self.replicator.tell(append)
