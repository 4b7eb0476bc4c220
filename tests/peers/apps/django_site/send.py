"""Enqueues one of each kind."""

import datetime
import os

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "django_site.settings"
django.setup()

from django.core.management import call_command  # noqa: E402

from django_site import tasks  # noqa: E402
from quorate.django.tasks import DEFAULT_TASK_BACKEND_ALIAS, task_backends  # noqa: E402

call_command("check")
result = tasks.work.enqueue("plain", 0)
assert len(result.id) == 32
assert str(result.status) == "READY"
later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1.5)
tasks.work.using(run_after=later).enqueue("deferred", 0)
tasks.work.using(queue_name="urgent", priority=50).enqueue("urgent", 0)
tasks.told.enqueue("told")
tasks.awaited.enqueue("awaited")
tasks.failing.enqueue("failing")
tasks.work.enqueue("long", 7)
task_backends[DEFAULT_TASK_BACKEND_ALIAS].client.produce("site.default", {"no": "task"})
