"""kombu's own tests of a transport, for ours. Lies beside them when it runs."""

import os

import kombu
import pytest
from t.integration.common import (
    BaseEventLoop,
    BaseExchangeTypes,
    BaseFailover,
    BaseMessage,
    BasePriority,
    BaseTimeToLive,
    BasicFunctionality,
)

import quorate.kombu  # noqa: F401  # it makes the scheme known

URL = os.environ["QUORATE_URL"]
DARK = os.environ["DARK_URL"]


@pytest.fixture
def connection():
    return kombu.Connection(URL)


@pytest.fixture
def invalid_connection():
    return kombu.Connection(DARK)


@pytest.fixture
def failover_connection():
    return kombu.Connection(f"{DARK};{URL}", connect_timeout=10)


class test_Basic(BasicFunctionality):  # noqa: N801
    pass


class test_Failover(BaseFailover):  # noqa: N801
    pass


class test_Exchanges(BaseExchangeTypes):  # noqa: N801
    pass


class test_Priority(BasePriority):  # noqa: N801
    PRIORITY_ORDER = "asc"


class test_Message(BaseMessage):  # noqa: N801
    pass


class test_TimeToLive(BaseTimeToLive):  # noqa: N801
    pass


class test_Loop(BaseEventLoop):  # noqa: N801
    pass
