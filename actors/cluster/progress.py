"""What a leader knows of its followers, and what follows from it: pure functions of a small map."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

WINDOW_BYTES: Final = 4 << 20
"""Bytes pushed to a follower that it has not stored; with more it has to pull, so that it costs no more memory."""

ANSWER_WEIGHT: Final = 0.1
"""What the last answer's time counts for in `Progress.answer_s`."""


class Progress:
    """One follower, as the leader of one vote_id sees it.

    `match`: its disk agrees with the leader's log up to that record: it counts for commits. `sent`: the last record
    that was pushed to it; None while it has to pull, so that nothing is pushed. While it is pushed to, `match` never
    passes `sent`. `echo`: when the leader sent what the follower has answered last (s): what the lease rests on.
    `heard_at`: when anything came from it last: what the leader's patience rests on. `window_bytes`: what may be on
    its way to it. `is_full`: its disk takes nothing now, so it should not lead. `promise_s`: for so long after
    `echo` it votes for nobody else, by its own clock; infinite until it has said so. `answer_s`: how long it takes,
    as a rule, until it says that it has stored what was pushed; infinite until it has. `waits`: there is more for
    it behind `sent`, to be pushed soon.
    """

    def __init__(self, heard_at: float, window_bytes: int = WINDOW_BYTES, sent: int | None = None) -> None:
        self._window_bytes = window_bytes
        self.match = 0
        self.sent = sent
        self.echo = -math.inf
        self.heard_at = heard_at
        self.last_push_at = -math.inf
        self.is_full = False
        self.promise_s = math.inf
        self.answer_s = math.inf
        self.waits = False
        self._under_way: deque[tuple[int, int, float]] = deque()
        self._under_way_bytes = 0

    def is_pushable(self, after: int) -> bool:
        """Whether entries behind record `after` can be pushed to it now."""
        return self.sent == after and self._under_way_bytes <= self._window_bytes

    def pushed(self, now: float, last_trans_id: int, size: int) -> None:
        """Entries of so many bytes, ending with that record, are on their way to it."""
        assert self.sent is not None
        assert last_trans_id >= self.sent
        self.sent = last_trans_id
        self.last_push_at = now
        self._under_way.append((last_trans_id, size, now))
        self._under_way_bytes += size

    def found(self, after: int) -> None:
        """Push to it from here on: it has asked for what follows record `after`, and is sent all of it."""
        self.must_pull()
        self.sent = after

    def must_pull(self) -> None:
        """Let it pull: it can't follow, or did not get what was pushed."""
        self.sent = None
        self.waits = False
        self._under_way.clear()
        self._under_way_bytes = 0

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
        under_way = self._under_way
        while under_way and under_way[0][0] <= self.match:
            _, size, pushed_at = under_way.popleft()
            self._under_way_bytes -= size
            took_s = now - pushed_at
            known = self.answer_s != math.inf
            self.answer_s = self.answer_s + (took_s - self.answer_s) * ANSWER_WEIGHT if known else took_s

    def answer_s_at(self, now: float) -> float:
        """Guess how soon it answers (s): as it did, or as long as it has been silent about what was pushed first."""
        return max(self.answer_s, now - self._under_way[0][2]) if self._under_way else self.answer_s


def on_nodes(matches: Iterable[int]) -> tuple[int, ...]:
    """At least n nodes have the records up to the n-th of the result."""
    return tuple(sorted(matches, reverse=True))


def on_majority(matches: list[int]) -> int:
    """Find the last record that a majority of the voters has, given each one's last."""
    return sorted(matches, reverse=True)[len(matches) // 2] if matches else 0


def heard_by_majority(moments: list[float]) -> float:
    """Find the latest moment that a majority's reach or pass; `moments` has the present for the leader itself."""
    return sorted(moments, reverse=True)[len(moments) // 2] if moments else -math.inf
