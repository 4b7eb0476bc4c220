"""What a leader knows of its followers, and what follows from it: pure functions of a small map."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

WINDOW_BYTES: Final = 4 << 20
"""Bytes pushed to a follower that it has not stored; with more it has to pull, so that it costs no more memory."""

ANSWER_WEIGHT: Final = 0.1
"""What the last answer's time counts for in `UnderWay.answer_s`."""


class UnderWay:
    """What was sent to a disk, this node's or another's, and is not known to be there: (last record, bytes, when).

    `answer_s`: how long it takes, as a rule, until it is; infinite until something was. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self.answer_s = math.inf
        self.size = 0
        self._sent: deque[tuple[int, int, float]] = deque()

    def add(self, now: float, last_trans_id: int, size: int) -> None:
        """Entries that end with that record are sent."""
        self._sent.append((last_trans_id, size, now))
        self.size += size

    def stored(self, now: float, trans_id: int) -> None:
        """All up to that record are there."""
        sent = self._sent
        while sent and sent[0][0] <= trans_id:
            _, size, at = sent.popleft()
            self.size -= size
            self._took(now - at)

    def _took(self, its_s: float) -> None:
        self.answer_s = its_s if self.answer_s == math.inf else self.answer_s + (its_s - self.answer_s) * ANSWER_WEIGHT

    def lost(self, now: float) -> None:
        """Nobody knows what became of it. For so long there was no answer, at least."""
        if self._sent and self.silent_s(now) > self.answer_s:
            self._took(self.silent_s(now))
        self._sent.clear()
        self.size = 0

    def silent_s(self, now: float) -> float:
        """For how long there has been no answer to what was sent first (s)."""
        return now - self._sent[0][2] if self._sent else 0.0

    def answer_s_at(self, now: float) -> float:
        """Guess how soon it answers (s): as it did, or no sooner than it has been silent."""
        return max(self.answer_s, self.silent_s(now))


class Progress:
    """One follower, as the leader of one vote_id sees it.

    `match`: its disk agrees with the leader's log up to that record: it counts for commits. `sent`: the last record
    that was pushed to it; None while it has to pull, so that nothing is pushed. While it is pushed to, `match` never
    passes `sent`. `echo`: when the leader sent what the follower has answered last (s): what the lease rests on.
    `heard_at`: when anything came from it last: what the leader's patience rests on. `window_bytes`: what may be on
    its way to it. `is_full`: its disk takes nothing now, so it should not lead; `lacks_blocks`: others should rather.
    `promise_s`: for so long after `echo` it votes for nobody else, by its own clock; infinite until it has said so.
    `under_way`: what was pushed and is not stored. `waits`: there is more for it behind `sent`, to be pushed soon.
    """

    def __init__(self, heard_at: float, window_bytes: int = WINDOW_BYTES, sent: int | None = None) -> None:
        self._window_bytes = window_bytes
        self.match = 0
        self.sent = sent
        self.echo = -math.inf
        self.heard_at = heard_at
        self.last_push_at = -math.inf
        self.is_full = self.lacks_blocks = False
        self.promise_s = math.inf
        self.waits = False
        self.under_way = UnderWay()

    def is_pushable(self, after: int) -> bool:
        """Whether entries behind record `after` can be pushed to it now."""
        return self.sent == after and self.under_way.size <= self._window_bytes

    def pushed(self, now: float, last_trans_id: int, size: int) -> None:
        """Entries of so many bytes, ending with that record, are on their way to it."""
        assert self.sent is not None
        assert last_trans_id >= self.sent
        self.sent = last_trans_id
        self.last_push_at = now
        self.under_way.add(now, last_trans_id, size)

    def found(self, now: float, after: int) -> None:
        """Push to it from here on: it has asked for what follows record `after`, and is sent all of it."""
        self.must_pull(now)
        self.sent = after

    def must_pull(self, now: float) -> None:
        """Let it pull: it can't follow, or did not get what was pushed."""
        self.sent = None
        self.waits = False
        self.under_way.lost(now)

    def has_only(self, trans_id: int) -> None:
        """Its log ends there, by its own word: one that was lost and begins anew has less than it had."""
        self.match = min(self.match, trans_id)

    def heard(self, now: float) -> None:
        """Something has come from it."""
        self.heard_at = now

    def promised_until(self, timeout_s: float, part: float) -> float:
        """Until when it votes for nobody else, `part` of what it promised for clocks that differ (monotonic s)."""
        return self.echo + min(self.promise_s, timeout_s) * part

    def stored(
        self, now: float, trans_id: int, echo: float, log_end: int, *, is_full: bool, promise_s: float = 0.0
    ) -> None:
        """Note its answer. One that has the whole log is pushed to from here on, without having to ask."""
        if promise_s:
            self.promise_s = promise_s
        self.match = max(self.match, trans_id)
        self.echo = max(self.echo, echo)
        self.heard_at = now
        self.is_full = is_full
        if self.sent is None and self.match == log_end:
            self.sent = log_end
        self.under_way.stored(now, self.match)


def on_nodes(matches: Iterable[int]) -> tuple[int, ...]:
    """At least n nodes have the records up to the n-th of the result."""
    return tuple(sorted(matches, reverse=True))


def on_majority(matches: list[int]) -> int:
    """Find the last record that a majority of the voters has, given each one's last."""
    return sorted(matches, reverse=True)[len(matches) // 2] if matches else 0


def heard_by_majority(moments: list[float]) -> float:
    """Find the latest moment that a majority's reach or pass; `moments` has the present for the leader itself."""
    return sorted(moments, reverse=True)[len(moments) // 2] if moments else -math.inf
