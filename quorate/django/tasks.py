"""Whichever of `django.tasks` (Django 6.0) and django-tasks there is, under one set of names; and which tasks exist."""

import sys
from typing import Any

try:
    from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ImportError:  # Django before 6.0
    from django_tasks import DEFAULT_TASK_BACKEND_ALIAS, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "BaseTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "registered",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]


def registered(path: str) -> Any:
    """Find the task of that name, in a module that this process has imported. Raises LookupError.

    Nothing is imported for a message: whoever may produce into the queue would choose what runs here.
    """
    module, _, name = path.rpartition(".")
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    if not isinstance(found, Task):
        where = "a module named tasks of an installed app, or a module that OPTIONS['modules'] names"
        raise LookupError(f"{path[:200]!r} is no registered task: it has to stand in {where}")
    return found
