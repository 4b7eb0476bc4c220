"""Calls that take several turns, and what becomes of them when the lead is lost. A machine over `actors.runtime.work`.

A thousand messages of two million lie anywhere in memory: to find and remove them takes as long as an election may not
wait. So such a call is a job, and goes on in the turns to come; what is answered at its end counts all of it. What
happens between two pieces counts: a message whose time came meanwhile is in nobody's hands any more.
"""

from collections import deque
from typing import Final

from actors.messages.call import Call, Client, is_strangers
from actors.messages.rights import Principal
from actors.runtime.work import Job, Steps, Work
from actors.shard.ledger import Ledger

SETTLE_PIECE: Final = 100
"""So many messages at once: some 2 ms of work where there are millions."""


class CallJob(Job):
    """A job that `calls` wait for; none: nobody does.

    `first_record`: from that one on the log may hold what it did; 0: nothing yet. `error`: what it raised before it had
    made a record, which ends it.
    """

    def __init__(self, steps: Steps, calls: list[Call], jobs: "Jobs") -> None:
        super().__init__(steps)
        self.calls = calls
        self.first_record = 0
        self.error: Exception | None = None
        self._jobs = jobs

    def step(self) -> bool:
        """Do the next piece; whether it was the last. Raises what that raises where no call is to be told of it alone."""
        ledger = self._jobs.ledger
        before = ledger.state.trans_id
        ledger.has_begun = False
        is_done = True
        try:
            is_done = super().step()
        except Exception as error:
            if not self.calls or self.first_record or ledger.has_begun or ledger.state.trans_id != before:
                raise  # nobody can be told, or a part of it is done: the log recovers the state
            self.error = error
        if not self.first_record and ledger.state.trans_id > before:
            self.first_record = before + 1
        if is_done:
            self._jobs.ended(self)
        return is_done


class Jobs:
    """Of one broker. `known` are those of clients with a token, or where none needs one; `strangers`' do one piece when
    their host has them do so. `piece`: so many messages are one. `failed`: those that have raised; the host takes them.
    """

    def __init__(self, ledger: Ledger, piece: int) -> None:
        self.ledger = ledger
        self.piece = piece
        self.known = Work()
        self.strangers = Work()
        self.strangers.is_late = _always
        self.failed: list[CallJob] = []
        self._answered: deque[tuple[int, int, list[Call]]] = deque()

    def begin(self, call: Call | None, steps: Steps) -> None:
        """Do the first piece now, and more until it is late; the rest in turns to come. Raises what those raise."""
        self.begin_for([] if call is None else [call], steps)

    def begin_for(self, calls: list[Call], steps: Steps) -> CallJob | None:
        """As `begin`, for calls to which others may be added. None: it is over already."""
        job = CallJob(steps, calls, self)
        work = self._work_of(job)
        while not job.step():
            if work.is_late():
                work.add(job)
                return job
        if job.error is not None:
            self.failed.remove(job)
            raise job.error
        return None

    def add(self, call: Call | None, steps: Steps) -> CallJob:
        """Do all of it in turns to come: others have theirs first."""
        job = CallJob(steps, [] if call is None else [call], self)
        self._work_of(job).add(job)
        return job

    def _work_of(self, job: CallJob) -> Work:
        return self.strangers if job.calls and is_strangers(job.calls[0]) else self.known

    def ended(self, job: CallJob) -> None:
        """Note that a job is over."""
        if job.error is not None:
            self.failed.append(job)
        else:
            self.answered(job.calls, job.first_record)

    def answered(self, calls: list[Call], first_record: int) -> None:
        """Note that calls which made records from that one on (0: none) are answered when the last is committed.

        Which was the first is of interest where it is not the last.
        """
        last = self.ledger.state.trans_id
        if calls and 0 < first_record < last:
            self._answered.append((last, first_record, calls))

    def take_failed(self) -> list[CallJob]:
        """Hand over the jobs that have raised."""
        failed, self.failed = self.failed, []
        return failed

    def committed(self, trans_id: int) -> None:
        """Note that records up to that one are committed."""
        answered = self._answered
        while answered and answered[0][0] <= trans_id:
            answered.popleft()

    def _open(self) -> list[tuple[Work, CallJob]]:
        found: list[tuple[Work, CallJob]] = []
        for work in (self.known, self.strangers):
            for job in work.jobs:
                assert isinstance(job, CallJob)
                found.append((work, job))
        return found

    def withdraw(self, call: Call) -> None:
        """Do no more for a call that raised."""
        for work, job in self._open():
            if call in job.calls:
                job.calls.remove(call)
                if not job.calls:
                    work.remove(job)

    def rejudge(self, client: Client, principal: Principal) -> None:
        """Go on with what a client has asked for by what it may do now."""
        for _, job in self._open():
            for call in job.calls:
                if call.client is client:
                    call.principal = principal

    def take_open(self, logged: int) -> tuple[list[Call], list[Call]]:
        """Hand over the calls of jobs that are under way, which do not go on: those of which the log may hold
        something, where records up to `logged` have left for it, and those of which it certainly holds nothing."""
        begun: list[Call] = []
        undone: list[Call] = []
        for work, job in self._open():
            work.remove(job)
            (begun if 0 < job.first_record <= logged else undone).extend(job.calls)
        return begun, undone

    def take_begun(self, logged: int) -> list[Call]:
        """Those that are answered, of which the log may hold something, and their ends may not be committed."""
        begun = [call for _, first_record, calls in self._answered if first_record <= logged for call in calls]
        self._answered.clear()
        return begun


def _always() -> bool:
    """Say what a host does that has one piece done at a time."""
    return True
