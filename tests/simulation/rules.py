"""What the committed log must say, whoever led: rules of delivery that no client can see broken for certain.

An independent reading of the records, one after the other: what a message's deliveries count, until when it is in
flight, when it may end.
"""

from dataclasses import dataclass
from typing import Any

from storage.records import (
    Bury,
    Clear,
    Configure,
    Confirm,
    Deliver,
    Expire,
    Extend,
    Move,
    Produce,
    Record,
    Release,
    Remove,
    Take,
)
from storage.state import ShardState

WORK = "{w}"
DEAD = "{w}.dead"
DROPS = "{w}.drops"
QUEUES = [WORK, DEAD, DROPS]
IDLE = "{w}.idle"
IDLE_S = 8.0
"""The workers' queues; `IDLE` goes when nobody has used it for so long."""

GATHERED_S = 5.0
"""So long at most before its entry's time a record was made, or when the entry before it was: while a log stands still,
records gather for as long as that takes."""

EXTEND_S = 10.0
"""A worker extends by this."""


@dataclass
class Known:
    """A live message, by the log. `flies_until` (leader's time): 0 where it is not in flight."""

    queue: str
    expires_at: float
    is_dropped: bool
    deliveries: int = 0
    flies_until: float = 0.0


class Rules:
    """Of one shard's log. `confirmed`: at how many deliveries each message was confirmed."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.confirmed: dict[int, int] = {}
        self._live: dict[int, Known] = {}
        self._used_at: dict[str, float] = {}
        self._time = self._before = 0.0

    def _earliest(self, time: float) -> float:
        """When a record may have been made whose entry is of that time, the one that is looked at."""
        return min(time - GATHERED_S, self._before)

    def check(self, record: Record, time: float, state: ShardState) -> None:
        """One record of an entry of that time; `state` is that behind it."""
        if time != self._time:
            self._before, self._time = self._time, time
        if isinstance(record, Produce):
            marks = record.all_marks() or {}
            self._live[record.msg_id] = Known(record.queue, record.expires_at, "expire" in marks)
        elif isinstance(record, Deliver):
            self._used_at[record.queue] = self._earliest(time)
            for msg_id, due_at, count in zip(record.msg_ids, record.due_ats, record.deliveries, strict=True):
                self._delivered(msg_id, time)
                if (one := self._live.get(msg_id)) is not None:
                    one.deliveries, one.flies_until = count, due_at
        elif isinstance(record, Extend):
            for msg_id, due_at in zip(record.msg_ids, record.due_ats, strict=True):
                if (one := self._live.get(msg_id)) is None:
                    continue
                one.flies_until = due_at
                if one.queue in QUEUES and due_at < self._earliest(time) + EXTEND_S:
                    self.problems.append(f"message {msg_id} was extended by {due_at - time} s, and not by {EXTEND_S}")
        elif isinstance(record, Release):
            for msg_id in record.msg_ids:
                if (one := self._live.get(msg_id)) is not None:
                    one.flies_until = 0.0
        elif isinstance(record, Bury):
            self._buried(record, time, state)
        elif isinstance(record, Move):
            for msg_id in record.msg_ids:
                if (one := self._live.get(msg_id)) is not None:
                    self._ended(msg_id, one, time)
                    one.queue, one.deliveries, one.flies_until = record.to, 0, 0.0
        elif isinstance(record, Confirm | Take | Expire | Clear):
            self._gone(record, time)
        elif isinstance(record, Configure):
            self._used_at[record.queue] = self._earliest(time)
        elif isinstance(record, Remove) and record.queue == IDLE and (time < self._used_at.get(IDLE, 0.0) + IDLE_S):
            self.problems.append(f"queue {IDLE} went at {time}, and was used at {self._used_at[IDLE]} or later")

    def _delivered(self, msg_id: int, time: float) -> None:
        one = self._live.get(msg_id)
        if one is None:
            return
        if time < one.flies_until:
            self.problems.append(f"message {msg_id} was delivered at {time}, in flight until {one.flies_until}")
        if one.is_dropped and self._earliest(time) >= one.expires_at:
            self.problems.append(f"message {msg_id} was delivered at {time}, to be dropped at {one.expires_at}")

    def _gone(self, record: Confirm | Take | Expire | Clear, time: float) -> None:
        for msg_id in record.msg_ids:
            one = self._live.pop(msg_id, None)
            if one is None:
                continue
            if isinstance(record, Confirm):
                self.confirmed[msg_id] = one.deliveries
            elif isinstance(record, Take):
                self._used_at[record.queue] = self._earliest(time)
                if one.is_dropped and self._earliest(time) >= one.expires_at:
                    self.problems.append(f"message {msg_id} was taken at {time}, to be dropped at {one.expires_at}")
            elif isinstance(record, Expire):
                self._ended(msg_id, one, time)
                if not one.deliveries and not (one.is_dropped and time >= one.expires_at):
                    self.problems.append(f"message {msg_id} was dropped at {time} and nobody had seen it")

    def _ended(self, msg_id: int, one: Known, time: float) -> None:
        if time < one.flies_until:
            self.problems.append(f"message {msg_id} was ended at {time}, in flight until {one.flies_until}")

    def _buried(self, record: Bury, time: float, state: ShardState) -> None:
        for index, msg_id in enumerate(record.msg_ids):
            one = self._live.get(msg_id)
            if one is None:
                continue
            if record.reason is None:
                self._ended(msg_id, one, time)
            dead: dict[str, Any] = {"queue": one.queue, "at": record.due_ats[index], "deliveries": one.deliveries}
            if record.reason is not None:
                dead["reason"] = record.reason
            message = state.messages.get(msg_id)
            if record.deliveries is not None and message is not None and (message.marks or {}).get("dead") != dead:
                self.problems.append(f"dead letter {msg_id} says {message.marks}, and it was {dead}")
            one.queue, one.deliveries, one.flies_until, one.is_dropped = record.to, 0, 0.0, False
