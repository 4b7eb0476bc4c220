"""Tasks that a test draws, on the framework that FRAMEWORK names. `python drawn.py send` sends what it reads.

A task notes that it began, does what its kind says, and notes that it is done if it gets there.
"""

import asyncio
import ctypes
import json
import os
import signal
import sys
import time

URL = os.environ["QUORATE_URL"]
FRAMEWORK = os.environ["FRAMEWORK"]
LEASE_S = 2
MAX_LAPSES = 4
QUEUE = "drawn"
TIMEOUT_S = 3


class OddError(Exception):
    """What it says uses an attribute that was never set."""

    def __str__(self):
        return self.detail


def note(*words):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(" ".join(words) + "\n")


FAILURES = {
    "fails": lambda: ValueError("plain"),
    "odd": lambda: OddError(),
    "pair": lambda: ValueError("caf\udce9"),
    "large": lambda: ValueError("x" * 2_000_000),
    "exit": lambda: SystemExit(3),
}


def perform(name, kind):
    note(name, "began", f"{time.time():.3f}")
    if kind in FAILURES:
        raise FAILURES[kind]()
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "blocks":
        time.sleep(3 * LEASE_S)
    if kind == "holds":
        ctypes.PyDLL(None).usleep(3 * LEASE_S * 1_000_000)  # no other thread runs meanwhile
    if kind == "slow":
        time.sleep(0.3)
    note(name, "done")


if FRAMEWORK == "dramatiq":
    import dramatiq

    from quorate.dramatiq import QuorateBroker

    broker = QuorateBroker(URL, namespace="app", lease=LEASE_S, max_lapses=MAX_LAPSES, timeout=TIMEOUT_S)
    dramatiq.set_broker(broker)

    @dramatiq.actor(queue_name=QUEUE, max_retries=1, min_backoff=100, max_backoff=500)
    def drawn(name, kind):
        perform(name, kind)
        return "x" * 1_100_000 if kind == "pipes" else name

    def send(tasks):
        for name, kind in tasks:
            message = drawn.message(name, kind)
            if kind == "pipes":  # the next step is over the limit
                message = (message | drawn.message()).messages[0]
            broker.enqueue(message)

elif FRAMEWORK == "celery":
    from celery import Celery, chain

    app = Celery("app", broker=URL)
    app.conf.broker_transport = "quorate.kombu:Transport"
    app.conf.broker_transport_options = {
        "lease": LEASE_S,
        "prefix": "app.",
        "max_lapses": MAX_LAPSES,
        "timeout": TIMEOUT_S,
    }
    app.conf.task_acks_late = app.conf.task_reject_on_worker_lost = True
    app.conf.task_default_queue = QUEUE
    app.conf.worker_prefetch_multiplier = 1

    @app.task(bind=True, name="drawn")
    def drawn(self, name, kind, odd=""):
        if kind == "retries" and not self.request.retries:
            raise self.retry(countdown=0.2, max_retries=2)
        perform(name, kind)

    def send(tasks):
        for name, kind in tasks:
            if kind == "pipes":
                chain(drawn.si(name, "ok"), drawn.si(f"{name}-next", "ok", "caf\udce9"))()
            else:
                drawn.apply_async((name, kind), headers={"odd": ["\udce9", float("nan")]})

elif FRAMEWORK == "taskiq":
    from taskiq import SimpleRetryMiddleware

    from quorate.taskiq import QuorateBroker

    broker = QuorateBroker(URL, queue=QUEUE, lease=LEASE_S, max_lapses=MAX_LAPSES, timeout=TIMEOUT_S).with_middlewares(
        SimpleRetryMiddleware(default_retry_count=2)
    )

    @broker.task(task_name="drawn")
    async def drawn(name, kind, **more):
        await asyncio.sleep(0)
        perform(name, kind)

    def send(tasks):
        async def go():
            for name, kind in tasks:
                labels = {"ack_type": "none such"} if kind == "pipes" else {}
                await drawn.kicker().with_labels(retry_on_error=kind in FAILURES, **labels).kiq(name, kind)
            await broker.shutdown()

        asyncio.run(go())

elif FRAMEWORK == "django":

    def send(tasks):
        os.environ["DJANGO_SETTINGS_MODULE"] = "django_site.settings"
        import django

        django.setup()
        from django_site.tasks import drawn

        for name, kind in tasks:
            drawn.enqueue(name, kind)

else:
    from quorate import Client, Reject, Retry, Worker
    from quorate.hands import Backoff

    client = Client(URL, timeout=TIMEOUT_S)

    def handle(message):
        name, kind = message.data
        if kind == "retries" and message.deliveries < 3:
            raise Retry(0.1)
        if kind == "pipes":
            try:
                message.extend(-1)
            finally:
                message.bury("\udce9")
        try:
            perform(name, kind)
        except BaseException as error:
            raise Reject(error) from error

    def send(tasks):
        client.configure(QUEUE, dead_letter="drawn.dead")
        for task in tasks:
            client.produce(QUEUE, task, retry=LEASE_S, key=task[0])

    def work():
        Worker(client, QUEUE, handle, concurrency=4, grace=2, backoff=Backoff(0.1, 1), max_lapses=MAX_LAPSES).run()


if __name__ == "__main__":
    work() if sys.argv[1] == "work" else send(json.load(sys.stdin))
