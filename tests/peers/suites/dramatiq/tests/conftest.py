"""Fixtures of dramatiq's own tests, with our broker in place of its own. Lies beside them when they run."""

import os
import uuid
from collections import defaultdict

import dramatiq
import pytest
from dramatiq import Worker
from dramatiq.rate_limits import backends as limits

from quorate.dramatiq import QuorateBroker
from quorate.dramatiq_results import QuorateResultBackend

URL = os.environ["QUORATE_URL"]


class DeadLetters(dramatiq.Middleware):
    def __init__(self):
        self.by_queue = defaultdict(list)

    def before_nack(self, broker, message):  # not after: whoever joins the queue may see it empty before that
        self.by_queue[message.queue_name].append((message, message._exception))


class Broker(QuorateBroker):
    """With what the stub broker has for tests: `join` raises what a message failed with."""

    def __init__(self, **options):
        super().__init__(URL, namespace=uuid.uuid4().hex[:8], **options)
        self.dead = DeadLetters()
        self.add_middleware(self.dead)

    @property
    def dead_letters(self):
        return [one._message for messages in self.dead.by_queue.values() for one, _ in messages]

    def join(self, queue_name, *, fail_fast=True, **options):
        super().join(queue_name, **options)
        if fail_fast:
            for _, error in self.dead.by_queue[queue_name]:
                raise (error or Exception("failed")) from None


@pytest.fixture
def stub_broker():
    broker = Broker()
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    broker.flush_all()
    broker.close()


def started(broker, threads, timeout):
    worker = Worker(broker, worker_timeout=timeout, worker_threads=threads)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def stub_worker(stub_broker):
    yield from started(stub_broker, 32, 100)


@pytest.fixture
def plain_broker():
    broker = QuorateBroker(URL, namespace=uuid.uuid4().hex[:8])
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    broker.flush_all()
    broker.close()


@pytest.fixture
def rabbitmq_broker(plain_broker):
    return plain_broker


@pytest.fixture
def redis_broker(plain_broker):
    return plain_broker


@pytest.fixture
def rabbitmq_worker(rabbitmq_broker):
    yield from started(rabbitmq_broker, 32, 1000)


@pytest.fixture
def redis_worker(redis_broker):
    yield from started(redis_broker, 32, 1000)


@pytest.fixture
def result_backend():
    backend = QuorateResultBackend(URL, queue=f"results.{uuid.uuid4().hex[:8]}")
    yield backend
    backend.results.client.close()


@pytest.fixture
def rate_limiter_backend():
    return limits.StubBackend()
