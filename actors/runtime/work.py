"""Work in pieces: no turn of the loop is long, however much there is to do.

A *job* is a generator that yields wherever its host's turn may be over; between two of its pieces anything may happen
to what it works on. `Work` has the jobs of one host done by turns, so that a long one holds up no other, and ends a job
by closing its generator.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

Steps = Generator[None, None, None]

_DONE: Final = object()


class Job:
    """Does one piece of `steps` after the other."""

    def __init__(self, steps: Steps) -> None:
        self._steps: Any = steps

    def step(self) -> bool:
        """Do the next piece; whether it was the last."""
        return next(self._steps, _DONE) is _DONE

    def close(self) -> None:
        """Do no more of it."""
        self._steps.close()


class Work:
    """Of one host. `is_late`: its turn was long enough."""

    def __init__(self) -> None:
        self.is_late: Callable[[], bool] = _never
        self.jobs: deque[Job] = deque()

    def add(self, job: Job) -> None:
        """Have a job done, from the next `go_on` on."""
        self.jobs.append(job)

    def go_on(self) -> None:
        """Do the next piece of the job whose turn it is, and further ones until it is late."""
        jobs = self.jobs
        while jobs:
            job = jobs.popleft()
            if not job.step():
                jobs.append(job)
            if self.is_late():
                return

    def remove(self, job: Job) -> None:
        """Do no more of a job."""
        self.jobs.remove(job)
        job.close()


def _never() -> bool:
    """Say what a host does that has all the time there is."""
    return False
