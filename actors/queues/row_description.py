"""What the messages and queues are now that stand in the log's head, said only once that is committed.

The Checkpointer asks before it trims. A leader's state runs ahead of what is committed: what it says waits for that. A
follower's is committed, unless the node has just stopped leading: then it waits until the log has caught up with it.
"""

from typing import Any

import pykka

from actors.messages.checkpoints import DescribeRows, RowsDescribed
from actors.queues.ledger import Ledger
from storage.log_store import rows_now


class RowDescription:
    """Answers the Checkpointer's last question."""

    def __init__(self, checkpointer: "pykka.ActorRef[Any]") -> None:
        self._checkpointer = checkpointer
        self._asked: DescribeRows | None = None

    def asked(self, message: DescribeRows) -> None:
        """It is to be answered as soon as that is possible."""
        self._asked = message

    def tell(self, ledger: Ledger, committed: int, *, is_leading: bool) -> None:
        """Answer if there is a question, from the ledger's state; `committed` is what the log has settled."""
        asked = self._asked
        state = ledger.state
        if asked is None or (not is_leading and state.trans_id > committed):
            return
        rows = rows_now(asked.plan, state.messages, state.queues, state.members)
        described = RowsDescribed(asked.plan, rows, state.trans_id)
        if is_leading:
            ledger.after_commit(lambda: self._settled(asked, described))
        else:
            self._settled(asked, described)

    def _settled(self, asked: DescribeRows, described: RowsDescribed) -> None:
        if self._asked is asked:
            self._asked = None
            self._checkpointer.tell(described)
