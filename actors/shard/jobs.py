"""Calls that take several turns, and what becomes of them when the lead is lost. A machine over `actors.runtime.work`.

A thousand messages of two million lie anywhere in memory: to find and remove them takes as long as an election may not
wait. So such a call is a job, and goes on in the turns to come; what is answered at its end counts all of it. What
happens between two pieces counts: a message whose time came meanwhile is in nobody's hands any more.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from actors.messages.call import Call, Client, given_up, is_given_up, is_strangers
from actors.messages.rights import Principal, not_allowed
from actors.runtime.work import Job, Steps, Work
from actors.shard.ledger import Ledger
from quorate.actions import WRITES

SETTLE_PIECE: Final = 100
"""So many messages at once: some 2 ms of work where there are millions."""


class CallJob(Job):
    """A job that `calls` wait for; none: nobody does. `behind`: its client's job that comes first, if there is one, in
    that `line`.

    `first_record`: from that one on the log may hold what it did; 0: nothing yet. `error`: what it raised before it had
    made a record, which ends it.
    """

    def __init__(self, steps: Steps, calls: list[Call], jobs: "Jobs") -> None:
        super().__init__(steps)
        self.calls = calls
        self.behind: CallJob | None = None
        self.line: tuple[Client, bool] | None = None
        self.first_record = 0
        self.error: Exception | None = None
        self.has_begun = self.is_over = False
        self._jobs = jobs

    def step(self) -> bool:
        """Do the next piece; whether it was the last. Raises what that does, unless its calls alone are to be told."""
        if self.behind is not None:
            if not self.behind.is_over:
                return False
            self.behind = None
            call = self.calls[0]
            if is_given_up(call):  # while it stood in line
                self._jobs.ledger.answer(call, given_up(call.request))
                self.close()
                self._jobs.ended(self)
                return True
        ledger = self._jobs.ledger
        before = ledger.state.trans_id
        ledger.has_begun = False
        self.has_begun = is_done = True
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
    """Of one broker. `known` make records, for clients with a token or where none needs one; `looks` make none;
    `strangers`' do one piece when their host has them do so. `piece`: so many messages are one. `failed`: those that
    have raised; the host takes them.

    What one client asks for and makes records goes in its order, one job behind the other.
    """

    def __init__(self, ledger: Ledger, piece: int) -> None:
        self.ledger = ledger
        self.piece = piece
        self.known = Work()
        self.looks = Work()
        self.strangers = Work()
        self.strangers.is_late = _always
        self.failed: list[CallJob] = []
        self._answered: deque[tuple[int, int, list[Call]]] = deque()
        self._last: dict[tuple[Client, bool], CallJob] = {}

    def set_late(self, is_late: Callable[[], bool]) -> None:
        """Have the host asked whether its turn was long enough."""
        self.known.is_late = self.looks.is_late = is_late

    @property
    def has_more(self) -> bool:
        """Whether `go_on` has something to do."""
        return bool(self.known.jobs or self.looks.jobs)

    def go_on(self) -> None:
        """Do a piece of what makes records and one of what looks, and more of each until it is late."""
        self.known.go_on()
        self.looks.go_on()

    def begin(self, call: Call | None, steps: Steps) -> None:
        """Do the first piece now, and more until it is late; the rest in turns to come. Raises what those raise.

        All of it in turns to come, where others are under way: a turn has time for one.
        """
        job, work = self._made(call, steps)
        if work.jobs:
            work.add(job)
        else:
            self._begin(job, work)

    def begin_for(self, calls: list[Call], steps: Steps) -> CallJob | None:
        """As `begin`, for calls that look, to which others may be added. None: it is over already."""
        job = CallJob(steps, calls, self)
        self._begin(job, self.looks)
        return None if job.is_over else job

    def _begin(self, job: CallJob, work: Work) -> None:
        while not job.step():
            if work.is_late():
                work.add(job)
                return
        if job.error is not None:
            self.failed.remove(job)
            raise job.error

    def add(self, call: Call | None, steps: Steps) -> CallJob:
        """Do all of it in turns to come: others have theirs first."""
        job, work = self._made(call, steps)
        work.add(job)
        return job

    def _made(self, call: Call | None, steps: Steps) -> tuple[CallJob, Work]:
        """Make a job, behind its client's last, and say which are like it."""
        job = CallJob(steps, [] if call is None else [call], self)
        if call is None:
            return job, self.known
        is_stranger, writes = is_strangers(call), call.request.action in WRITES
        if writes:
            job.line = (call.client, is_stranger)
            job.behind = self._last.get(job.line)
            self._last[job.line] = job
        return job, self.strangers if is_stranger else self.known if writes else self.looks

    def ended(self, job: CallJob) -> None:
        """Note that a job is over."""
        self._over(job)
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

    def take_failed(self) -> list[tuple[list[Call], Exception]]:
        """Hand over the calls of jobs that have raised, and what those raised."""
        taken: list[tuple[list[Call], Exception]] = []
        for job in self.failed:
            assert job.error is not None
            taken.append((job.calls[:], job.error))
            job.calls.clear()  # nobody else waits for it
        self.failed = []
        return taken

    def committed(self, trans_id: int) -> None:
        """Note that records up to that one are committed."""
        answered = self._answered
        while answered and answered[0][0] <= trans_id:
            answered.popleft()

    def _open(self) -> list[tuple[Work, CallJob]]:
        found: list[tuple[Work, CallJob]] = []
        for work in (self.known, self.looks, self.strangers):
            for job in work.jobs:
                assert isinstance(job, CallJob)
                found.append((work, job))
        return found

    def _remove(self, work: Work, job: CallJob) -> None:
        work.remove(job)
        self._over(job)

    def _over(self, job: CallJob) -> None:
        job.is_over = True
        if job.line is not None and self._last.get(job.line) is job:
            del self._last[job.line]

    def withdraw(self, call: Call) -> None:
        """Do no more for a call that raised."""
        for work, job in self._open():
            if call in job.calls:
                job.calls.remove(call)
                if not job.calls:
                    self._remove(work, job)

    def rejudge(self, client: Client, principal: Principal) -> None:
        """Go on with what a client has asked for by what it may do now; refuse what was not begun, and it may not."""
        for work, job in self._open():
            for call in job.calls[:]:
                if call.client is not client:
                    continue
                call.principal = principal
                missing = None if job.has_begun else principal.rights.missing(call.request)
                if missing is not None:
                    self.ledger.answer(call, not_allowed(call.request, missing))
                    job.calls.remove(call)
                    if not job.calls:
                        self._remove(work, job)

    def take_open(self, logged: int) -> tuple[list[Call], list[Call]]:
        """Hand over the calls of jobs that are under way, which do not go on: those of which the log may hold
        something, where records up to `logged` have left for it, and those of which it certainly holds nothing."""
        begun: list[Call] = []
        undone: list[Call] = []
        for work, job in self._open():
            self._remove(work, job)
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
