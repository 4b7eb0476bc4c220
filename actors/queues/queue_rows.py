"""Queues as lists tell them: their rows, and what they are sorted by."""

from actors.messages.rights import Rights
from actors.messages.sorting import OF_TOTALS
from actors.queues.delivery import Delivery
from actors.queues.ledger import Ledger
from actors.queues.queue_admin import paused_word
from actors.queues.summing import Summing, oldest_ready
from actors.queues.totals import Totals
from quorate.actions import Right
from quorate.protocol import QueueRow, QueueTotals
from storage.queue_state import QueueState


class QueueRows:
    """Of one shard. Rates are those that `summing` has found."""

    def __init__(self, ledger: Ledger, delivery: Delivery, summing: Summing) -> None:
        self._ledger = ledger
        self._delivery = delivery
        self._summing = summing

    def row(self, queue: QueueState, rights: Rights, *, is_full: bool) -> QueueRow:
        """One queue's, for who has those rights: how many dead letters there are is for who may look at them."""
        row = QueueRow(
            queue.name,
            queue.size,
            len(queue.ready),
            queue.delayed,
            queue.in_flight,
            queue.max_size,
            queue.max_id,
            self._delivery.lines.length(queue.name),
            paused_word(queue),
        )
        if is_full:
            counting, now = self._ledger.counting, self._ledger.now
            totals = counting.of(queue.name)
            row.oldest = oldest_ready(queue)
            since = max(queue.life.made_at, counting.begun)
            row.age, row.idle = _passed(now, since), _passed(now, max(queue.life.used_at, since))
            row.was_ready, row.given_out = queue.life.was_ready, queue.life.given_out
            row.totals = QueueTotals(counting.begun) if totals is None else totals_of(counting.begun, totals)
            row.dead_letter = queue.dead_letter
            if queue.dead_letter is not None and rights.may(Right.LOOK, queue.dead_letter):
                row.dead_letters = self._dead_letters(queue.dead_letter)
            if self._summing.has_rates(self._ledger.now):
                row.came, row.left = (0.0, 0.0) if totals is None else (totals.came, totals.left)
        return row

    def value(self, queue: QueueState, rights: Rights, sort: str) -> float | None:
        """Give what it is sorted by, as its row has it."""
        if sort == "ready":
            return float(len(queue.ready))
        if sort == "oldest":
            return oldest_ready(queue)
        if sort == "wait_status":
            return float(self._delivery.lines.length(queue.name))
        if sort == "dead_letters":
            name = queue.dead_letter
            return float(self._dead_letters(name)) if name is not None and rights.may(Right.LOOK, name) else None
        if sort in OF_TOTALS or sort in ("came", "left"):
            totals = self._ledger.counting.of(queue.name)
            if sort in OF_TOTALS:
                return 0.0 if totals is None else float(getattr(totals, sort))
            if not self._summing.has_rates(self._ledger.now):
                return None
            return 0.0 if totals is None else totals.came if sort == "came" else totals.left
        return float(getattr(queue, sort))

    def _dead_letters(self, name: str) -> int:
        letters = self._ledger.state.queues.get(name)
        return 0 if letters is None else letters.size


def totals_of(begun: float, found: Totals) -> QueueTotals:
    """As a reply has them."""
    return QueueTotals(
        begun,
        found.produced,
        found.delivered,
        found.redelivered,
        found.confirmed,
        found.released,
        found.expired,
        found.buried,
        found.moved,
        found.taken,
        found.cleared,
        found.arrived,
    )


def _passed(now: float, since: float) -> float:
    return round(max(0.0, now - since), 3)
