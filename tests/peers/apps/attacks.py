"""What a stranger, a long task, or a fault of an application's own must not break: by the first word of the command."""

import os
import sys
import threading
import time

URL = os.environ["QUORATE_URL"]


def unused_queue():
    """A queue that goes when it is unused stays while its only consumer has no hands free."""
    import kombu

    import quorate.kombu  # noqa: F401

    queue = kombu.Queue("busy", expires=1.5)
    got = []
    with kombu.Connection(URL) as connection:
        producer = connection.Producer()
        for n in range(3):
            producer.publish(n, routing_key="busy", declare=[queue])
        with kombu.Consumer(connection, [queue], callbacks=[lambda body, message: got.append(message)]) as consumer:
            consumer.qos(prefetch_count=1)
            connection.drain_events(timeout=5)
            time.sleep(6)
            while len(got) < 3:
                got[-1].ack()
                connection.drain_events(timeout=5)
            got[-1].ack()
    assert [message.payload for message in got] == [0, 1, 2]


def lost_connection():
    """What is worked on when its connection is given up is still acknowledged."""
    import kombu

    import quorate.kombu  # noqa: F401
    from quorate import Client

    with Client(URL) as client:
        connection = kombu.Connection(URL)
        got = []
        queue = kombu.Queue("lost")
        connection.Producer().publish(1, routing_key="lost", declare=[queue])
        consumer = kombu.Consumer(connection, [queue], callbacks=[lambda body, message: got.append(message)])
        consumer.consume()
        connection.drain_events(timeout=5)
        connection.collect()
        got[0].ack()
        until = time.monotonic() + 10
        while client.monitor("lost")["size"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        while "quorate-leases" in [thread.name for thread in threading.enumerate()]:
            assert time.monotonic() < until
            time.sleep(0.05)


def solo():
    """In an event loop that runs the tasks itself, each is acknowledged before the next begins."""
    import kombu
    from kombu.asynchronous import Hub

    import quorate.kombu  # noqa: F401

    hub, acknowledged, begun = Hub(), set(), []

    def run(n, message):
        assert len(acknowledged) == len(begun), "the one before waits for this one"
        begun.append(n)
        time.sleep(0.001 * (n % 3))
        hub.call_soon(acknowledge, n, message)

    def acknowledge(n, message):
        acknowledged.add(n)
        message.ack()

    queue = kombu.Queue("solo")
    with kombu.Connection(URL) as connection:
        producer = connection.Producer()
        connection.register_with_event_loop(hub)
        with kombu.Consumer(connection, [queue], callbacks=[run]) as consumer:
            consumer.qos(prefetch_count=4)
            for n in range(200):
                producer.publish(n, routing_key="solo", declare=[queue])
            until = time.monotonic() + 30
            while len(acknowledged) < 200:
                assert time.monotonic() < until
                hub.run_once()
    assert sorted(begun) == list(range(200))


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
    runner.set_dead_letters()
    for path in ("this.s", "django_site.settings.os", "os.system", "antigravity", "tasks"):
        data = {"task": path, "id": "x", "args": [], "kwargs": {}, "enqueued_at": "2026-01-01T00:00:00"}
        runner.backend.client.produce("site.default", data, retry=60)
    tasks.leaving.enqueue("leaving")
    tasks.work.enqueue("fine", 0)
    thread = threading.Thread(target=runner.worker.run)
    thread.start()
    until = time.monotonic() + 20
    while runner.backend.client.monitor("site.default")["size"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    runner.worker.stop()
    thread.join(20)
    assert (runner.worker.counts["done"], runner.worker.counts["rejected"]) == (1, 1 + 5)
    assert "this" not in sys.modules, "nothing is imported for a message"
    assert "antigravity" not in sys.modules


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    sys.stdout.write("held\n")
