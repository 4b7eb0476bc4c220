"""What is said of a message's end: the instant, and what happens then."""

import pytest

from quorate.expiry import expiry_of
from quorate.messages import NEVER


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"expires_at": NEVER}, "never"),
        ({"expires_at": 1795881670.9, "expire": "drop"}, "2026-11-28 16:01:10Z: it is dropped then, delivered or not"),
        ({"expires_at": 1795881670, "expire": "bury"}, "2026-11-28 16:01:10Z: it becomes a dead letter then"),
        ({"expires_at": 1795881670}, "2026-11-28 16:01:10Z: after that it is delivered once if it never was"),
    ],
)
def test_it_is_said_when_a_message_expires_and_what_happens_then(message: dict[str, object], said: str) -> None:
    assert expiry_of(message).startswith(said)
