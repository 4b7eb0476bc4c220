"""What a stranger, a long task, or a fault of an application's own must not break: by the first word of the command."""

import os
import sys
import threading
import time

from attack_tools import URL, OddError, eventually, stand_still


def gevent():
    """A client's requests and waits end, and its time-outs hold, on gevent's sockets."""
    from gevent import monkey

    monkey.patch_all()
    import gevent

    from quorate import Client, Interrupt

    with Client(URL, timeout=3) as client:
        for n in range(3):
            client.produce("g", n)
        assert [client.consume("g").data for _ in range(3)] == [0, 1, 2]
        begun = time.monotonic()
        found = gevent.joinall([gevent.spawn(client.consume, "none", wait=1) for _ in range(20)])
        assert all(one.value is None for one in found)
        assert time.monotonic() < begun + 3
        interrupt = Interrupt()
        gevent.spawn_later(0.3, interrupt.set)
        assert client.consume("none", wait=30, interrupt=interrupt) is None


def foreign_dramatiq():
    """Messages of another queue, or without options, go to the dead letters, and the workers go on."""
    import dramatiq

    from quorate.dramatiq import QuorateBroker

    broker = QuorateBroker(URL, namespace="f")
    dramatiq.set_broker(broker)
    done = threading.Event()

    @dramatiq.actor
    def work():
        done.set()

    other = work.message().copy(queue_name="other")
    broker.client.produce(broker.queue_of("default"), other.encode().decode())
    broker.client.produce(
        broker.queue_of("default"), work.message().encode().decode().replace('"options":{}', '"options":null')
    )
    broker.client.produce(broker.queue_of("default"), {"no": "message"})
    worker = dramatiq.Worker(broker, worker_threads=2)
    worker.start()
    work.send()
    assert done.wait(20)
    broker.join("default", timeout=20_000)
    assert all(thread.is_alive() for thread in worker.workers)
    worker.stop()
    assert broker.get_queue_message_counts("default")[2] == 3
    broker.close()


def django_faults():
    """A task that ends the process, and receivers that raise, are done with once."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "django_site.settings"
    import django

    django.setup()
    from django_site import tasks

    from quorate.django.running import TaskRunner
    from quorate.django.tasks import task_finished, task_started

    def broken(**kwargs):
        raise RuntimeError("a receiver")

    task_finished.connect(broken)
    task_started.connect(broken)
    runner = TaskRunner("default")
    for path in ("this.s", "django_site.settings.os", "os.system", "antigravity", "tasks"):
        data = {"task": path, "id": "x", "args": [], "kwargs": {}, "enqueued_at": "2026-01-01T00:00:00"}
        runner.backend.client.produce("site.default", data, retry=60)
    tasks.leaving.enqueue("leaving")
    tasks.unprintable.enqueue("unprintable")
    tasks.work.enqueue("fine", 0)
    thread = threading.Thread(target=runner.worker.run)
    thread.start()
    until = time.monotonic() + 20
    while runner.backend.client.monitor("site.default")["size"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    runner.worker.stop()
    thread.join(20)
    assert (runner.worker.counts["done"], runner.worker.counts["rejected"]) == (1, 2 + 5)
    assert "this" not in sys.modules, "nothing is imported for a message"
    assert "antigravity" not in sys.modules


def dramatiq_odd():
    """Exceptions without a text, or with half of a surrogate pair, and a middleware that raises, hold nothing."""
    import dramatiq

    from quorate.dramatiq import QuorateBroker

    broker = QuorateBroker(URL, namespace="odd", lease=2)
    dramatiq.set_broker(broker)
    ran = []

    class Broken(dramatiq.Middleware):
        def before_nack(self, broker, message):
            if message.args[0] == "middleware":
                raise dramatiq.middleware.MiddlewareError("broken")

    broker.add_middleware(Broken())

    @dramatiq.actor(max_retries=0)
    def fails(name):
        ran.append(name)
        raise OddError if name == "odd" else ValueError("caf\udce9")

    @dramatiq.actor
    def works():
        ran.append("good")

    worker = dramatiq.Worker(broker, worker_threads=1)
    for name in ("odd", "odd", "odd", "pair", "middleware"):
        fails.send(name)
    works.send()
    worker.start()
    eventually(lambda: "good" in ran)
    eventually(lambda: broker.get_queue_message_counts("default")[2] == 4)
    eventually(lambda: ran.count("middleware") > 1)  # its lease has ended, and it comes again
    assert ran.count("odd") == 3
    worker.stop()
    broker.close()


def dramatiq_names():
    """A queue whose dead letters' name would be too long is consumed all the same."""
    import dramatiq

    from quorate.dramatiq import QuorateBroker

    broker = QuorateBroker(URL, namespace="nn")
    dramatiq.set_broker(broker)
    ran = []

    @dramatiq.actor(queue_name="q" * 250, max_retries=0)
    def work(name):
        ran.append(name)
        raise ValueError(name)

    work.send("a")
    worker = dramatiq.Worker(broker, worker_threads=1)
    worker.start()
    eventually(lambda: ran)
    eventually(lambda: broker.get_queue_message_counts("q" * 250) == (0, 0, 1))
    worker.stop()
    broker.close()


def dramatiq_follow_ups():
    """What follows a task and can't be stored now is stored later; what never can be makes the task a dead letter."""
    import dramatiq

    from quorate.dramatiq import QuorateBroker

    broker = QuorateBroker(URL, namespace="f", lease=10, timeout=1)
    dramatiq.set_broker(broker)
    ran = []

    @dramatiq.actor(max_retries=2, min_backoff=50, max_backoff=100)
    def retried(name):
        ran.append(name)
        if ran.count(name) == 1:
            stand_still(4)
            raise ValueError(name)

    @dramatiq.actor(max_retries=3)
    def large(name):
        ran.append(name)
        raise ValueError("x" * 2_000_000)

    @dramatiq.actor
    def first(name):
        ran.append(name)
        return "x" * 1_100_000

    @dramatiq.actor
    def told(message, retries):
        ran.append("told")

    @dramatiq.actor(max_retries=0, on_retry_exhausted="told")
    def exhausted(name):
        ran.append(name)
        if ran.count(name) == 1:
            stand_still(4)
        raise ValueError(name)

    @dramatiq.actor(max_retries=3, retry_when=lambda retries, error: 1 / 0)
    def broken(name):
        ran.append(name)
        raise ValueError(name)

    worker = dramatiq.Worker(broker, worker_threads=1)
    worker.start()
    retried.send("retried")
    eventually(lambda: ran.count("retried") >= 2)
    eventually(lambda: broker.get_queue_message_counts("default") == (0, 0, 0))
    exhausted.send("exhausted")
    eventually(lambda: "told" in ran)
    eventually(lambda: broker.get_queue_message_counts("default") == (0, 0, 1))
    large.send("large")
    (first.message("first") | told.message(1)).run()
    broken.send("broken")
    eventually(lambda: broker.get_queue_message_counts("default") == (0, 0, 4))
    assert [ran.count(name) for name in ("large", "first", "broken")] == [1, 1, 1]
    rows = broker.client.peek(broker.dead_letters_of("default"), 10)
    reasons = " ".join(row.dead["reason"] for row in rows)
    assert reasons.count("too_large") == 2
    assert reasons.count("ZeroDivisionError") == 1
    worker.stop()
    broker.close()


def dramatiq_stops():
    """A worker that can't acknowledge what has ended stops soon, and nothing is held."""
    import dramatiq

    from quorate.dramatiq import QuorateBroker

    broker = QuorateBroker(URL, namespace="stops", lease=30)
    dramatiq.set_broker(broker)
    ran = []

    @dramatiq.actor
    def work():
        stand_still(14)
        ran.append(1)

    worker = dramatiq.Worker(broker, worker_threads=2)
    worker.start()
    work.send()
    eventually(lambda: ran)
    time.sleep(1)
    begun = time.monotonic()
    worker.stop()
    broker.close()
    assert time.monotonic() < begun + 10


def dramatiq_middleware():
    """A retry that is stored leaves no dead letter, and a middleware that wants to end the process ends no worker."""
    import dramatiq

    from quorate.dramatiq import QuorateBroker

    broker = QuorateBroker(URL, namespace="m", lease=3)
    dramatiq.set_broker(broker)
    ran = []

    class Broken(dramatiq.Middleware):
        def after_process_message(self, broker, message, *, result=None, exception=None):
            if exception is not None:
                raise RuntimeError("statsd is away")
            if message.args == ("exits",):
                raise SystemExit(1)

    class SilentError(Exception):
        def __str__(self):
            raise SystemExit(2)

    broker.add_middleware(Broken())

    @dramatiq.actor(max_retries=2, min_backoff=50, max_backoff=100)
    def retried(name):
        ran.append(name)
        if ran.count(name) == 1:
            raise ValueError(name)

    @dramatiq.actor(max_retries=0)
    def silent(name):
        ran.append(name)
        raise SilentError

    worker = dramatiq.Worker(broker, worker_threads=1)
    worker.start()
    retried.send("retried")
    eventually(lambda: ran.count("retried") == 2)
    eventually(lambda: broker.get_queue_message_counts("default") == (0, 0, 0))
    silent.send("silent")
    retried.send("again")
    eventually(lambda: ran.count("again") == 2)
    eventually(lambda: broker.get_queue_message_counts("default") == (0, 0, 1))
    retried.send("exits")
    eventually(lambda: "exits" in ran)
    eventually(lambda: broker.get_queue_message_counts("default") == (0, 0, 1))
    assert all(thread.is_alive() for thread in worker.workers)
    worker.stop()
    broker.close()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    sys.stdout.write("held\n")
