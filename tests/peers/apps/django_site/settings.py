"""A Django site whose tasks are on Quorate."""

import os

import django

SECRET_KEY = "tests"
USE_TZ = True
INSTALLED_APPS = ["quorate.django", "django_site", *([] if django.VERSION >= (6, 0) else ["django_tasks"])]
DATABASES = {}
TASKS = {
    "default": {
        "BACKEND": "quorate.django.QuorateBackend",
        "QUEUES": ["default", "urgent"],
        "OPTIONS": {
            "url": os.environ["QUORATE_URL"],
            "prefix": "site.",
            "lease": int(os.environ.get("LEASE", "3")),
            "max_lapses": 4,
        },
    }
}
