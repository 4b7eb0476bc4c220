"""What the Checkpointer has to know to trim the log's head, said only once it is committed. A machine.

It asks what the messages and queues are now that stand in the head; where the log's readers are it is told unasked. A
leader's state runs ahead of what is committed: what it says waits for that. A follower's is committed, unless the node
has just stopped leading: then it waits until the log has caught up with it.
"""

from actors.messages.checkpoints import DescribeRows, ReadersMoved, RowsDescribed
from actors.queues.ledger import Ledger
from storage.log_store import rows_now
from storage.records import ReaderPosition


class RowDescription:
    """`is_ready`: something may be taken; `readers`: as they were seen last."""

    def __init__(self) -> None:
        self._asked: DescribeRows | None = None
        self._ready: list[RowsDescribed | ReadersMoved] = []
        self.is_ready = False
        self.readers: dict[str, ReaderPosition] | None = None

    def asked(self, message: DescribeRows) -> None:
        """It is to be answered as soon as that is possible."""
        self._asked = message

    def describe(self, ledger: Ledger, *, is_leading: bool) -> None:
        """Look at the state if there is a question; a new state is looked at again."""
        asked, state = self._asked, ledger.state
        if asked is None or (not is_leading and not ledger.is_settled):
            return
        rows = rows_now(asked.plan, state)
        described = RowsDescribed(asked.plan, rows, state.trans_id)
        ledger.after_commit(lambda: self._settled(asked, described))

    def _settled(self, asked: DescribeRows, described: RowsDescribed) -> None:
        if self._asked is asked:
            self._asked = None
            self._say(described)

    def readers_moved(self, ledger: Ledger) -> None:
        """The readers are others than those that were seen."""
        self.readers = readers = ledger.state.readers
        ledger.after_commit(lambda: self._say(ReadersMoved(readers)))

    def _say(self, message: RowsDescribed | ReadersMoved) -> None:
        self._ready.append(message)
        self.is_ready = True

    def take_ready(self) -> list[RowsDescribed | ReadersMoved]:
        """What may be said; it is the caller's now."""
        ready, self._ready = self._ready, []
        self.is_ready = False
        return ready
