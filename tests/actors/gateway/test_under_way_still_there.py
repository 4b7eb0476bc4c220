"""What a node answers to a leader that asks whether the clients of forwarded calls are still there."""

import pytest

from quorate.protocol import Action
from tests.actors.gateway.test_routing import Somebody, call, following


@pytest.mark.parametrize(
    ("has_left", "is_gone", "was_late", "after_s", "is_there"),
    [
        (False, False, False, 0.1, True),
        (False, False, True, 5.0, True),
        (True, False, False, 0.1, True),
        (True, False, True, 0.1, False),
        (True, False, False, 0.6, False),
        (True, True, False, 0.1, False),
    ],
)
def test_a_leader_that_asks_is_told_of_clients_that_have_not_given_up(
    has_left: bool, is_gone: bool, was_late: bool, after_s: float, is_there: bool
) -> None:
    routing, client = following(), Somebody()
    asked = call(Action.CLEAR, client, queue="q")
    [sent] = routing.route(1.0, [asked]).forwards
    client.has_left, client.is_gone, asked.was_late = has_left, is_gone, was_late
    found = routing.under_way.still_there(1.0 + after_s, 2, [sent.serial])
    assert found == ([sent.serial] if is_there else [])


@pytest.mark.parametrize("action", [Action.CLEAR, Action.PRODUCE])
@pytest.mark.parametrize("was_late", [True, False])
def test_a_leader_that_asks_hears_of_a_stream_that_has_ended_though_nobody_has_read_that(
    action: int, was_late: bool
) -> None:
    """A reset lay in the socket behind a clear, and the leader asked before it was read: the clear was done late."""
    routing, client = following(), Somebody()
    asked = call(action, client, queue="q")
    asked.was_late = was_late
    [sent] = routing.route(1.0, [asked]).forwards
    client.has_ended = True
    found = routing.under_way.still_there(1.1, 2, [sent.serial])
    assert found == ([] if was_late and action == Action.CLEAR else [sent.serial])
