"""Who waits for which queue, in which order, and who was told of a message that nobody has taken yet. A machine.

A consumer that waits takes a message when its turn comes. One that only watches is told of it, takes nothing, and has
it kept from those that wait behind it until it has asked for it, says that it does not want it (its client is gone), or
`OFFER_S` are over. So of a thousand that watch one queue only one comes for a message.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from sortedcontainers import SortedList

from actors.messages.call import Call, Client, is_strangers
from quorate.protocol import Reply
from storage.message import Message, marks_bytes
from storage.queue_state import NEVER, QueueState
from storage.records import Encoding

OFFER_S: Final = 1.0
"""For so long a message is kept from those in line for one who was told of it: some requests' way there and back."""


class Waiter:
    """A consumer that waits: for any of `queues`, in that order of preference, until `deadline` (Unix seconds).

    `counts`: for the limits on how many may wait; one that has left does not, though it is still in line.
    """

    __slots__ = ("call", "count", "counts", "deadline", "is_strangers", "only_watches", "queues", "serial")

    def __init__(
        self, call: Call, queues: list[str], count: int | None, deadline: float, *, only_watches: bool = False
    ) -> None:
        self.call = call
        self.queues = queues
        self.count = count
        self.deadline = deadline
        self.only_watches = only_watches
        self.serial = 0
        self.counts = True
        self.is_strangers = is_strangers(call)


class WaitQueues:
    """One line a queue; a waiter may stand in several. Times are Unix seconds."""

    def __init__(self) -> None:
        self._lines: dict[str, OrderedDict[int, Waiter]] = {}
        self._by_client: dict[Client, dict[int, Waiter]] = {}
        self._deadlines: SortedList[tuple[float, int]] = SortedList()
        self._waiters: dict[int, Waiter] = {}
        self._last_serial = 0
        self._told: dict[str, OrderedDict[Client, float]] = {}
        self._told_of: dict[Client, dict[str, None]] = {}
        self.named = self.named_by_strangers = 0

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    def __len__(self) -> int:
        return len(self._waiters)

    def stand(self, waiter: Waiter) -> None:
        """At the end of its queues' lines."""
        self._last_serial += 1
        waiter.serial = self._last_serial
        self._enter(waiter)

    def _enter(self, waiter: Waiter) -> None:
        self._waiters[waiter.serial] = waiter
        self._deadlines.add((waiter.deadline, waiter.serial))
        self._by_client.setdefault(waiter.call.client, {})[waiter.serial] = waiter
        if waiter.counts:
            self.named += len(waiter.queues)
            if waiter.is_strangers:
                self.named_by_strangers += len(waiter.queues)
        for name in waiter.queues:
            self._lines.setdefault(name, OrderedDict())[waiter.serial] = waiter

    def withdraw(self, call: Call) -> None:
        """Forget all of a call that raised while it was put in line, however far that came."""
        if call.client not in self._by_client and all(waiter.call is not call for waiter in self._waiters.values()):
            return
        others = [waiter for waiter in self._waiters.values() if waiter.call is not call]
        self._lines.clear()
        self._by_client.clear()
        self._deadlines.clear()
        self._waiters.clear()
        self.named = self.named_by_strangers = 0
        for waiter in others:
            self._enter(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Out of all lines."""
        del self._waiters[waiter.serial]
        self._deadlines.remove((waiter.deadline, waiter.serial))
        mine = self._by_client[waiter.call.client]
        del mine[waiter.serial]
        if not mine:
            del self._by_client[waiter.call.client]
        self._discount(waiter)
        for name in waiter.queues:
            line = self._lines.get(name)
            if line is not None:
                line.pop(waiter.serial, None)
                if not line:
                    del self._lines[name]

    def _discount(self, waiter: Waiter) -> None:
        if waiter.counts:
            waiter.counts = False
            self.named -= len(waiter.queues)
            if waiter.is_strangers:
                self.named_by_strangers -= len(waiter.queues)

    def discount(self, client: Client) -> None:
        """Note that a client has left: what it waits for keeps nobody else from waiting."""
        for waiter in self._by_client.get(client, {}).values():
            self._discount(waiter)

    def are_strangers(self, client: Client) -> bool:
        """Whether some of a client's wait that it has asked for as a stranger."""
        return any(waiter.is_strangers for waiter in self._by_client.get(client, {}).values())

    def first(self, name: str) -> Waiter | None:
        """Whose turn it is."""
        line = self._lines.get(name)
        return next(iter(line.values())) if line else None

    def in_line(self, name: str) -> list[Waiter]:
        """List those who wait for a queue, in their order."""
        line = self._lines.get(name)
        return [] if line is None else list(line.values())

    def names(self) -> list[str]:
        """List the lines in which somebody stands."""
        return [*self._lines]

    def length(self, name: str) -> int:
        """How many wait for a queue."""
        return len(self._lines.get(name, ()))

    def all(self) -> list[Waiter]:
        """Everybody, in the order in which they came."""
        return list(self._waiters.values())

    def count_of(self, client: Client) -> int:
        """How many of a client's wait."""
        return len(self._by_client.get(client, ()))

    def names_of(self, client: Client) -> int:
        """For how many queues a client's wait, each one's counted."""
        return sum([len(waiter.queues) for waiter in self._by_client.get(client, {}).values()])

    def of_client(self, client: Client) -> list[Waiter]:
        """Make a client's."""
        return list(self._by_client.get(client, {}).values())

    def find(self, client: Client, seq: object) -> Waiter | None:
        """Find the wait of that client's request."""
        return next((waiter for waiter in self.of_client(client) if waiter.call.request.seq == seq), None)

    @property
    def next_deadline(self) -> float:
        """When the first has waited for long enough; `NEVER` if nobody waits."""
        return self._deadlines[0][0] if self._waiters else NEVER

    def late(self, now: float) -> Iterable[Waiter]:
        """Those that have waited for long enough; each is to leave before the next is asked for."""
        while self._deadlines and self._deadlines[0][0] <= now:
            yield self._waiters[self._deadlines[0][1]]

    # -- who was told ------------------------------------------------------------------------------------------

    @property
    def has_told(self) -> bool:
        """Whether anybody was told of a message and has not come for it."""
        return bool(self._told)

    def tell(self, name: str, client: Client, now: float) -> float:
        """Tell a client of a message of the queue; returns until when that message is kept for it."""
        told = self._told.setdefault(name, OrderedDict())
        told[client] = until = now + OFFER_S
        told.move_to_end(client)
        self._told_of.setdefault(client, {})[name] = None
        return until

    def untold(self, queue: QueueState, now: float) -> int:
        """How many messages of the queue are ready that nobody was told of."""
        ready = len(queue.ready)
        return ready - self.told(queue.name, now) if self.has_told else ready

    def told(self, name: str, now: float) -> int:
        """How many messages of the queue are kept for those that were told."""
        told = self._told.get(name)
        if not told:
            return 0
        while told:
            client, until = next(iter(told.items()))
            if until > now:
                return len(told)
            del told[client]
            self._forget_told(client, name)
        del self._told[name]
        return 0

    def _forget_told(self, client: Client, name: str) -> None:
        names = self._told_of[client]
        del names[name]
        if not names:
            del self._told_of[client]

    def told_until(self, name: str) -> float:
        """When the first message of the queue is not kept any more; `NEVER` if none is."""
        told = self._told.get(name)
        return next(iter(told.values())) if told else NEVER

    def came(self, client: Client) -> list[str]:
        """Note that the client has asked, or wants nothing any more; returns the queues that it was told of."""
        names = [*self._told_of.pop(client, ())]
        for name in names:
            del self._told[name][client]
            if not self._told[name]:
                del self._told[name]
        return names


ESCAPED: Final = 6
"""A plain byte takes so many at most in a JSON string."""

REPLY_BYTES: Final = 110
"""What a reply needs beside one message's data and its queue's name, which may be twice as long in JSON."""


FULL_BYTES: Final = 1500
"""What a reply needs besides for all that `full` tells of a message: its key and its consumer, six bytes a character
at worst, and numbers."""


def most_reply_bytes(message: Message, *, is_full: bool) -> int:
    """Reckon what a reply with this message has at most."""
    size = len(message.data) * (ESCAPED if message.encoding == Encoding.PLAIN else 1)
    if message.marks is not None:
        size += 2 * marks_bytes(message.marks)
    if is_full:
        size += FULL_BYTES + (0 if message.key is None else ESCAPED * len(message.key))
    return size + REPLY_BYTES + 2 * len(message.queue.encode())


def nothing(call: Call, names: list[str]) -> Reply:
    """As the original says it; whoever watches goes by `count`."""
    return Reply(action=call.request.action, code=0, queue=names[0], seq=call.request.seq)
