"""What all queues of a shard have together, found in pieces: a shard may have a hundred thousand of them. A machine.

Whoever asks for it every few seconds makes the rates of each queue known by that, too: nothing else is counted for it.
"""

from collections.abc import Callable
from typing import Any, Final

from actors.messages.call import Call
from actors.queues.ledger import Ledger
from storage.queue_state import NEVER, QueueState

SUMMED_AT_ONCE: Final = 500
"""Queues that one piece looks at: some 0.5 ms, and 4 where each of them has sixteen priorities."""

PRIORITIES_LOOKED_AT: Final = 16
RATES_S: Final = 60.0
"""What came and left since somebody looked longer ago than that is no rate of now."""

FRESH_S: Final = 1.0
"""Sums are given again to whoever asks within that time: nobody makes the node count for each of his requests."""


def oldest_ready(queue: QueueState) -> float | None:
    """Since when the message is ready that is so for longest: the first of each priority is looked at, 16 of them."""
    ready, oldest = queue.ready, None
    key = ready.first if ready else None
    for _ in range(PRIORITIES_LOOKED_AT):
        if key is None:
            break
        oldest = key[1] if oldest is None else min(oldest, key[1])
        key = ready.first_behind((key[0], NEVER, 0))
    return oldest


class Sums:
    """Messages by state, the oldest that is ready (Unix s), those in dead letter queues; `at`: when (Unix s).

    Nobody is expected to take what is in a queue for dead letters, or in a paused one: these make none the oldest.
    `dead` are the queues for dead letters that are known, `dead_letter_queues` those that are found.
    """

    def __init__(self, dead: set[str]) -> None:
        self.dead = dead
        self.ready = self.delayed = self.in_flight = self.dead_letters = 0
        self.oldest: float | None = None
        self.at = 0.0
        self.dead_letter_queues: set[str] = set()

    def add(self, queue: QueueState) -> None:
        """One queue more."""
        self.ready += len(queue.ready)
        self.delayed += queue.delayed
        self.in_flight += queue.in_flight
        self.find_dead(queue)
        if queue.name in self.dead:
            self.dead_letters += queue.size
            return
        since = None if queue.paused else oldest_ready(queue)
        if since is not None and (self.oldest is None or since < self.oldest):
            self.oldest = since

    def find_dead(self, queue: QueueState) -> None:
        """Note which queue is for its dead letters, if one is."""
        if queue.dead_letter is not None:
            self.dead_letter_queues.add(queue.dead_letter)

    @property
    def told(self) -> dict[str, Any]:
        """As a reply has it."""
        states = {"ready": self.ready, "delayed": self.delayed, "in_flight": self.in_flight}
        return {"messages": states, "oldest": self.oldest, "dead_letters": self.dead_letters}


class Summing:
    """`done` is called with each call and the sums that it asked for."""

    def __init__(self, ledger: Ledger, done: Callable[[Call, Sums], None]) -> None:
        self._state = ledger.state
        self._counting = ledger.counting
        self._done = done
        self._looked_at = self._seconds = self._last_seconds = 0.0
        self._last = Sums(set())
        self._open: Sums | None = None
        self._finds_dead = True
        self._seen = ""
        self._waiting: list[Call] = []

    @property
    def has_more(self) -> bool:
        """Whether `go_on` has something to do."""
        return self._open is not None

    def ask(self, now: float, call: Call) -> None:
        """Answer at once from sums that are fresh, or when they are made (Unix s)."""
        if self._open is None and 0 <= now - self._last.at < FRESH_S:
            self._done(call, self._last)
            return
        self._waiting.append(call)
        if self._open is None:
            seconds = now - self._looked_at
            self._looked_at, self._seconds = now, seconds if 0 < seconds < RATES_S else 0.0
            self._open, self._seen = Sums(self._last.dead_letter_queues), ""
            self._finds_dead = self._last.at == 0.0
            self.go_on(now)

    def has_rates(self, now: float) -> bool:
        """Whether each queue's `came` and `left` are of now."""
        return self._last_seconds > 0 and now - self._looked_at < RATES_S

    def go_on(self, now: float) -> None:
        """Look at some more queues; behind the last, answer."""
        sums, state = self._open, self._state
        if sums is None:
            return
        names, queues = state.names, state.queues
        at = names.bisect_right(self._seen)
        some = list(names.islice(at, at + SUMMED_AT_ONCE))
        is_last = len(some) < SUMMED_AT_ONCE
        self._seen = "" if is_last else some[-1]
        if self._finds_dead:  # before the first time: later it is known from the time before
            for name in some:
                sums.find_dead(queues[name])
            if is_last:
                self._finds_dead = False
                sums.dead = set(sums.dead_letter_queues)
            return
        for name in some:
            sums.add(queues[name])
            totals = self._counting.of(name)
            if totals is not None:
                totals.look(self._seconds)
        if not is_last:
            return
        sums.at = now
        waiting, self._waiting = self._waiting, []
        self._last, self._open, self._last_seconds = sums, None, self._seconds
        for call in waiting:
            self._done(call, sums)

    def take_open(self) -> list[Call]:
        """Whose sums are not ready; they do not go on."""
        waiting, self._waiting = self._waiting, []
        self._open = None
        return waiting
