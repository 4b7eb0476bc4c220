"""Runs tasks that the backend has put into queues: for `manage.py quorate_worker`, or a process of one's own."""

import logging
import os
import socket
from collections.abc import Sequence
from typing import Any, Final

from django.db import close_old_connections
from django.utils import timezone

from quorate.delivered import DeliveredMessage
from quorate.django.backend import QuorateBackend, discover
from quorate.django.results import TaskResults, result_of
from quorate.django.tasks import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from quorate.errors import QuorateError, RefusedError
from quorate.protocol import ErrorWord
from quorate.texts import log_error, said_by, storable, text_of, traceback_of
from quorate.worker import Reject, Worker

log = logging.getLogger("quorate.django")

NEVER_KEPT: Final = (ErrorWord.TOO_LARGE, ErrorWord.FIELD, ErrorWord.BAD_JSON)
"""Refusals of what a task returned, wherever it is to be kept."""


class LapsedError(Exception):
    """What the result of a task names that is dead since its deliveries lapsed: see `quorate.dead_letters.lapsed`."""


class TaskRunner:
    """For the tasks of one backend. `worker` works on `queues`, or on all that the backend is configured with.

    A task that fails is done with: Django's tasks have no retries. It goes to the dead letters with the error, where
    its queue has some; `worker` sees to that. One whose worker dies in the middle begins again, on another.
    """

    def __init__(self, alias: str, queues: Sequence[str] = (), concurrency: int = 8, grace: float = 30.0) -> None:
        backend = task_backends[alias]
        if not isinstance(backend, QuorateBackend):
            raise ValueError(f"TASKS[{alias!r}] is no QuorateBackend, but a {type(backend).__name__}")
        names = list(queues) or sorted(backend.queues)
        if not names:
            raise ValueError(f"TASKS[{alias!r}] has no QUEUES: name those to work on")
        discover(backend)
        self.backend = backend
        self.worker_id = f"{socket.gethostname()}-{os.getpid()}"
        self.queues = [backend.queue_of(name) for name in names]
        self.worker = Worker(
            *(backend.client, self.queues, self.run),
            concurrency=concurrency,
            grace=grace,
            max_lapses=backend.max_lapses,
            on_lapsed=self._lapsed,
        )

    def _lapsed(self, message: DeliveredMessage, why: str) -> None:
        """Keep that a task has failed which ended its workers, or was never finished by them."""
        results = self.backend.results
        if results is None:
            return
        result = self._result(message)
        result.errors.append(TaskError(exception_class_path="quorate.django.running.LapsedError", traceback=why))
        _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
        results.store(result)

    def run(self, message: DeliveredMessage) -> None:
        """Run the task of a message, tell Django's signals. Raises `Reject` for one that failed, or is none."""
        result = self._result(message)
        task: Any = result.task
        _set(result, status=TaskResultStatus.RUNNING, started_at=timezone.now(), last_attempted_at=timezone.now())
        result.worker_ids.extend([self.worker_id] * message.deliveries)
        close_old_connections()
        self._tell(task_started, result)
        try:
            context = (TaskContext(task_result=result),) if task.takes_context else ()
            returned = normalize_json(task.call(*context, *result.args, **result.kwargs))
        except BaseException as error:  # SystemExit, too: what a task raises is its failure
            path = f"{type(error).__module__}.{type(error).__qualname__}"
            result.errors.append(TaskError(exception_class_path=path, traceback=storable(traceback_of(error))))
            _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
            self._end(result)
            raise Reject(f"{path}: {text_of(error)}") from error
        finally:
            close_old_connections()
        _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=returned)
        self._end(result)

    def _end(self, result: TaskResult) -> None:
        """Keep the result, and tell that it is there. One that can't be kept is the log's: the task is done."""
        results = self.backend.results
        try:
            if results is not None:
                self._keep(results, result)
        except (QuorateError, TypeError, ValueError) as error:
            log_error(log, error, "the result of task %s can not be kept", result.id)
        self._tell(task_finished, result)

    def _keep(self, results: TaskResults, result: TaskResult) -> None:
        """Keep a result; of one that can't be kept as it is, that."""
        try:
            results.store(result)
        except (RefusedError, TypeError, ValueError) as error:
            if isinstance(error, RefusedError) and error.error not in NEVER_KEPT:
                raise  # another result would be kept as little
            path = f"{type(error).__module__}.{type(error).__qualname__}"
            result.errors.append(TaskError(exception_class_path=path, traceback=storable(traceback_of(error))))
            _set(result, status=TaskResultStatus.FAILED, _return_value=None)
            results.store(result)
            log_error(log, error, "what task %s returned can not be kept", result.id)

    def _tell(self, signal: Any, result: TaskResult) -> None:
        """Tell the receivers. What one raises is its own fault: the task is not run again for that."""
        try:
            for receiver, raised in signal.send_robust(sender=type(self.backend), task_result=result):
                if isinstance(raised, Exception):
                    log_error(log, raised, "receiver %r of task %s raised", receiver, result.id)
        except BaseException as error:  # Django passes on what is no Exception, and what its own logging raises
            log_error(log, error, "not all receivers were told of task %s", result.id)

    def _result(self, message: DeliveredMessage) -> TaskResult:
        try:
            return result_of(message, message.queue.removeprefix(self.backend.prefix), self.backend.alias)
        except Exception as error:  # whatever else a message holds
            log_error(log, error, "message %d of %s is no task that can be run here", message.msg_id, message.queue)
            raise Reject(f"it is no task that can be run: {said_by(error)}") from error


def _set(result: TaskResult, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(result, name, value)
