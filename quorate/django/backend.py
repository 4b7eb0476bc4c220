"""The backend: puts tasks into queues of the node. What runs them is `quorate.django.running`."""

import threading
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, Final

from django.core.checks import ERROR, CheckMessage
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.utils.module_loading import autodiscover_modules

from quorate.client import Client
from quorate.dead_letters import LAPSES_MAX, check_lapses
from quorate.django.results import TaskResults, result_of
from quorate.django.tasks import (
    BaseTaskBackend,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from quorate.errors import QuorateError
from quorate.messages import NEVER
from quorate.results import EXPIRES_S, key_of

LEASE_S: Final = 60.0
ID_LENGTH: Final = 32
RESULTS: Final = "django.results"


class QuorateBackend(BaseTaskBackend):
    """OPTIONS: `url`, and what else `Client` takes; `prefix` before each queue's name; `lease` (s); `modules`;
    `max_lapses`, of which many deliveries lapsed a task is a dead letter (None: never by that).

    A worker runs tasks that stand in modules named `tasks` of installed apps, or in one of `modules`, and no others.

    A task's `run_after` is the message's delay, its priority (-100 to 100, higher first) the message's. It is on disk
    when `enqueue` returns. In a transaction, enqueue by `transaction.on_commit`: the queue does not wait for a commit.

    Results are kept for `results_expire` seconds (a day; 0: they are not kept), in the queue that `results` names
    ("django.results", behind the prefix). A task that has not ended is looked for in QUEUES.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True

    _clients: ClassVar[dict[str, Client]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = dict(self.options)
        self.prefix = str(options.pop("prefix", ""))
        self.lease_s = float(options.pop("lease", LEASE_S))
        self.max_lapses = check_lapses(options.pop("max_lapses", LAPSES_MAX))
        self.modules = tuple(map(str, options.pop("modules", ())))
        self.results_expire_s = float(options.pop("results_expire", EXPIRES_S))
        self.supports_get_result = self.results_expire_s > 0
        self._results_queue = self.prefix + str(options.pop("results", RESULTS))
        self._given = options

    @property
    def client(self) -> Client:
        """One for all threads: Django makes a backend for each."""
        name = repr((self.alias, sorted(self._given.items(), key=str)))
        with self._lock:
            if name not in self._clients:
                given = dict(self._given)
                self._clients[name] = Client(given.pop("url", None), **given)
            return self._clients[name]

    def queue_of(self, queue_name: str) -> str:
        """Make the node's name of a queue."""
        return self.prefix + queue_name

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult:
        """Put the task into its queue. Raises `QuorateError`."""
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id=get_random_string(ID_LENGTH),
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        data = {
            "task": task.module_path,
            "id": result.id,
            "args": result.args,
            "kwargs": result.kwargs,
            "enqueued_at": result.enqueued_at.isoformat(),
        }
        self.client.produce(
            self.queue_of(task.queue_name),
            data,
            delay=_due_at(task.run_after),
            ttl=NEVER,
            retry=self.lease_s,
            priority=task.priority or None,
            key=result.id,
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    @cached_property
    def results(self) -> TaskResults | None:
        """The results of tasks that have ended; None: they are not kept."""
        if not self.supports_get_result:
            return None
        return TaskResults(self.client, self._results_queue, self.alias, self.results_expire_s)

    def get_result(self, result_id: str) -> TaskResult:
        """Return what is known of a task. Raises Django's TaskResultDoesNotExist, and `QuorateError`."""
        results = self.results
        if results is None:
            return super().get_result(result_id)
        if key_of(result_id) != result_id:
            raise TaskResultDoesNotExist(result_id)  # no task has such an id
        found = self._registered(lambda: results.find(result_id) or self._open(result_id) or results.find(result_id))
        if found is None:
            raise TaskResultDoesNotExist(result_id)
        return found

    def _open(self, result_id: str) -> TaskResult | None:
        """Return what is known of a task that has not ended."""
        for queue_name in sorted(self.queues):
            message = self.client.result(self.queue_of(queue_name), result_id)
            if message is not None:
                return result_of(message, queue_name, self.alias)
        return None

    def _registered(self, find: Callable[[], TaskResult | None]) -> TaskResult | None:
        """Do that; if a task's module was not imported by now, import all that define tasks first."""
        try:
            return find()
        except LookupError:
            discover(self)
            return find()

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """List what is wrong with its options."""
        found = list(super().check(**kwargs))
        try:
            _ = self.client
        except (TypeError, ValueError, QuorateError) as error:
            found.append(CheckMessage(ERROR, f"TASKS[{self.alias!r}]: {error}", id="quorate.E001"))
        names = [name for name in self.queues if self.queue_of(name) == self._results_queue]
        if names and self.supports_get_result:
            why = f"results are kept in {self._results_queue!r}, which QUEUES names, too: set OPTIONS['results']"
            found.append(CheckMessage(ERROR, f"TASKS[{self.alias!r}]: {why}", id="quorate.E002"))
        return found


def _due_at(run_after: datetime | None) -> float | None:
    """Unix seconds; None: at once."""
    if run_after is None or run_after <= (timezone.now() if run_after.tzinfo else datetime.now()):
        return None
    return run_after.timestamp()


def discover(backend: QuorateBackend) -> None:
    """Import the modules that define tasks: `tasks` of each installed app, and those that the backend's options name.

    Raises ImportError.
    """
    autodiscover_modules("tasks")
    for module in backend.modules:
        import_module(module)
