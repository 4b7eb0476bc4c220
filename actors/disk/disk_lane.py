"""DiskLane: a thread that waits for the disk, so that nobody else has to. Does what it is told, in order."""

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from pykka._actor import ActorInbox

from actors.messages.disk import (
    BytesWritten,
    ErrandFailed,
    FileFlushed,
    FlushFile,
    IdentitySaved,
    RunErrand,
    SaveIdentity,
    SegmentReady,
    WriteBytes,
)
from actors.runtime.blocking import BlockingActor
from actors.runtime.contract import Runtime
from storage.disk import Folder
from storage.errors import DiskFullError
from storage.journal_writer import run_errand
from storage.vote_file import VoteFile


class DiskLane(BlockingActor):
    """The LogWriter's and the Elector's way to the disk. `alignment` is that of the journal's frames."""

    def __init__(self, runtime: Runtime, folder: Folder, alignment: int, vote_file: VoteFile) -> None:
        super().__init__(runtime)
        self._vote_file = vote_file
        self._folder = folder
        self._alignment = alignment
        self._handlers: dict[type, Callable[[Any], None]] = {
            WriteBytes: self._write,
            FlushFile: self._flush,
            SaveIdentity: self._save,
            RunErrand: self._run_errand,
        }

    @staticmethod
    def _create_actor_inbox() -> ActorInbox:
        return SimpleQueue()  # half the cost of queue.Queue, and nothing here joins it

    def on_receive(self, message: Any) -> None:
        """Dispatch."""
        self._handlers[type(message)](message)

    def _write(self, message: WriteBytes) -> None:
        write = message.write
        write.file.write_durably_at(write.offset, write.data)
        message.reply_to.tell(BytesWritten(write))

    def _flush(self, message: FlushFile) -> None:
        message.file.flush()
        message.reply_to.tell(FileFlushed(message.file, message.end))

    def _save(self, message: SaveIdentity) -> None:
        self._vote_file.save(message.identity)
        message.reply_to.tell(IdentitySaved(message.identity))

    def _run_errand(self, message: RunErrand) -> None:
        try:
            segment = run_errand(self._folder, message.errand, self._alignment)
        except DiskFullError as error:
            message.reply_to.tell(ErrandFailed(str(error)))
        else:
            message.reply_to.tell(SegmentReady(segment))
