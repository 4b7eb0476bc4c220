"""What dramatiq's own tests import from their helpers."""

from contextlib import contextmanager

import pytest
from dramatiq import Worker

RABBITMQ_USERNAME = RABBITMQ_PASSWORD = RABBITMQ_CREDENTIALS = None
skip_unless_rabbit_mq = pytest.mark.skip(reason="this is no RabbitMQ")
skip_in_ci = skip_on_pypy = skip_on_windows = pytest.mark.filterwarnings("default")


@contextmanager
def worker(*args, **kwargs):
    one = Worker(*args, **kwargs)
    one.start()
    try:
        yield one
    finally:
        one.stop()
