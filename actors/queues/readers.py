"""How far each named reader of the log is, kept in the log itself. A machine.

A reader says what it has for good; the log's head is not trimmed before that, within bounds
(`actors.disk.checkpointer`).
"""

from collections.abc import Callable
from typing import Final

from actors.messages.call import Call
from actors.shard.machine import Machine, ShardContext
from quorate.log_replies import PositionReply, ReaderRow
from quorate.protocol import Action, ErrorWord, done
from storage.records import Position, ReaderPosition

READERS_MAX: Final = 1000
FORGET: Final = "forget"


class Readers(Machine):
    """Answers the position action."""

    def __init__(self, context: ShardContext) -> None:
        self._ledger = context.ledger
        self._view = context.view

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.POSITION: self.position}

    def position(self, call: Call) -> None:
        """Note where a reader is, forget it, or tell where it is; without a `reader`, where all of them are."""
        request, ledger = call.request, self._ledger
        state = ledger.state
        known = state.facts.readers
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
        return [self._row(name, at) for name, at in sorted(self._ledger.state.facts.readers.items())]

    def _row(self, name: str, at: ReaderPosition) -> ReaderRow:
        lag = max(self._ledger.committed - at.upto, 0)
        return ReaderRow(name, at.upto, at.at, lag, max(self._view.trimmed - at.upto, 0))
