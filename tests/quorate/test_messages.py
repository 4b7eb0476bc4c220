"""What is said of messages: their times, their data, the ids of those that were produced."""

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from typing import Any

import msgspec
import pytest

from quorate import NEVER, Client, NewMessage
from quorate.messages import Message, Produced, ShownMessage, seconds_of
from quorate.payload import encode, to_wire
from tests.conftest import StartNode


@dataclasses.dataclass
class Order:
    number: int
    at: dt.datetime


class Line(msgspec.Struct):
    order: Order
    price: decimal.Decimal


class Colour(enum.Enum):
    RED = "red"


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


AT = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (5, 5),
        (None, None),
        (dt.timedelta(minutes=2), 120.0),
        (dt.timedelta(0), 0.0),
        (AT, AT.timestamp()),
        (AT.astimezone(dt.timezone(dt.timedelta(hours=5))), AT.timestamp()),
    ],
)
def test_a_time_is_said_in_seconds(said: Any, meant: float | None) -> None:
    assert seconds_of("delay", said) == meant


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (dt.datetime(2026, 5, 1), "no time zone"),
        (dt.timedelta(seconds=-1), "from 0 to"),
        (dt.timedelta(days=365 * 40), "from 0 to"),
        (dt.datetime(1999, 1, 1, tzinfo=dt.UTC), "before September 2001"),
    ],
)
def test_a_time_that_would_be_taken_for_another_is_refused(said: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        seconds_of("ttl", said)
    with pytest.raises(ValueError, match=why):
        Client("127.0.0.1", 1).produce("q", 1, delay=said)
    with pytest.raises(ValueError, match=why):
        Client("127.0.0.1", 1).produce_many("q", [NewMessage(1, ttl=said)])


def test_never_is_shown_by_its_name_and_sent_as_a_number() -> None:
    assert repr(NEVER) == "NEVER"
    assert encode({"ttl": NEVER, "msg_id": Produced(7)}) == b'{"ttl":253402300799.0,"msg_id":7}'


UNIQUE = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("data", "sent"),
    [
        (AT, "2026-05-01T12:00:00Z"),
        ({"when": AT, "id": UNIQUE}, {"when": "2026-05-01T12:00:00Z", "id": str(UNIQUE)}),
        ([decimal.Decimal("1.50"), Colour.RED], ["1.50", "red"]),
        (Order(1, AT), {"number": 1, "at": "2026-05-01T12:00:00Z"}),
        (Line(Order(1, AT), decimal.Decimal(2)), {"order": {"number": 1, "at": "2026-05-01T12:00:00Z"}, "price": "2"}),
        (
            {
                1,
            },
            [1],
        ),
    ],
)
def test_what_json_has_not_is_said_as_msgspec_says_it(data: Any, sent: Any) -> None:
    assert to_wire(data) == {"data": sent}


def test_an_encoder_says_what_msgspec_can_not() -> None:
    def encoder(value: Any) -> Any:
        if isinstance(value, Point):
            return {"x": value.x}
        raise NotImplementedError

    assert to_wire({"at": Point(3)}, encoder) == {"data": {"at": {"x": 3}}}
    with pytest.raises(TypeError):
        to_wire({"at": Point(3)})
    with pytest.raises((TypeError, NotImplementedError)):
        to_wire({"at": object()}, encoder)


def test_what_is_nested_without_an_end_is_refused() -> None:
    endless: list[Any] = [AT]
    endless.append(endless)
    with pytest.raises(ValueError, match="nested deeper"):
        to_wire(endless)


def test_data_are_read_as_a_type(start_node: StartNode) -> None:
    line = Line(Order(1, AT), decimal.Decimal("9.99"))
    with start_node().client() as client:
        client.produce("q", line, delay=dt.timedelta(0), ttl=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
        message = client.consume("q")
        assert message is not None
        assert message.data_as(Line) == line
        with pytest.raises(msgspec.ValidationError):
            message.data_as(int)


def test_a_shown_message_says_what_a_node_says() -> None:
    shown = ShownMessage(7, "q", b"\xff", 1, key="k", state="in_flight", consumer="c")
    assert isinstance(shown, Message)
    said = shown.as_dict()
    assert (said["data"], said["encoding"], said["state"]) == ("/w==", "base64", "in_flight")
    assert "scope" not in said
    assert "headers" not in said
