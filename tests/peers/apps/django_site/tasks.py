"""Its tasks."""

import os
import time

try:
    from django.tasks import task
except ImportError:  # Django before 6.0
    from django_tasks import task


def note(text):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{text} {time.time()}\n")


@task()
def work(name, seconds):
    note(name)
    time.sleep(seconds)
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{name} done\n")


@task(takes_context=True)
def told(context, name):
    note(f"{name}-attempt-{context.attempt}")


@task()
async def awaited(name):
    note(name)


@task()
def failing(name):
    note(name)
    raise ValueError("no use")


@task()
def unprintable(name):
    note(name)
    raise SyntaxError("x", ("f", 1, 2, 5))


@task()
def drawn(name, kind):
    from drawn import perform

    perform(name, kind)


@task()
def leaving(name):
    note(name)
    raise SystemExit(3)
