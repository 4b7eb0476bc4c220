"""Sending to many others, each over a link of its own: all that one turn has for one of them leaves in one piece.

A system call costs more than a message. What the cluster says itself goes at once, what is said for clients as far as
there is room (`Outbox`); who makes answers for an addressee is told when it takes them more slowly than they come.
"""

from collections.abc import Callable

from net.peers.link import PeerLink
from net.peers.messages import BULK, Forward, PeerMessage
from net.peers.outbox import Outbox


class Addressee:
    """Somebody whom a link leads to, known by `key`.

    `outbox` leaves at the end of the turn. `answers` to what it has asked wait for a link to it, as long as it can be
    heard: `answer_bytes_max` at most; beyond it who asked is told that the outcome is unknown, in time. With more than
    `behind_bytes` of clients' frames waiting, it is behind.
    """

    def __init__(self, key: int, answer_bytes_max: int, behind_bytes: int) -> None:
        self.key = key
        self.behind_bytes = behind_bytes
        self.link: PeerLink | None = None
        self.outbox = Outbox()
        self.is_behind = False
        self.answers: list[bytes] = []
        self._answer_bytes = 0
        self._answer_bytes_max = answer_bytes_max

    def keep(self, answer: bytes) -> None:
        """There is no link to it yet."""
        if self._answer_bytes + len(answer) <= self._answer_bytes_max:
            self.answers.append(answer)
            self._answer_bytes += len(answer)

    def take_answers(self) -> list[bytes]:
        """Take what waits; it waits no more."""
        answers, self.answers, self._answer_bytes = self.answers, [], 0
        return answers


class Post:
    """One sender's.

    `later` calls in the next turn; `tell_behind` is called with a key when an addressee begins to be behind (True), or
    ends. `serials`: the last forwarded call that went to each, by key: addressees come and go, and the calls' numbers
    go on.
    """

    def __init__(
        self,
        later: Callable[[Callable[[], None]], object],
        tell_behind: Callable[[int, bool], None],
    ) -> None:
        self._later = later
        self._tell_behind = tell_behind
        self.serials: dict[int, int] = {}
        self._to_send: list[Addressee] = []

    def add(self, to: Addressee, said: PeerMessage, frame: bytes) -> None:
        """Put it in for that one, whose link is open."""
        if not to.outbox:
            self._to_send.append(to)
        if isinstance(said, BULK):
            to.outbox.add_bulk(frame, said.calls[-1].serial if isinstance(said, Forward) else 0)
            self._see_whether_behind(to)
        else:
            to.outbox.add(frame)

    def send_all(self) -> None:
        """End the turn."""
        to_send, self._to_send = self._to_send, []
        for to in to_send:
            self.send(to)

    def send(self, to: Addressee) -> None:
        """Take what the cluster says, and of clients' requests so much as does not make that wait."""
        link, outbox = to.link, to.outbox
        if link is None or not link.is_open:
            return
        frames = outbox.take(is_full=link.is_full)
        if frames:
            self.serials[to.key] = max(self.serials.get(to.key, 0), outbox.serial)
            link.send(frames)
        self._see_whether_behind(to)
        if outbox.has_ready(is_full=link.is_full):
            self._to_send.append(to)
            self._later(self.send_all)

    def lost(self, to: Addressee) -> None:
        """Forget what waited: the link is gone."""
        to.link = None
        to.outbox.clear()
        self._see_whether_behind(to)

    def _see_whether_behind(self, to: Addressee) -> None:
        bulk_bytes = to.outbox.bulk_bytes
        is_behind = bulk_bytes > (to.behind_bytes // 2 if to.is_behind else to.behind_bytes)
        if is_behind != to.is_behind:
            to.is_behind = is_behind
            self._tell_behind(to.key, is_behind)
