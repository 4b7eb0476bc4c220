"""A savepoint: what a ledger makes behind it is committed all or none, or taken back before anybody has heard of it.

All of it is made in one turn of the loop, and nothing of it leaves for the log meanwhile. The state's own undo steps,
those of lost leads, take its records back: they are noted while a savepoint is open, also on a node alone.

Meanwhile nobody is counted, and no reply that waits for other nodes is ended: that is done when it is certain.
"""

from actors.shard.ledger import Ledger
from actors.shard.totals import Counting
from storage.message import Made
from storage.undo import take_back


class Savepoint:
    """Of one ledger, from its making until `keep` or `take_back`, one of which must follow."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._after = ledger.state.trans_id
        self._records = len(ledger.records)
        self._together = len(ledger.together)
        self._unplaced = len(ledger.unplaced)
        self._steps = ledger.state.undo.mark()
        self._counting, ledger.counting = ledger.counting, Counting()
        self._waited, ledger.replicated.of_messages = ledger.replicated.of_messages, {}

    def keep(self) -> None:
        """Have all of it committed together."""
        ledger = self._ledger
        ledger.state.undo.keep_behind(self._steps)
        del ledger.together[self._together :]
        if len(ledger.records) > self._records:
            ledger.together.append((self._records, len(ledger.records)))
        self._restore()
        for record in ledger.records[self._records :]:
            ledger.counting.count(record)
            ledger.replicated.noted(record)

    def take_back(self) -> list[Made]:
        """Make everything what it was; returns the records that are none now."""
        ledger, state = self._ledger, self._ledger.state
        made = ledger.records[self._records :]
        self._restore()
        del ledger.records[self._records :]
        del ledger.together[self._together :]
        while len(ledger.unplaced) > self._unplaced:
            ledger.unplaced.pop()
        take_back(state, self._after, state.undo.take_behind(self._steps), ledger.now, ledger.committed)
        state.topics.tails.cut(self._after)
        return made

    def _restore(self) -> None:
        self._ledger.counting = self._counting
        self._ledger.replicated.of_messages = self._waited
