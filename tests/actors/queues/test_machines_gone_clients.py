"""What is done of requests whose client is not there any more, and what is not."""

import pytest

from quorate.protocol import Action
from tests.actors.queues.shard import Shard


class Gone:
    """A client that is not there any more."""

    has_left = is_gone = True

    has_ended = False

    def answer(self, *arguments: object) -> None:
        """Nobody hears it."""


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        (Action.CONFIGURE, {"max_size": 1}),
        (Action.CLEAR, {}),
        (Action.REMOVE, {}),
        (Action.POSITION, {"queue": None, "reader": "r", "trans_id": 1}),
    ],
)
def test_what_sets_or_clears_is_not_done_late_for_a_client_that_is_gone(action: int, fields: dict[str, object]) -> None:
    """It gave up, asked again, and went on from there: what it had asked first would undo that."""
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data=1)
    before = len(shard.log)
    named = {name: value for name, value in {"queue": "q", **fields}.items() if value is not None}
    late = shard.send(action, Gone(), **named)
    assert shard.replies[late]["error"] == "given_up"
    assert len(shard.log) == before
    assert shard.ask(action, **named)["code"] == 0
    assert len(shard.log) > before


def test_nothing_is_done_for_a_client_that_is_gone() -> None:
    """Its stream is closed: it has seen that its requests were not answered, and may have asked for them elsewhere."""
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data=1, retry=9)["msg_id"]
    shard.ask(Action.CONSUME, queue="q")
    before = len(shard.log)
    for asked in (
        shard.send(Action.CONFIRM, Gone(), msg_id=msg_id),
        shard.send(Action.PRODUCE, Gone(), queue="q", data=2),
        shard.send(Action.CONSUME, Gone(), queue="q"),
    ):
        assert shard.replies[asked]["error"] == "given_up"
    assert len(shard.log) == before


EVERYTHING = [
    (Action.PRODUCE, {"data": 1}, False),
    (Action.CONSUME, {}, False),
    (Action.MONITOR, {}, False),
    (Action.CONFIGURE, {"max_size": 1}, True),
    (Action.CLEAR, {}, True),
    (Action.REMOVE, {}, True),
    (Action.MOVE, {"to": "other", "count": 1, "create": True}, True),
]


@pytest.mark.parametrize("was_late", [True, False])
@pytest.mark.parametrize(("action", "fields", "sets"), EVERYTHING)
def test_what_a_half_closed_client_asked_is_done_unless_it_sets_something_and_was_late(
    action: int, fields: dict[str, object], sets: bool, was_late: bool
) -> None:
    shard, client = Shard(), Leaving()
    client.has_left = True
    shard.ask(Action.PRODUCE, queue="q", data=1)
    call = shard.call(action, client, queue="q", **fields)
    call.was_late = was_late
    shard.execute([call])
    shard.settle()
    reply = shard.replies[call.order]
    assert reply.get("error") == ("given_up" if sets and was_late else None)


def test_a_message_goes_to_nobody_who_has_left_and_stands_in_line_still() -> None:
    """Hundreds may leave at one moment, and are forgotten in turns."""
    shard, gone = Shard(), Leaving()
    left = shard.send(Action.CONSUME, gone, queue="q", wait=60.0)
    stays = shard.send(Action.CONSUME, queue="q", wait=60.0)
    gone.has_left = True
    msg_id = shard.ask(Action.PRODUCE, queue="q", data=1, retry=9)["msg_id"]
    assert "msg_id" not in shard.replies[left]
    assert shard.replies[stays]["msg_id"] == msg_id


class Leaving(Gone):
    """One that is there, for now."""

    has_left = is_gone = False

    has_ended = False
