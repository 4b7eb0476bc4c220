"""`manage.py quorate_worker`: runs tasks until it is stopped."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from quorate.django.running import TaskRunner
from quorate.django.tasks import DEFAULT_TASK_BACKEND_ALIAS
from quorate.errors import QuorateError


class Command(BaseCommand):
    """SIGTERM: it takes no more, and lets tasks end for `--grace` seconds; twice: it ends at once."""

    help = "Run tasks that are queued in Quorate, until SIGTERM or SIGINT."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """As Django asks."""
        parser.add_argument("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="One of TASKS.")
        parser.add_argument("--queue", action="append", default=[], help="Several times; else the backend's QUEUES.")
        parser.add_argument("--concurrency", type=int, default=8, help="So many tasks at once, each in a thread.")
        parser.add_argument("--grace", type=float, default=30.0, help="Seconds that tasks have to end in.")

    def handle(self, *args: Any, **options: Any) -> None:
        """As Django asks."""
        try:
            runner = TaskRunner(options["backend"], options["queue"], options["concurrency"], options["grace"])
            self.stdout.write(f"working on {', '.join(runner.queues)}")
            runner.worker.run()
        except (ValueError, QuorateError) as error:
            raise CommandError(str(error)) from error
