"""A Django site whose tasks are on Quorate."""

import os

SECRET_KEY = "tests"
USE_TZ = True
INSTALLED_APPS = ["django_tasks", "quorate.django"]
DATABASES = {}
TASKS = {
    "default": {
        "BACKEND": "quorate.django.QuorateBackend",
        "QUEUES": ["default", "urgent"],
        "OPTIONS": {"url": os.environ["QUORATE_URL"], "prefix": "site.", "lease": 3},
    }
}
