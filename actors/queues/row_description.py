"""What the messages and queues are now that stand in the log's head, said only once that is committed. A machine.

The Checkpointer asks before it trims. A leader's state runs ahead of what is committed: what it says waits for that. A
follower's is committed, unless the node has just stopped leading: then it waits until the log has caught up with it.
"""

from actors.messages.checkpoints import DescribeRows, RowsDescribed
from actors.queues.ledger import Ledger
from storage.log_store import rows_now


class RowDescription:
    """Answers the Checkpointer's last question; `is_ready`: the answer may be taken."""

    def __init__(self) -> None:
        self._asked: DescribeRows | None = None
        self._ready: RowsDescribed | None = None
        self.is_ready = False

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
            self._ready = described
            self.is_ready = True

    def take_ready(self) -> RowsDescribed | None:
        """The answer, once."""
        ready, self._ready = self._ready, None
        self.is_ready = False
        return ready
