"""What is to be known of a shard's state to trim the log's head. A machine.

The Checkpointer asks what the messages and queues of the log's first stretch are now, and is told it only once it is
committed; where the log's readers are it is told unasked. A leader's state runs ahead of what is committed: what it
says waits for that. A follower's is committed, unless the node has just stopped leading: then it waits until the log
has caught up with it. It is looked up in pieces.
"""

from collections.abc import Generator

from actors.messages.checkpoints import DescribeHead, HeadDescribed, ReadersMoved
from actors.shard.ledger import Ledger
from storage.records import ReaderPosition
from storage.state import ShardState
from storage.trimming import Trim, describing


class HeadRows:
    """`is_ready`: something may be taken; `has_more`: `describe` has begun and goes on. `readers`: as seen last."""

    def __init__(self) -> None:
        self._asked: DescribeHead | None = None
        self._describing: Generator[None, None, Trim] | None = None
        self._state: ShardState | None = None
        self._ready: list[HeadDescribed | ReadersMoved] = []
        self.is_ready = False
        self.readers: dict[str, ReaderPosition] | None = None

    @property
    def has_more(self) -> bool:
        """Whether there is a piece more to be looked up."""
        return self._describing is not None

    def asked(self, message: DescribeHead) -> None:
        """Answer it as soon as that is possible."""
        self._asked = message
        self._describing = None

    def dropped(self) -> None:
        """Look it up in the next state: the one that was looked at is not the log's."""
        self._describing = None

    def describe(self, ledger: Ledger, *, is_leading: bool) -> None:
        """Look up one piece of what was asked, if anything was; in a new state from the beginning."""
        asked, state = self._asked, ledger.state
        if asked is None or (not is_leading and not ledger.is_settled):
            self._describing = None
            return
        steps = self._describing
        if steps is None or self._state is not state:
            if not state.stretches.drop_trimmed(asked.trimmed):
                return  # LMDB holds another log by now, whose state is on its way
            stretch = state.stretches.first(asked.until)
            if stretch is None:
                self._settled(asked, HeadDescribed(asked, None, state.trans_id))
                return
            self._describing = steps = describing(stretch, state)
            self._state = state
        try:
            next(steps)
        except StopIteration as end:
            trim: Trim = end.value
        else:
            return
        self._describing = self._state = None
        if state.facts.readers is not self.readers:
            self.readers_moved(ledger)  # who reads is said before what may go
        described = HeadDescribed(asked, trim, state.trans_id)
        ledger.after_commit(lambda: self._settled(asked, described))

    def _settled(self, asked: DescribeHead, described: HeadDescribed) -> None:
        if self._asked is asked:
            self._asked = None
            self._say(described)

    def readers_moved(self, ledger: Ledger) -> None:
        """Note that the readers are others than those that were seen."""
        self.readers = readers = ledger.state.facts.readers
        ledger.after_commit(lambda: self._say(ReadersMoved(readers)))

    def _say(self, message: HeadDescribed | ReadersMoved) -> None:
        self._ready.append(message)
        self.is_ready = True

    def take_ready(self) -> list[HeadDescribed | ReadersMoved]:
        """Hand over what may be said; it is the caller's now."""
        ready, self._ready = self._ready, []
        self.is_ready = False
        return ready
