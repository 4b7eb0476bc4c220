"""A produce to a virtual queue: one produce to each of its real queues, and one reply with all the ids."""

from typing import Final

import msgspec

from actors.messages.calls import Call
from quorate.protocol import Code, ErrorWord, RedirectReply, Reply

UNDONE: Final = frozenset({ErrorWord.REDIRECT, ErrorWord.NO_LEADER, ErrorWord.STOPPING})
"""What says that a copy was not done, and may be asked for again."""


class Gather:
    """A produce to a virtual queue that waits for its copies' replies; it is the client of each of them.

    If some refuse, the reply is the first refusal, and still names the ids of the copies that were stored.
    """

    def __init__(self, call: Call, size: int) -> None:
        self.call = call
        self._replies: list[Reply | None] = [None] * size
        self._missing = size

    def answer(self, order: int, reply: Reply) -> None:
        """The reply to the copy number `order`."""
        self._replies[order] = reply
        self._missing -= 1

    @property
    def is_complete(self) -> bool:
        """Whether all replies are there."""
        return not self._missing

    def reply(self) -> Reply:
        """The one reply to the produce."""
        request = self.call.request
        ids: list[int] = []
        refused: Reply | None = None
        for reply in self._replies:
            assert reply is not None
            if reply.code != Code.OK:
                refused = refused or reply
            elif reply.msg_ids is not None:
                ids += reply.msg_ids
            elif reply.msg_id is not None:
                ids.append(reply.msg_id)
        if isinstance(refused, RedirectReply) and not ids:
            return msgspec.structs.replace(refused, queue=request.queue, seq=request.seq)
        if refused is not None and refused.error in UNDONE and ids:
            refused.code, refused.error = Code.ERROR, ErrorWord.UNKNOWN_OUTCOME  # to do all of it again doubles some
        gathered = Reply(action=request.action, code=Code.OK, queue=request.queue, seq=request.seq)
        if refused is not None:
            gathered.code = refused.code
            gathered.error = refused.error
            gathered.reason = f"queue {refused.queue!r}: {refused.reason}; {len(ids)} of the copies are stored"
        gathered.msg_ids = ids
        gathered.msg_id = ids[0] if ids else None
        return gathered
