"""What a shard's state knows of the log's head: how far its readers are, and what is to be known to trim it.

`Readers`, a part of the broker: how far each named reader of the log is, kept in the log itself. A reader says what
it has for good; the log's head is not trimmed before that, within bounds (`actors.disk.checkpointer`).

`HeadRows`, a machine: what the Checkpointer has to know to trim the head, said only once it is committed. It asks
what the messages and queues of the log's first stretch are now; where the log's readers are it is told unasked. A
leader's state runs ahead of what is committed: what it says waits for that. A follower's is committed, unless the
node has just stopped leading: then it waits until the log has caught up with it. It is looked up in pieces.
"""

from typing import Final

from actors.messages.call import Call
from actors.messages.checkpoints import DescribeHead, HeadDescribed, ReadersMoved
from actors.queues.ledger import Ledger
from actors.queues.node_view import NodeView
from quorate.log_replies import PositionReply, ReaderRow
from quorate.protocol import ErrorWord, done
from storage.records import READERS_LEVEL, Position, ReaderPosition
from storage.trimming import Describing

READERS_MAX: Final = 1000
FORGET: Final = "forget"


class Readers:
    """Answers the position action. `view` knows what the log still holds."""

    def __init__(self, ledger: Ledger, view: NodeView) -> None:
        self._ledger = ledger
        self._view = view

    def position(self, call: Call) -> None:
        """Note where a reader is, forget it, or tell where it is; without a `reader`, where all of them are."""
        request, ledger = call.request, self._ledger
        state = ledger.state
        known = state.readers
        if request.shard not in (None, state.messages.shard):
            return ledger.refuse_field(call, "shard", f"names none of this node's: there is no shard {request.shard}")
        if request.command not in (None, FORGET):
            return ledger.refuse_field(call, "command", f"{request.command!r} is none of {FORGET}")
        if request.reader is None:
            if request.command is not None or request.trans_id is not None:
                return ledger.refuse_field(call, "reader", "is missing")
            return ledger.answer_when_committed(
                call, done(request, PositionReply, shard=state.messages.shard, readers=self.rows())
            )
        if request.reader not in known and (request.trans_id is None or request.command is not None):
            return ledger.refuse(call, ErrorWord.NO_SUCH_READER, f"there is no reader {request.reader!r}")
        if request.command is None and request.trans_id is None:
            at = known[request.reader].upto
            return ledger.answer_when_committed(
                call, done(request, PositionReply, shard=state.messages.shard, trans_id=at)
            )
        if ledger.level < READERS_LEVEL:
            reason = f"the cluster is at feature level {ledger.level}, readers need {READERS_LEVEL}"
            return ledger.refuse(call, ErrorWord.NOT_SUPPORTED, f"{reason}: see qctl cluster upgrade")
        if request.command == FORGET:
            upto = None
        elif (upto := request.trans_id) is not None and upto > ledger.committed:
            return ledger.refuse_field(
                call, "trans_id", f"is {upto}, and records up to {ledger.committed} are committed"
            )
        elif request.reader not in known and len(known) >= READERS_MAX:
            return ledger.refuse(call, ErrorWord.LIMIT, f"there are {READERS_MAX} readers already")
        if request.reader not in known or known[request.reader].upto != upto:
            ledger.append(Position("", request.reader, upto, ledger.now))
        return ledger.answer_when_committed(
            call, done(request, PositionReply, shard=state.messages.shard, trans_id=upto)
        )

    def rows(self) -> list[ReaderRow]:
        """All readers, in the order of their names."""
        return [self._row(name, at) for name, at in sorted(self._ledger.state.readers.items())]

    def _row(self, name: str, at: ReaderPosition) -> ReaderRow:
        lag = max(self._ledger.committed - at.upto, 0)
        return ReaderRow(name, at.upto, at.at, lag, max(self._view.trimmed - at.upto, 0))


class HeadRows:
    """`is_ready`: something may be taken; `has_more`: `describe` has begun and goes on. `readers`: as seen last."""

    def __init__(self) -> None:
        self._asked: DescribeHead | None = None
        self._describing: Describing | None = None
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
        describing = self._describing
        if describing is None or describing.state is not state:
            if not state.stretches.drop_trimmed(asked.trimmed):
                return  # LMDB holds another log by now, whose state is on its way
            stretch = state.stretches.first(asked.until)
            if stretch is None:
                self._settled(asked, HeadDescribed(asked, None, state.trans_id))
                return
            self._describing = describing = Describing(stretch, state)
        if not describing.go_on():
            return
        self._describing = None
        if state.readers is not self.readers:
            self.readers_moved(ledger)  # who reads is said before what may go
        described = HeadDescribed(asked, describing.described(), state.trans_id)
        ledger.after_commit(lambda: self._settled(asked, described))

    def _settled(self, asked: DescribeHead, described: HeadDescribed) -> None:
        if self._asked is asked:
            self._asked = None
            self._say(described)

    def readers_moved(self, ledger: Ledger) -> None:
        """Note that the readers are others than those that were seen."""
        self.readers = readers = ledger.state.readers
        ledger.after_commit(lambda: self._say(ReadersMoved(readers)))

    def _say(self, message: HeadDescribed | ReadersMoved) -> None:
        self._ready.append(message)
        self.is_ready = True

    def take_ready(self) -> list[HeadDescribed | ReadersMoved]:
        """Hand over what may be said; it is the caller's now."""
        ready, self._ready = self._ready, []
        self.is_ready = False
        return ready
