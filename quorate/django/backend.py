"""The backend: puts tasks into queues of the node. What runs them is `quorate.django.running`."""

import threading
from datetime import datetime
from typing import Any, ClassVar, Final

from django.core.checks import ERROR, CheckMessage
from django.utils import timezone
from django.utils.crypto import get_random_string

from quorate.client import Client
from quorate.dead_letters import LAPSES_MAX, check_lapses
from quorate.django.tasks import BaseTaskBackend, TaskResult, TaskResultStatus, task_enqueued
from quorate.errors import QuorateError
from quorate.messages import NEVER

LEASE_S: Final = 60.0
ID_LENGTH: Final = 32


class QuorateBackend(BaseTaskBackend):
    """OPTIONS: `url`, and what else `Client` takes; `prefix` before each queue's name; `lease` (s); `modules`;
    `max_lapses`, of which many deliveries lapsed a task is a dead letter (None: never by that).

    A worker runs tasks that stand in modules named `tasks` of installed apps, or in one of `modules`, and no others.

    A task's `run_after` is the message's delay, its priority (-100 to 100, higher first) the message's. It is on disk
    when `enqueue` returns. Results are not kept: use a result of your own, or a signal. In a transaction, enqueue by
    `transaction.on_commit`: the queue does not wait for a commit.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True
    supports_get_result = False

    _clients: ClassVar[dict[str, Client]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = dict(self.options)
        self.prefix = str(options.pop("prefix", ""))
        self.lease_s = float(options.pop("lease", LEASE_S))
        self.max_lapses = check_lapses(options.pop("max_lapses", LAPSES_MAX))
        self.modules = tuple(map(str, options.pop("modules", ())))
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

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """List what is wrong with its options."""
        found = list(super().check(**kwargs))
        try:
            _ = self.client
        except (TypeError, ValueError, QuorateError) as error:
            found.append(CheckMessage(ERROR, f"TASKS[{self.alias!r}]: {error}", id="quorate.E001"))
        return found


def _due_at(run_after: datetime | None) -> float | None:
    """Unix seconds; None: at once."""
    if run_after is None or run_after <= (timezone.now() if run_after.tzinfo else datetime.now()):
        return None
    return run_after.timestamp()
