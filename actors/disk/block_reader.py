"""BlockReader: reads the messages of topics from LMDB. Its thread is its own, since the Checkpointer waits."""

from collections.abc import Callable
from typing import Any

from actors.messages.blocks import BlocksRead, ReadBlocks
from actors.messages.lifecycle import Attach
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToQueueOwner
from actors.runtime.blocking import BlockingActor
from actors.runtime.contract import Runtime
from storage.block_rows import read_stored
from storage.log_store import LogStore


class BlockReader(BlockingActor):
    """Of one shard. Of `store` it uses the tables alone, to read."""

    def __init__(self, runtime: Runtime, store: LogStore) -> None:
        super().__init__(runtime)
        self._store = store
        self._owner: Mailbox[ToQueueOwner]
        self._handlers: dict[type, Callable[[Any], None]] = {Attach: self._attach, ReadBlocks: self._read}

    def on_receive(self, message: Any) -> None:
        """Dispatch."""
        self._handlers[type(message)](message)

    def _attach(self, message: Attach) -> None:
        self._owner = message.owner

    def _read(self, message: ReadBlocks) -> None:
        with self._store.tables.read_beside() as transaction:
            stored = read_stored(transaction, message.wanted, message.count, message.bytes_max, is_raw=message.is_raw)
        self._owner.tell(BlocksRead(message.serial, stored))
