"""Questions about messages of topics that are in blocks: the BlockReader answers them in a later turn."""

from collections.abc import Callable
from typing import Final, NamedTuple

from actors.messages.blocks import ReadBlocks
from actors.messages.call import Call, Client
from storage.block_rows import Stored, Wanted

READS_MAX: Final = 1000
"""So many may be under way."""


class DiskRead(NamedTuple):
    """What is done with an answer: `then`. `call` waits for it; None: none does."""

    call: Call | None
    then: Callable[[Stored], None]


class DiskReads:
    """Of one shard's machines. `asks`: what the owner is to send, and empties."""

    def __init__(self) -> None:
        self.asks: list[ReadBlocks] = []
        self._open: dict[int, DiskRead] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether no more may be asked."""
        return len(self._open) >= READS_MAX

    def ask(
        self,
        call: Call | None,
        wanted: Wanted,
        then: Callable[[Stored], None],
        *,
        count: int = 1,
        bytes_max: int = 1,
        is_raw: bool = False,
    ) -> None:
        """Have `then` called with what blocks have of that."""
        self._serial += 1
        self._open[self._serial] = DiskRead(call, then)
        self.asks.append(ReadBlocks(self._serial, wanted, count, bytes_max, is_raw))

    def take(self, serial: int) -> DiskRead | None:
        """Take what is to be done with an answer; None: nobody wants it any more."""
        return self._open.pop(serial, None)

    def withdraw(self, call: Call) -> None:
        """Forget what a call asked that raised."""
        self._forget(lambda other: other is call)

    def forget(self, client: Client) -> None:
        """Forget what a client asked that is gone."""
        self._forget(lambda call: call.client is client)

    def _forget(self, is_meant: Callable[[Call], bool]) -> None:
        for serial, read in [*self._open.items()]:
            if read.call is not None and is_meant(read.call):
                del self._open[serial]

    def take_calls(self) -> list[Call]:
        """Take the calls that wait: nothing is done for them here any more."""
        calls = [read.call for read in self._open.values() if read.call is not None]
        self._open.clear()
        return calls
