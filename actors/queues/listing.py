"""Lists of queues: their rows, and what they are sorted by. Of very many they are made in pieces, and what else there
is to do goes on between. A machine.
"""

from bisect import insort
from collections import deque
from typing import Any, Final

from actors.messages.call import Call, rows_in_reply
from actors.messages.patterns import Pattern
from actors.messages.rights import Rights
from actors.messages.sorting import NAME, OF_TOTALS, cursor, fault, is_ranked, position, rank
from actors.queues.delivery import Delivery
from actors.queues.queue_admin import paused_word
from actors.queues.scanning import Summing, oldest_ready
from actors.runtime.work import Steps
from actors.shard.jobs import Jobs
from actors.shard.ledger import Ledger
from actors.shard.totals import Totals
from quorate.actions import Right
from quorate.protocol import done
from quorate.queue_replies import ListReply, QueueRow, QueueTotals
from storage.queue_state import QueueState

LIST_NAMES: Final = 5000
"""Queues that one piece of a list looks at: some 3 ms."""

RANKED_NAMES: Final = 500
"""The same of one that is in another order: some 1 ms, and 4 by the oldest where each has sixteen priorities."""

MATCH_STEPS: Final = 1_500_000
"""Characters of the pattern times those of the name, of all that one piece compares: some 2 ms at the worst."""

AT_ONCE_NAMES: Final = 200
"""With so few queues a list is made at once; else when others have had their turn."""


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
            system=queue.life.is_system,
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


class _Listing:
    """A list that is being made: of the queues whose names match, those behind `after`; `seen`: how far it is.

    `sums` are for the reply. `ranked` are the best so far, by rank and name, as many as the reply may have. `chosen`
    are the same by names alone: the first ones, or downwards the last. `is_plain`: it is of all queues by name, for a
    client that may look at all: then only its own are looked at. `has_system`: system queues are in it, too.
    """

    def __init__(self, call: Call, sums: dict[str, Any] | None) -> None:
        request = call.request
        self.call = call
        self.sums = None if sums is None else [sums]
        self.sort = request.sort or NAME
        self.is_ranked = is_ranked(request)
        self.is_down = bool(request.descending)
        self.after = "" if request.after is None else str(request.after)
        self.behind = position(self.after) if self.is_ranked and self.after else None
        self.rows_max = rows_in_reply(call)
        self.seen: str | None = None
        self.chosen: deque[str] = deque()
        self.ranked: list[tuple[float, str]] = []
        self.count = 0
        self.is_more = False
        self.pattern = Pattern(request.pattern)
        is_by_name = not self.is_ranked and not self.is_down
        may_all = Right.LOOK in call.principal.rights.everywhere
        self.has_system = bool(request.system)
        self.is_plain = is_by_name and self.pattern.is_any and may_all

    def take(self, name: str) -> None:
        """One that matches, in the order of names."""
        if self.is_down:
            if not self.after or name < self.after:
                self.chosen.append(name)
                if len(self.chosen) > self.rows_max:
                    self.chosen.popleft()
                    self.is_more = True
        elif name > self.after:
            if len(self.chosen) < self.rows_max:
                self.chosen.append(name)
            else:
                self.is_more = True

    def take_ranked(self, at: float, name: str) -> None:
        """Take one more in any other order."""
        here, ranked = (at, name), self.ranked
        if self.behind is not None and here <= self.behind:
            return
        if len(ranked) < self.rows_max:
            insort(ranked, here)
            return
        self.is_more = True
        if here < ranked[-1]:
            ranked.pop()
            insort(ranked, here)

    @property
    def names(self) -> list[str]:
        """Those of the reply, in its order."""
        if self.is_ranked:
            return [name for _, name in self.ranked]
        return list(reversed(self.chosen) if self.is_down else self.chosen)

    @property
    def next(self) -> str | None:
        """What the next list goes on after; None: there is nothing behind this one."""
        names = self.names
        if not self.is_more or not names:
            return None
        return cursor(*self.ranked[-1]) if self.is_ranked else names[-1]


class Listings:
    """Those that one shard is asked for."""

    def __init__(self, ledger: Ledger, jobs: Jobs, rows: QueueRows) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._rows = rows

    def ask(self, call: Call, sums: dict[str, Any] | None = None) -> None:
        """Find the queues whose names match: shell wildcards if the pattern has any, else a part of the name; or all.

        As many as fit behind `after`; the reply says whether there are more. `sums`: it also has that.
        """
        wrong = fault(call.request)
        if wrong is not None:
            return self._ledger.refuse_field(call, *wrong)
        listing = _Listing(call, sums)
        if len(self._ledger.state.names) <= AT_ONCE_NAMES or listing.is_plain:
            self._jobs.begin(call, self._list(listing))
        else:
            self._jobs.add(call, self._list(listing))
        return None

    def _list(self, listing: _Listing) -> Steps:
        while not self._list_some(listing):
            yield

    def _list_some(self, listing: _Listing) -> bool:
        """Look at the next names; at the last of them answer. Whether that is done."""
        call, names, queues = listing.call, self._ledger.state.names, self._ledger.state.queues
        rights = call.principal.rights
        may_all = Right.LOOK in rights.everywhere
        if listing.is_plain and may_all and (listing.has_system or not self._ledger.state.has_system):
            first = names.bisect_right(listing.after)
            last = first + listing.rows_max
            listing.chosen.extend(names.islice(first, last))
            listing.count, listing.is_more = len(names), last < len(names)
            self._answer(listing)
            return True
        most = RANKED_NAMES if listing.is_ranked else LIST_NAMES
        at = names.bisect_right(listing.seen) if listing.seen is not None else 0
        some = list(names.islice(at, at + most))
        pattern, left = listing.pattern, MATCH_STEPS
        for looked, name in enumerate(some, 1):
            if not may_all and not rights.may(Right.LOOK, name):
                continue
            if queues[name].life.is_system and not listing.has_system:
                continue
            left -= pattern.cost * len(name)
            if pattern.matches(name):
                listing.count += 1
                if listing.is_ranked:
                    value = self._rows.value(queues[name], rights, listing.sort)
                    listing.take_ranked(rank(value, is_descending=listing.is_down), name)
                else:
                    listing.take(name)
            if left < 0 and looked < len(some):
                listing.seen = name
                return False
        if len(some) == most:
            listing.seen = some[-1]
            return False
        self._answer(listing)
        return True

    def _answer(self, listing: _Listing) -> None:
        queues, request = self._ledger.state.queues, listing.call.request
        is_full = bool(request.full)
        rights = listing.call.principal.rights
        names = [name for name in listing.names if name in queues and rights.may(Right.LOOK, name)]
        rows = [self._rows.row(queues[name], rights, is_full=is_full) for name in names]
        reply = done(request, ListReply, queue_list=rows, queue_count=listing.count, next=listing.next)
        reply.sums = listing.sums
        self._ledger.answer_when_committed(listing.call, reply)
