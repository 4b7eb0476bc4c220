"""Which partitions a reader of a topic reads, how far, and what is to be committed. A machine.

A message is *done* when the next one is asked for. A partition that is taken back is let go of when the message of it
that is worked on is done, and where the group is in it was committed; then the next heartbeat says that the member has
it no more. A member that is not heard in time has nothing: it begins anew. Times are monotonic seconds.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from quorate.streams import Part, Share, Start, TopicMessage

COMMIT_S: Final = 1.0
"""Where a group is, is committed so often at most."""

WAIT_S: Final = 1.0
"""A read of the only partition waits so long for a message; of several, when none had one, each a part of that."""

BEAT: Final = 0.25
"""A heartbeat waits for news for this part of a session, and for half of that more for its answer."""

PAUSE_S: Final = 0.2
"""After a request that failed, and while there is nothing to read."""


class Places:
    """Of one reader. `has`: the partitions that it reads, and the generation in which it got each.

    `next`: where each is read from; `session`: how long a member may be silent (s). Partitions that are `busy` are
    worked on, and not let go of.
    """

    def __init__(self, start: Start, session: float, now: float) -> None:
        self.has: dict[int, int] = {}
        self.next: dict[int, Start] = {}
        self.session = session
        self.busy: set[int] = set()
        self._start = start
        self._ends: Mapping[int, int] | None = None
        self._member_until = now
        self._committed_at = now
        self._waiting: deque[TopicMessage] = deque()
        self._current: TopicMessage | None = None
        self._done: dict[int, int] = {}
        self._revoked: set[int] = set()
        self._turn = self._empty = 0
        self._is_behind: set[int] = set()

    def alone(self, partitions: list[int], ends: Mapping[int, int] | None) -> None:
        """Read these, for nobody else reads them; each to its end, where there is one."""
        self._ends = ends
        for index in partitions:
            self.has[index] = 0
            if ends is None or ends[index] > 0:
                self.next[index] = self._start

    # -- a member's heartbeats -----------------------------------------------------------------------------------

    @property
    def answer_s(self) -> float:
        """For how long a heartbeat is tried, beyond what it waits (s)."""
        return self.session * BEAT / 2

    def beat(self, now: float, *, is_first: bool = False) -> tuple[list[int], float]:
        """Say what the next heartbeat says that the member has, and for how long it waits for news (s).

        The member has nothing from now on, if the answer may come when others have got what it had.
        """
        wait = 0.0 if is_first or self._revoked else self.session * BEAT
        if now + wait + self.answer_s >= self._member_until:
            self.has, self.next, self._done = {}, {}, {}
            self._waiting.clear()
            self._revoked = set()
        return sorted(self.has), wait

    def told(self, share: Share, asked_at: float) -> None:
        """Note what the member is to have. What it has, and is not to have, it lets go of later."""
        self._member_until = asked_at + self.session
        for index in share.owns:
            if index not in self.has:
                self.has[index] = share.generation
                self.next[index] = share.positions.get(index, self._start)
        self._revoked = set(self.has) - set(share.owns)
        for one in [one for one in self._waiting if one.partition in self._revoked]:
            at = self.next[one.partition]
            if not isinstance(at, int) or one.offset < at:
                self.next[one.partition] = one.offset  # if it is given back, it goes on from there
        self._waiting = deque([one for one in self._waiting if one.partition not in self._revoked])

    @property
    def is_to_let_go(self) -> bool:
        """Whether a partition is to be let go of."""
        return bool(self._revoked)

    def let_go(self) -> None:
        """Let go of what is another member's, but for what is to be committed before."""
        for index in self._revoked - self._done.keys() - self.busy:
            self.has.pop(index, None)
            self.next.pop(index, None)
        self._revoked &= self._done.keys() | self.busy

    # -- messages ------------------------------------------------------------------------------------------------

    def to_read(self) -> tuple[int, Start, float] | None:
        """Choose the partition that is read next, in turn: from where, and how long to wait there (s)."""
        indexes = [index for index in self.next if index not in self._revoked]
        if not indexes:
            return None
        self._turn += 1
        index = indexes[self._turn % len(indexes)]
        waits = index in self._is_behind if self._ends is not None else self._empty >= len(indexes)
        return index, self.next[index], WAIT_S / len(indexes) if waits else 0.0

    @property
    def is_at_end(self) -> bool:
        """Whether all is read that is to be."""
        return self._ends is not None and not self.next

    def came(self, index: int, start: Start, part: Part) -> None:
        """Take in what was read from there."""
        if self.next.get(index) != start or index in self._revoked:
            return  # it was another's meanwhile
        end = None if self._ends is None else self._ends[index]
        self._waiting.extend(one for one in part.messages if end is None or one.offset < end)
        self.next[index] = part.next
        self._empty = 0 if part.messages else self._empty + 1
        if not isinstance(start, int):  # what it meant is known now, also to who goes on for this member
            self._done.setdefault(index, part.messages[0].offset if part.messages else part.next)
        elif not part.messages and part.next != start and not self._has_of(index):
            self._done[index] = part.next  # its group's filter accepts none of them
        if end is not None and part.next >= end:
            del self.next[index]
        elif end is not None and part.next == start:
            self._is_behind.add(index)  # that node does not know of more yet

    def _has_of(self, index: int) -> bool:
        """Whether a message of the partition is worked on, or waits for that."""
        return index in self.busy or any(
            one.partition == index for one in (*self._waiting, self._current) if one is not None
        )

    def take(self) -> TopicMessage | None:
        """Give the next message, if one is there."""
        self._current = self._waiting.popleft() if self._waiting else None
        return self._current

    def done(self) -> None:
        """Note that the message that was given last is done."""
        if self._current is not None:
            if self._current.partition in self.has:
                self._done[self._current.partition] = self._current.offset + 1
            self._current = None

    @property
    def behind_current(self) -> tuple[int, int, int] | None:
        """Where the group goes on when the message that was given last is done: the partition, the offset, and the
        generation in which the member got it; None: none was given."""
        current = self._current
        if current is None:
            return None
        return current.partition, current.offset + 1, self.has.get(current.partition, 0)

    def done_to(self, index: int, generation: int, offset: int) -> None:
        """Note that a partition, which the member got in that generation, is done up to an offset."""
        if self.has.get(index) == generation:
            self._done[index] = max(offset, self._done.get(index, 0))

    def not_done(self) -> None:
        """Note that the message that was given last is not done, and will not be."""
        self._current = None

    # -- committing ----------------------------------------------------------------------------------------------

    def is_to_commit(self, now: float) -> bool:
        """Whether it is time for that."""
        return bool(self._revoked) or (bool(self._done) and now >= self._committed_at + COMMIT_S)

    @property
    def has_done(self) -> bool:
        """Whether something is to be committed."""
        return bool(self._done)

    def take_done(self, now: float) -> tuple[dict[int, int], int]:
        """Hand over where the group goes on, by partition, and the generation in which the member got the last."""
        self._committed_at = now
        taken, self._done = self._done, {}
        return taken, max(self.has.values(), default=0)

    def put_back(self, positions: dict[int, int]) -> None:
        """Note that these could not be committed."""
        self._done = {**{index: at for index, at in positions.items() if index in self.has}, **self._done}
