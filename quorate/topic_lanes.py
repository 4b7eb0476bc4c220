"""Which message of a topic is worked on next, and how far a partition is done. A machine: no clock, no thread.

Messages of one key of a partition are worked on one after the other, in their order: they are in one *lane*. Those
without a key have a lane each. A partition is done up to its first message that is not finished.
"""

from collections import deque
from dataclasses import dataclass

from quorate.streams import TopicMessage


@dataclass(frozen=True, eq=False)
class Job:
    """A message to be worked on, of a partition that the member got in that `generation`."""

    message: TopicMessage
    generation: int

    @property
    def lane(self) -> tuple[int, str | int]:
        """Those of one lane are worked on one after the other."""
        message = self.message
        return message.partition, message.offset if message.key is None else message.key


class Lanes:
    """Of one worker. `unfinished`: jobs that were added and are not finished."""

    def __init__(self) -> None:
        self.unfinished = 0
        self._ready: deque[Job] = deque()
        self._lanes: dict[tuple[int, str | int], deque[Job]] = {}
        self._open: dict[tuple[int, int], dict[int, None]] = {}
        self._ends: dict[tuple[int, int], int] = {}

    def add(self, job: Job) -> None:
        """Add the next message of a partition."""
        lane = self._lanes.get(job.lane)
        if lane is None:
            self._lanes[job.lane] = deque()
            self._ready.append(job)
        else:
            lane.append(job)
        at = job.message.partition, job.generation
        self._open.setdefault(at, {})[job.message.offset] = None
        self._ends[at] = job.message.offset + 1
        self.unfinished += 1

    def take(self) -> Job | None:
        """Give the next job that may be begun; None: there is none, or others of its lane are in work."""
        return self._ready.popleft() if self._ready else None

    def done_with(self, job: Job) -> int:
        """Say up to which offset its partition is done when this job is finished."""
        at = job.message.partition, job.generation
        return next((offset for offset in self._open[at] if offset != job.message.offset), self._ends[at])

    def finished(self, job: Job) -> int:
        """Note that a job is finished; returns up to which offset its partition is done."""
        done = self.done_with(job)
        at = job.message.partition, job.generation
        its = self._open[at]
        del its[job.message.offset]
        if not its:
            del self._open[at], self._ends[at]
        self.unfinished -= 1
        lane = self._lanes[job.lane]
        if lane:
            self._ready.append(lane.popleft())
        else:
            del self._lanes[job.lane]
        return done

    @property
    def partitions(self) -> set[int]:
        """Those of which something is not finished."""
        return {index for index, _ in self._open}
