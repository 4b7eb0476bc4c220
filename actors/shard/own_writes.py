"""Reads that stand behind what their own client has produced. A machine of the Broker's.

A produce with `replicate` below a majority is answered before its record is committed, and nobody sees its message
before that. So what the same client looks for next, and what it consumes, waits for that commit: it sees what it was
told is there. After `WAIT_S` it is done all the same: without a majority there is no commit.
"""

from collections import OrderedDict, deque
from typing import Final

from actors.messages.call import Call, Client
from quorate.protocol import Action

WAIT_S: Final = 1.0

SEE_MESSAGES: Final = frozenset(
    {
        *(Action.CONSUME, Action.WATCH, Action.MONITOR, Action.LIST, Action.PEEK, Action.SHOW, Action.SCAN),
        Action.FIND,
    }
)
"""The actions whose replies tell of messages that are there."""


class OwnWrites:
    """Of one shard. Times are the leader's (Unix seconds).

    `has_any`: a read may have to wait, or some do.
    """

    def __init__(self) -> None:
        self.has_any = False
        self._written: OrderedDict[Client, int] = OrderedDict()
        self._reads: deque[tuple[int, float, Call]] = deque()

    @property
    def next_event_at(self) -> float | None:
        """When the first read has waited for long enough; None: none waits."""
        return self._reads[0][1] if self._reads else None

    def written(self, client: Client, trans_id: int) -> None:
        """Note that a client is told of what record `trans_id` produces before that is committed."""
        self._written[client] = trans_id
        self._written.move_to_end(client)
        self.has_any = True

    def waits(self, call: Call, now: float) -> bool:
        """Whether a call waits for what its client has written, and keep it if so: `due` gives it back."""
        trans_id = self._written.get(call.client)
        if trans_id is None or call.request.action not in SEE_MESSAGES:
            return False
        self._reads.append((trans_id, now + WAIT_S, call))
        return True

    def due(self, committed: int, now: float) -> list[Call]:
        """Take the reads whose turn has come: what they wait for is committed, or they have waited for long enough."""
        written, reads = self._written, self._reads
        while written and next(iter(written.values())) <= committed:
            written.popitem(last=False)
        found: list[Call] = []
        while reads and (reads[0][0] <= committed or reads[0][1] <= now):
            found.append(reads.popleft()[2])
        self.has_any = bool(written or reads)
        return found

    def take_all(self) -> list[Call]:
        """Hand over the reads that wait; they do not go on here."""
        calls = [call for _, _, call in self._reads]
        self._reads.clear()
        self._written.clear()
        self.has_any = False
        return calls

    def take_of(self, client: Client) -> list[Call]:
        """Hand over a client's reads that wait."""
        calls = [call for _, _, call in self._reads if call.client is client]
        if calls:
            self._reads = deque([one for one in self._reads if one[2].client is not client])
        return calls
