"""What Celery's transport must not be broken by: by the first word of the command."""

import contextlib
import os
import sys
import threading
import time

from attack_tools import URL, eventually, stand_still


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
        assert not any("quorate_key" in str(row.data) for row in rows)


def headers():
    """Whatever kombu's own transports carry arrives as it was sent."""
    import datetime
    import decimal
    import uuid

    import kombu

    import quorate.kombu  # noqa: F401
    from quorate import Client

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
        with Client(URL) as client:
            client.produce("whole", {"kombu": "of another client"})
            client.produce("whole", {"kombu": '{"body": 1}'})
        other = kombu.Queue("whole")(connection.channel())
        assert [other.get().payload for _ in range(2)] == [{"kombu": "of another client"}, {"kombu": '{"body": 1}'}]
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
        assert [row.name for row in client.queue_rows("kombu", system=True)] == ["kombu.bindings."]
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
        until = time.monotonic() + 10  # a thread says what is rejected
        while client.monitor("bg")["in_flight"] != 1 and time.monotonic() < until:
            time.sleep(0.02)
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


def own_exchanges():
    """Whoever publishes to the exchange of a queue's own name reaches that queue, beside all that is bound to it."""
    import kombu

    import quorate.kombu  # noqa: F401
    from quorate import Client

    def declared(connection, name):
        queue = kombu.Queue(name, kombu.Exchange(name), routing_key=name)(connection.channel())
        queue.declare()
        return queue

    got = []
    with Client(URL) as client, kombu.Connection(URL) as one, kombu.Connection(URL) as other:
        queue = declared(one, "u")
        with kombu.Consumer(one.channel(), [queue], callbacks=[lambda body, m: (got.append(body), m.ack())]):
            other.Producer().publish("waits", exchange="u", routing_key="u")
            one.drain_events(timeout=5)
        assert got == ["waits"]
        declared(one, "x")
        one.channel().basic_publish(one.channel().prepare_message("1"), "x", "x")
        kombu.Queue("audit", kombu.Exchange("x"), routing_key="x")(one.channel()).declare()
        for _ in range(2):
            other.Producer().publish("n", exchange="x", routing_key="x")
        assert [client.monitor(name)["ready"] for name in ("x", "audit")] == [3, 2]
        one.channel().queue_delete("x")
        time.sleep(1.1)
        other.Producer().publish("n", exchange="x", routing_key="x")
        assert "x" not in client.queues(), "it is not bound any more"


def transient_tasks():
    """What is transient and no event of Celery's is not dropped: who sends it is told that no node answers."""
    import kombu

    import quorate.kombu  # noqa: F401

    with kombu.Connection(URL, transport_options={"timeout": 1}) as connection:
        exchange = kombu.Exchange("tasks", "topic", delivery_mode="transient")
        queue = kombu.Queue("tasks", exchange, routing_key="#")
        producer = connection.Producer(exchange=exchange)
        producer.publish(1, routing_key="a", declare=[queue])
        stand_still(6)
        try:
            producer.publish(2, routing_key="a")
        except Exception as error:
            refused = error
        else:
            refused = None
        assert isinstance(refused, connection.recoverable_connection_errors), refused


def rejected_later():
    """Celery's rejects hold its loop up for nothing, and are said when a node answers again."""
    import kombu

    import quorate.kombu  # noqa: F401
    from quorate import Client

    got = []
    with Client(URL) as client:
        connection = kombu.Connection(URL, transport_options={"timeout": 1, "lease": 20})
        queue = kombu.Queue("rejected")
        for n in range(4):
            connection.Producer().publish(n, routing_key="rejected", declare=[queue])
        consumer = kombu.Consumer(connection, [queue], callbacks=[lambda body, message: got.append(message)])
        consumer.consume()
        while len(got) < 4:
            connection.drain_events(timeout=5)
        stand_still(5)
        begun = time.monotonic()
        for message in got:
            message.reject()
        assert time.monotonic() < begun + 1
        eventually(lambda: client.monitor("rejected")["size"] == 0)
        assert client.monitor("{rejected}.XQ")["size"] == 4
        connection.close()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    sys.stdout.write("held\n")
