"""Queues that go when nobody has used them for as long as they are set to (`expires_after`). A machine.

To use a queue is to consume from it, to watch it, to wait for it, or to configure it; as long as messages of it are in
flight it stays. What only produces keeps no queue: those of workers that are gone would get replies for ever. When a
queue was used last stands in no record: a new leader knows nothing of it, and counts from when it looks for the first
time. So a queue may go later than it is set to, and never earlier.

A queue that was made by the first message of somebody who configures none (`is_transient`) is another thing: it goes
when it is empty, nobody waits for it and nobody has used it at all for `idle_s`, and sooner where memory is short.
"""

from collections.abc import Callable, Iterable
from typing import Final

from actors.queues.clocks import QueueAlarms
from storage.queue_state import QueueState

IDLE_S: Final = 300.0


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
        """Memory is short: those of the next `count` that are transient and empty are to go at once."""
        gone: list[str] = []
        for name in self._alarms.some(count):
            queue = self._queues.get(name)
            if queue is not None and queue.life.is_transient and self._is_free(queue):
                gone.append(name)
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
