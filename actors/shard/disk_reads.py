"""Questions about messages of topics that are in blocks: the BlockReader answers them in a later turn."""

from collections import deque
from collections.abc import Callable
from itertools import count as counting
from typing import Final, NamedTuple

from actors.messages.blocks import ReadBlocks
from actors.messages.call import Call, Client
from storage.block_rows import Stored, Wanted

READS_MAX: Final = 1000
"""So many may be under way, with those that are not asked yet."""

ASKED_MAX: Final = 8
"""So many are asked at once: each answer may have a megabyte, and the reader is quicker than those who take them."""

_serials: Final = counting(1)
"""Of all shards and states of this process: an answer to a state that is gone is none to the next one's question."""


class DiskRead(NamedTuple):
    """What is done with an answer: `then`. `call` waits for it; None: none does."""

    call: Call | None
    then: Callable[[Stored], None]


class DiskReads:
    """Of one shard's machines."""

    def __init__(self) -> None:
        self._to_ask: deque[ReadBlocks] = deque()
        self._asked: set[int] = set()
        self._open: dict[int, DiskRead] = {}

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
        serial = next(_serials)
        self._open[serial] = DiskRead(call, then)
        self._to_ask.append(ReadBlocks(serial, wanted, count, bytes_max, is_raw))

    def take_asks(self) -> list[ReadBlocks]:
        """Take what is to be asked now; the rest when these are answered."""
        taken: list[ReadBlocks] = []
        while self._to_ask and len(self._asked) < ASKED_MAX:
            ask = self._to_ask.popleft()
            if ask.serial in self._open:  # somebody still wants it
                self._asked.add(ask.serial)
                taken.append(ask)
        return taken

    def take(self, serial: int) -> DiskRead | None:
        """Take what is to be done with an answer; None: nobody wants it any more."""
        self._asked.discard(serial)
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
