"""What time does to queues: something in them is due (`QueueAlarms`), or nobody uses them (`IdleQueues`). Machines.

`IdleQueues`: queues go when nobody has used them for as long as they are set to (`expires_after`). To use a queue is to
consume from it, to watch it, to wait for it, or to configure it; as long as messages of it are in flight it stays.
What only produces keeps no queue: those of workers that are gone would get replies for ever. When a queue was used
last stands in no record: a new leader knows nothing of it, and counts from when it looks for the first time. So a
queue may go later than it is set to, and never earlier.

A queue that was made by the first message of a client that configures none (`is_transient`) is another thing: it goes
when it is empty, nobody waits for it and nobody has used it at all for `idle_s`, and sooner where memory is short.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Final

from actors.shard.node_view import IDLE_S
from storage.queue_state import NEVER, QueueState

STALE_ALARMS_MAX: Final = 1000
"""So many alarms may be left over in any case, of queues that are gone and of those that were set anew."""


class QueueAlarms:
    """When something is to be looked at in which queue: one time for each, the earliest that it was set to. A machine.

    Times are Unix seconds.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}

    @property
    def next_at(self) -> float:
        """When `due` has something, `NEVER` if nothing is set; it may be of a queue that is gone."""
        return self._heap[0][0] if self._heap else NEVER

    def set(self, name: str, at: float) -> None:
        """Look at the queue at `at`, or earlier if that is set already."""
        if at < self._at.get(name, NEVER):
            self._at[name] = at
            heapq.heappush(self._heap, (at, name))
            if len(self._heap) > 2 * len(self._at) + STALE_ALARMS_MAX:
                self._heap = [(at, name) for name, at in self._at.items()]
                heapq.heapify(self._heap)

    def due(self, now: float) -> str | None:
        """Take a queue whose time has come, which is not set any more; None: there is none."""
        while self._heap and self._heap[0][0] <= now:
            at, name = heapq.heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                return name
        return None

    def forget(self, name: str) -> None:
        """Forget a queue that is gone."""
        self._at.pop(name, None)

    def first(self) -> tuple[str, float] | None:
        """Take the next queue, whose time may not have come, and that time; None: nothing is set."""
        while self._heap:
            at, name = heapq.heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                return name, at
        return None


class IdleQueues:
    """Of one broker. `is_waited_for` says whether somebody waits for a queue. All times are Unix seconds.

    `idle_s`: see above; 0: such queues stay.
    """

    def __init__(self, queues: dict[str, QueueState], is_waited_for: Callable[[str], bool], now: float) -> None:
        self.idle_s = IDLE_S
        self._queues = queues
        self._is_waited_for = is_waited_for
        self._used_at: dict[str, float | None] = {}
        self._alarms = QueueAlarms()
        for queue in queues.values():
            if queue.life.expires_after_s:
                self._used_at[queue.name] = None
                self._alarms.set(queue.name, now + queue.life.expires_after_s)

    @property
    def has_any(self) -> bool:
        """Whether it is to be told which queues are used."""
        return bool(self._used_at)

    def set_idle_s(self, idle_s: float, now: float) -> None:
        """So long a transient queue may be unused from now on."""
        self.idle_s = idle_s
        for queue in self._queues.values():
            if queue.life.is_transient and not queue.life.expires_after_s:
                self._alarms.set(queue.name, max(queue.life.used_at, now) + (idle_s or IDLE_S))

    def made(self, queue: QueueState, now: float) -> None:
        """Note that a queue is there that goes when it is empty."""
        queue.life.used_at = now
        self._alarms.set(queue.name, now + (self.idle_s or IDLE_S))

    def short(self, now: float, count: int) -> list[str]:
        """Memory is short: transient queues that are empty are to go at once, at most `count`, the least used first.

        Twice as many are looked at: the alarm of one that was used since it was set is set anew, behind others'.
        """
        gone: list[str] = []
        left: list[tuple[str, float]] = []
        idle_s = self.idle_s or IDLE_S
        for _ in range(2 * count):
            found = self._alarms.first() if len(gone) < count else None
            if found is None:
                break
            name, at = found
            queue = self._queues.get(name)
            if queue is None:
                continue
            if not queue.life.is_transient or queue.life.expires_after_s:
                left.append(found)
            elif not self._is_free(queue):
                left.append((name, now + idle_s))
            elif queue.life.used_at + idle_s > at:
                self._alarms.set(name, queue.life.used_at + idle_s)
            else:
                gone.append(name)
        for name, at in left:
            self._alarms.set(name, at)
        return gone

    @property
    def next_event_at(self) -> float:
        """When `due` has something to look at; `NEVER` if it has not."""
        return self._alarms.next_at

    def configured(self, queue: QueueState, now: float) -> None:
        """Its settings may be others."""
        if queue.life.expires_after_s:
            self._used_at[queue.name] = now
            self._alarms.set(queue.name, now + queue.life.expires_after_s)
        elif queue.life.is_transient:
            self._used_at.pop(queue.name, None)
            self.made(queue, now)
        else:
            self.forget(queue.name)

    def used(self, names: Iterable[str], now: float) -> None:
        """Somebody has asked for these queues, or has waited for them until now."""
        for name in names:
            if name in self._used_at:
                self._used_at[name] = now

    def forget(self, name: str) -> None:
        """Forget it: it is gone, or stays."""
        self._used_at.pop(name, None)
        self._alarms.forget(name)

    def _is_free(self, queue: QueueState) -> bool:
        is_set = queue.paused or queue.paused_in_at > 0
        return not queue.size and not is_set and not self._is_waited_for(queue.name)

    def _is_unused(self, queue: QueueState, now: float) -> bool:
        """Whether a transient queue is to go; else it is looked at again."""
        idle_s = self.idle_s
        if not idle_s or not self._is_free(queue):
            self._alarms.set(queue.name, now + (idle_s or IDLE_S))
        elif queue.life.used_at + idle_s > now:
            self._alarms.set(queue.name, queue.life.used_at + idle_s)
        else:
            self._alarms.forget(queue.name)
            return True
        return False

    def due(self, now: float, count: int) -> list[str]:
        """Those that are to go now; at most `count` queues are looked at."""
        gone: list[str] = []
        while count > 0 and (name := self._alarms.due(now)) is not None:
            count -= 1
            queue = self._queues.get(name)
            if queue is None or not (queue.life.expires_after_s or queue.life.is_transient):
                self.forget(name)
                continue
            if not queue.life.expires_after_s:
                if self._is_unused(queue, now):
                    gone.append(name)
                continue
            used_at = self._used_at.get(name)
            if used_at is None or queue.in_flight or self._is_waited_for(name):
                used_at = self._used_at[name] = now
            if used_at + queue.life.expires_after_s > now:
                self._alarms.set(name, used_at + queue.life.expires_after_s)
                continue
            self.forget(name)
            gone.append(name)
        return gone
