"""What the sockets of all clients may take of one turn of the loop, and strangers of that. A machine, with a clock.

Each client's part of a turn is bounded, but a thousand may come at the same moment. So they have a budget together:
with what comes when that is used up, a client waits in a line, and is not read from meanwhile; who goes through the
lines is `actors/gateway/turns.py`. A turn of the loop begins with the first that is heard in it, and ends when its host
says so.

Strangers, who have proved nothing where something can be proved, have less while clients that are known ask for
something: a slice, which comes back at a fifth of the pace of time. So a crowd of them that sends what is small costs
the others a fifth of the time, and loses nothing where it is alone. (`actors/shard/put_off.py` has the same
rule for what they ask for: queues import nothing of the wire, and this nothing of actors.)
"""

from collections.abc import Callable
from typing import Final

from net.clients.held_bytes import HeldBytes
from net.clients.strangers_time import SHARE

READ_S: Final = 0.002
"""Of one turn of the loop, for all clients: as much as actors have of it."""

LINE_S: Final = 0.001
"""Of one turn of the loop, for those in the line."""

SLICE_S: Final = 0.0005
"""Of one turn of the loop, for all strangers, while others ask: a disk delays a reply by as much."""

OTHERS_S: Final = 0.1
"""Clients that are known ask as long as the last was heard no longer ago: there is another soon."""

READ_S_PER_BYTE: Final = 4e-9
"""What the bytes took that came, before anybody looked at them, by the system and the loop: some 3 ns were measured."""

WRITE_S_PER_BYTE: Final = 1e-9
"""What a reply takes once more when its socket takes it, at the end of the turn: a memory's pace."""

FORWARDED_S: Final = 30e-6
"""What a stranger's request takes that another node does: it is packed, sealed and sent, opened there, and answered."""

CHARGED_MAX_S: Final = 0.2
"""More is forgotten: what was held for long may be forwarded at one moment."""

NOBODY: Final = -1.0


class ReadingTurn:
    """One worker's. `clock`: monotonic seconds. `wake` is called when a turn begins: `end` is to be called then, when
    the sockets have had their turn. `held` counts what is read.

    `begun_at`: when this turn or the last began. `strangers_wait`: some stand in a line, and none is heard before them.
    """

    __slots__ = (
        "_begun_stranger",
        "_clock",
        "_depth",
        "_held",
        "_is_refilled",
        "_known_read",
        "_late_at",
        "_left_s",
        "_others_until",
        "_refilled_at",
        "_strangers_read",
        "_wake",
        "_written",
        "begun_at",
        "is_begun",
        "strangers_wait",
    )

    def __init__(self, clock: Callable[[], float], wake: Callable[[], None], held: HeldBytes) -> None:
        self._clock = clock
        self._wake = wake
        self._held = held
        self.is_begun = False
        self.begun_at = 0.0
        self._late_at = 0.0
        self.strangers_wait = False
        self._left_s = READ_S
        self._is_refilled = False
        self._refilled_at = self._others_until = 0.0
        self._known_read = self._strangers_read = 0
        self._begun_stranger = NOBODY
        self._depth = 0
        self._written = 0

    def begin(self, budget_s: float = READ_S) -> None:
        """Begin a turn, or a part of one that has a budget of its own."""
        self.begun_at = now = self._clock()
        self._late_at = now + budget_s
        self._is_refilled = False
        if not self.is_begun:
            self.is_begun = True
            self._wake()

    def end(self) -> None:
        """All sockets have had their turn."""
        self.is_begun = False

    def may_hear(self) -> bool:
        """Whether one more client may be heard in this turn."""
        if self.is_begun:
            return self._clock() < self._late_at
        self.begin()
        return True

    def may_hear_stranger(self) -> bool:
        """Whether one more stranger may be heard in this turn, beside those in the line."""
        return not self.strangers_wait and self.has_slice

    @property
    def has_slice(self) -> bool:
        """Whether strangers have time in this turn."""
        if not self.may_hear():
            return False
        if not self._is_refilled:
            self._is_refilled = True
            self._refill()
        return self._left_s > 0.0

    def has_time(self) -> bool:
        """Whether more may be done for the client that is heard now, or answered."""
        if not self.may_hear():
            return False
        begun = self._begun_stranger
        return begun < 0.0 or self._clock() - begun < self._left_s

    def note_stranger(self, size: int) -> None:
        """So many bytes came from a stranger, and wait: nobody who is known was heard."""
        self._strangers_read += size
        self._charge(size * READ_S_PER_BYTE)

    def begin_stranger(self, size: int) -> None:
        """Begin to look at so many bytes of a stranger's, or to answer one: meanwhile another may be answered, too."""
        self._strangers_read += size
        self._charge(size * READ_S_PER_BYTE)
        self._depth += 1
        if self._depth == 1:
            self._begun_stranger = self._clock()
            self._written = self._held.written

    def end_stranger(self) -> None:
        """Reckon what it took, and what it takes to send what was answered."""
        self._depth -= 1
        if self._depth == 0:
            written = self._held.written - self._written
            self._left_s -= self._clock() - self._begun_stranger + written * WRITE_S_PER_BYTE
            self._begun_stranger = NOBODY

    def was_known(self, size: int) -> None:
        """Count so many bytes as a known client's: who sent them was taken for a stranger, and they hold his token."""
        self._strangers_read -= size

    def charge(self, forwarded: int) -> None:
        """Reckon so many of strangers' requests, which were forwarded."""
        self._charge(forwarded * FORWARDED_S)

    def _charge(self, took_s: float) -> None:
        self._left_s = max(self._left_s - took_s, -CHARGED_MAX_S)

    def look_for_others(self) -> bool:
        """Look whether any client that is known was heard since the last look, or was lately."""
        return self._are_others_at(self._clock())

    def _are_others_at(self, now: float) -> bool:
        known_read = self._held.read - self._strangers_read
        if known_read != self._known_read:
            self._known_read = known_read
            self._others_until = now + OTHERS_S
        return now < self._others_until

    def _refill(self) -> None:
        """Give strangers what has come back to them: all of it, if no other client was heard lately."""
        now = self._clock()
        if not self._are_others_at(now):
            self._left_s = READ_S
        else:
            self._left_s = min(self._left_s + (now - self._refilled_at) * SHARE, SLICE_S)
        self._refilled_at = now

    @property
    def others_ask(self) -> bool:
        """Whether clients that are known were heard lately."""
        return self._refilled_at < self._others_until

    @property
    def slice_in_s(self) -> float:
        """In how many seconds strangers have half of a slice; 0.0: in the next turn."""
        if not self.others_ask:
            return 0.0
        return max(SLICE_S / 2 - self._left_s, 0.0) / SHARE
