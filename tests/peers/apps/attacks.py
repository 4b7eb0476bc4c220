"""What a stranger, a long task, or a fault of an application's own must not break: by the first word of the command."""

import contextlib
import os
import signal
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


class OddError(Exception):
    """What it says uses an attribute that was never set."""

    def __str__(self):
        return self.detail


def stand_still(seconds):
    """The node does not answer for so long; returns at once."""
    pids = [int(pid) for pid in os.environ["NODE_PIDS"].split()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    threading.Timer(seconds, lambda: [os.kill(pid, signal.SIGCONT) for pid in pids]).start()


def eventually(what, seconds=30):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


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
    reasons = " ".join(row["dead"]["reason"] for row in rows)
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


def publishing():
    """All tries of one publish have one key; two publishes have two. What it is known by does not travel."""
    import kombu

    import quorate.kombu  # noqa: F401
    from quorate import Client

    with Client(URL) as client, kombu.Connection(URL, transport_options={"timeout": 1}) as connection:
        producer = connection.Producer()
        queue = kombu.Queue("once")
        for _ in range(2):
            producer.publish({"a": 1}, routing_key="once", declare=[queue])
        stand_still(4)
        policy = {"max_retries": 20, "interval_start": 0.2}
        producer.publish({"a": 2}, routing_key="once", retry=True, retry_policy=policy)
        rows = client.peek("once", 10)
        assert len(rows) == 3
        assert not any("quorate_key" in str(row["data"]) for row in rows)


def headers():
    """Whatever kombu's own transports carry arrives as it was sent."""
    import datetime
    import decimal
    import uuid

    import kombu

    import quorate.kombu  # noqa: F401

    deep = []
    for _ in range(60):
        deep = [deep]
    sent = {
        "pair": "caf\udce9",
        "when": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        "id": uuid.uuid4(),
        "price": decimal.Decimal("1.5"),
        "raw": b"\xff",
        "huge": 2**70,
        "endless": float("inf"),
        "deep": deep,
        "\udce9": "name",
    }
    queue = kombu.Queue("headers")
    with kombu.Connection(URL) as connection:
        producer = connection.Producer()
        producer.publish(["f\udc80"], routing_key="headers", declare=[queue], headers={**sent, "nan": float("nan")})
        producer.publish("plain", routing_key="headers", headers={"a": [1, None]}, correlation_id="\udce9")
        got = queue(connection.channel()).get()
        assert got.payload == ["f\udc80"]
        nan = got.headers.pop("nan")
        assert nan != nan
        assert got.headers == sent, got.headers
        got.ack()
        plain = queue(connection.channel()).get()
        assert (plain.payload, plain.headers, plain.properties["correlation_id"]) == (
            "plain",
            {"a": [1, None]},
            "\udce9",
        )
        plain.ack()


def named_queues():
    """A queue that is only named has no binding in the node, and its messages come all the same."""
    import kombu

    import quorate.kombu  # noqa: F401
    from quorate import Client

    with Client(URL) as client, kombu.Connection(URL) as connection, kombu.Connection(URL) as other:
        for n in range(20):
            name = f"user-{n}"
            queue = kombu.Queue(name, kombu.Exchange(name), routing_key=name)
            connection.Producer().publish(n, exchange=name, routing_key=name, declare=[queue])
            other.Producer().publish(n, exchange=kombu.Exchange(name), routing_key=name)
        assert sorted(client.queues()) == sorted(f"user-{n}" for n in range(20))
        assert all(client.monitor(f"user-{n}")["ready"] == 2 for n in range(20))
        exchange = kombu.Exchange("shared")
        for name in ("left", "right"):
            kombu.Queue(name, exchange, routing_key="shared")(connection.channel()).declare()
        other.Producer().publish(1, exchange=exchange, routing_key="shared")
        assert [client.monitor(name)["ready"] for name in ("left", "right")] == [1, 1]
        assert "shared" not in client.queues(), "nobody has bound a queue of that name"


def unreadable():
    """What basic_get can't read is a dead letter at once, and the next message is returned."""
    import kombu

    import quorate.kombu  # noqa: F401
    from quorate import Client

    with Client(URL) as client, kombu.Connection(URL) as connection:
        client.produce("bg", {"body": "%%%a", "properties": {"body_encoding": "base64"}, "headers": {}}, retry=2)
        channel = connection.channel()
        assert channel.basic_get("bg") is None
        client.produce("bg", {"body": "%%%a", "properties": {"body_encoding": "base64"}, "headers": {}}, retry=2)
        connection.Producer().publish(1, routing_key="bg", declare=[kombu.Queue("bg")])
        assert channel.basic_get("bg").payload == 1
        assert client.monitor("bg")["in_flight"] == 1
        assert client.monitor("{bg}.XQ")["size"] == 2


def unseen_queues():
    """Who may not look at a queue does not take it for gone: its binding stays."""
    import kombu

    import quorate.kombu  # noqa: F401
    from quorate import NotAllowedError

    got = []
    one, two = kombu.Connection(os.environ["URL_ONE"]), kombu.Connection(os.environ["URL_TWO"])
    exchange = kombu.Exchange("events", "topic")
    queue = kombu.Queue("one.listener", exchange, routing_key="#", auto_delete=True)
    kombu.Consumer(
        one.channel(), [queue], callbacks=[lambda body, message: (got.append(body), message.ack())]
    ).consume()
    mine = kombu.Producer(one.channel(), exchange)

    def drain():
        with contextlib.suppress(TimeoutError):
            while True:
                one.drain_events(timeout=1)

    mine.publish("before", routing_key="a")
    drain()
    with contextlib.suppress(NotAllowedError):  # it may not produce into that queue, and is told so
        kombu.Producer(two.channel(), exchange).publish("two", routing_key="a")
    mine.publish("after", routing_key="a")
    drain()
    assert got == ["before", "after"], got
    for connection in (one, two):
        connection.close()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    sys.stdout.write("held\n")
