"""Django's tasks on Quorate: `TASKS = {"default": {"BACKEND": "quorate.django.QuorateBackend", "OPTIONS": {...}}}`.

For `django.tasks` (Django 6.0) and for the package django-tasks before that. `manage.py quorate_worker` works on them,
where `quorate.django` is among INSTALLED_APPS.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Read the backend when it is asked for: apps are loaded before models are."""
    if name == "QuorateBackend":
        from quorate.django.backend import QuorateBackend

        return QuorateBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
