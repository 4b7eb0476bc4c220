"""LogWriter: makes entries durable, in the shard's journal. The only one that writes it.

On a thread of its own, since it waits for the disk. While one flush runs, requests gather at the owner; the next
`Append` brings them all as one entry. With `flush_each` False nothing is flushed but by `Flush`: what was appended
survives the process's death, and a power cut loses what came after the last `Flush`.
"""

from queue import SimpleQueue
from typing import Any

from pykka._actor import ActorInbox

from actors.messages import Append, Appended, AppendRefused, Flush, Recycle
from actors.runtime import BlockingActor, Runtime
from storage.errors import DiskFullError
from storage.journal import Journal


class LogWriter(BlockingActor):
    """Owns a journal that has begun."""

    def __init__(self, runtime: Runtime, journal: Journal, flush_each: bool) -> None:
        super().__init__(runtime)
        self._journal = journal
        self._flush_each = flush_each

    @staticmethod
    def _create_actor_inbox() -> ActorInbox:
        return SimpleQueue()  # half the cost of queue.Queue, and nothing here joins it

    def on_receive(self, message: Any) -> None:
        """Dispatch."""
        if isinstance(message, Append):
            self._append(message)
        elif isinstance(message, Flush):
            self._journal.flush()
        elif isinstance(message, Recycle):
            self._journal.recycle(message.trans_id)
        else:
            raise TypeError(message)

    def on_stop(self) -> None:
        """Flush and close."""
        self._journal.close()

    def _append(self, message: Append) -> None:
        journal = self._journal
        appended = 0
        refused: AppendRefused | None = None
        for index, (last_trans_id, data) in enumerate(message.entries):
            try:
                journal.append(data, last_trans_id)
            except DiskFullError as error:
                refused = AppendRefused(message.entries[index:], str(error))
                break
            appended = last_trans_id
        if appended:
            if self._flush_each:
                journal.flush()
            message.reply_to.tell(Appended(appended, journal.room_bytes))
        if refused is not None:
            message.reply_to.tell(refused)
