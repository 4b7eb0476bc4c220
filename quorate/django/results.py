"""The results of Django's tasks: what is kept of a task that has ended, and how one that has not is found.

A task that waits or runs is a message of its queue, whose key is its id: nothing else is kept of it. When it ends, its
result is, in the queue of results (see `quorate.results`).
"""

from datetime import datetime
from typing import Any, Final

from quorate.client import Client
from quorate.django.tasks import TaskError, TaskResult, TaskResultStatus, registered
from quorate.messages import Message, ShownMessage
from quorate.results import Results

INSTANTS: Final = ("enqueued_at", "started_at", "last_attempted_at", "finished_at")


def result_of(message: Message, queue_name: str, alias: str) -> TaskResult:
    """Make the result of a task that its message tells. Raises what can be wrong with a message that is none."""
    data = message.data
    task = registered(data["task"])
    is_running = isinstance(message, ShownMessage) and message.state == "in_flight"
    return TaskResult(
        task=task.using(priority=message.priority, queue_name=queue_name, backend=alias),
        id=data["id"],
        status=TaskResultStatus.RUNNING if is_running else TaskResultStatus.READY,
        enqueued_at=datetime.fromisoformat(data["enqueued_at"]),
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=data["args"],
        kwargs=data["kwargs"],
        backend=alias,
        errors=[],
        worker_ids=[],
    )


class TaskResults:
    """Those of one backend, in one queue; each is dropped `expires_s` after its task has ended."""

    def __init__(self, client: Client, queue: str, alias: str, expires_s: float) -> None:
        self._results = Results(client, queue)
        self._alias = alias
        self._expires_s = expires_s

    def store(self, result: TaskResult) -> None:
        """Keep what a task has come to. Raises `QuorateError`."""
        task: Any = result.task
        data = {
            "task": task.module_path,
            "queue_name": task.queue_name,
            "priority": task.priority,
            "status": result.status.value,
            "args": result.args,
            "kwargs": result.kwargs,
            "errors": [[one.exception_class_path, one.traceback] for one in result.errors],
            "worker_ids": result.worker_ids,
            "returned": result._return_value,
            **{name: _text(getattr(result, name)) for name in INSTANTS},
        }
        self._results.store_value(result.id, data, self._expires_s)

    def find(self, result_id: str) -> TaskResult | None:
        """Return the result of a task that has ended."""
        found = self._results.look(result_id)
        if found is None:
            return None
        data = found.data
        task = registered(data["task"])
        result = TaskResult(
            task=task.using(priority=data["priority"], queue_name=data["queue_name"], backend=self._alias),
            id=result_id,
            status=TaskResultStatus(data["status"]),
            args=data["args"],
            kwargs=data["kwargs"],
            backend=self._alias,
            errors=[TaskError(exception_class_path=path, traceback=text) for path, text in data["errors"]],
            worker_ids=data["worker_ids"],
            **{name: None if data[name] is None else datetime.fromisoformat(data[name]) for name in INSTANTS},
        )
        object.__setattr__(result, "_return_value", data["returned"])
        return result


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()
