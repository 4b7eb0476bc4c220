"""How task queues reject a message: buried, or copied where that may not be; and whose turn it is among queues."""

from typing import Any

import pytest

from quorate import Client, Message, RefusedError
from quorate.dead_letters import check_lapses, dead_letters_of, lapsed, reject
from quorate.protocol import HEADERS_MAX, NAME_BYTES_MAX
from quorate.shards import shard_of_queue
from quorate.turns import Turns
from tests.conftest import StartNode


@pytest.mark.parametrize("queue", ["celery", "{a}.b", "ü" * 20])
def test_dead_letters_lie_in_the_shard_of_their_queue(queue: str) -> None:
    for shards in (2, 3, 7):
        assert shard_of_queue(dead_letters_of(queue, ".XQ"), shards) == shard_of_queue(queue, shards)


@pytest.mark.parametrize("queue", ["q" * 255, "ü" * 127, "\U0001f984" * 63])
def test_a_name_that_would_be_too_long_is_cut(queue: str) -> None:
    assert len(dead_letters_of(queue, ".XQ").encode()) <= NAME_BYTES_MAX


def taken(client: Client, queue: str) -> Message:
    client.produce(queue, {"n": 1}, headers={"trace": "t"})
    message = client.consume(queue)
    assert message is not None
    return message


def test_a_message_is_buried_and_where_its_queue_says_so_elsewhere(start_node: StartNode) -> None:
    with start_node().client() as client:
        for queue, own in (("a", None), ("b", "graves")):
            if own is not None:
                client.configure(queue, dead_letter=own)
            message = taken(client, queue)
            reject(client, message, "why", f"{queue}.XQ")
            [dead] = client.peek(own or f"{queue}.XQ")
            assert ((dead.dead or {})["reason"], dead.headers) == ("why", {"trace": "t"})
            assert client.monitor(queue)["size"] == 0


def test_one_that_can_not_be_buried_is_copied_and_one_that_is_anothers_is_left_alone(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_node().client() as client:

        def refused(queue: str, **settings: object) -> dict[str, object]:
            raise RefusedError("not_allowed", "it may not", {})

        monkeypatch.setattr(client, "configure", refused)
        message = taken(client, "q")
        reject(client, message, "why" * 200, "q.XQ")
        [copy] = client.peek("q.XQ")
        assert copy.data == {"n": 1}
        assert copy.headers["trace"] == "t"
        assert copy.headers["reason"].startswith("whywhy")
        assert client.monitor("q")["size"] == 0
        reject(client, message, "again", "q.XQ")
        assert client.monitor("q.XQ")["size"] == 1, "it was gone"
        reject(client, taken(client, "q"), "why", "x" * 300)
        assert client.monitor("q")["delayed"] == 1, "nothing is lost, and it does not come again at once"


def test_what_can_not_be_copied_with_its_reason_rests(start_node: StartNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its headers have no place for the reason."""
    with start_node().client() as client:

        def refused(queue: str, **settings: object) -> dict[str, object]:
            raise RefusedError("not_allowed", "it may not", {})

        monkeypatch.setattr(client, "configure", refused)
        client.produce("full", 1, headers={f"h{n}": "" for n in range(HEADERS_MAX)})
        message = client.consume("full")
        assert message is not None
        reject(client, message, "why", "full.XQ")
        assert client.monitor("full")["delayed"] == 1


@pytest.mark.parametrize("may_be_set", [True, False])
def test_a_copy_stands_there_once_however_often_it_is_asked(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch, may_be_set: bool
) -> None:
    """The answer to a copy was lost, and it was asked again."""
    with start_node().client() as client:
        message = taken(client, "q")
        copied = client.produce("q.XQ", 1, key=f"rejected.{message.msg_id}")

        def refused(queue: str, **settings: object) -> dict[str, object]:
            raise RefusedError("not_allowed", "it may not", {})

        monkeypatch.setattr(client, "configure", refused)
        reject(client, message, "why", "q.XQ")
        assert [row.msg_id for row in client.peek("q.XQ", 10)] == [copied]
        assert client.monitor("q")["size"] == 0


@pytest.mark.parametrize(
    ("deliveries", "nacks", "lapses_max", "is_over"),
    [(1, 0, 1, False), (2, 0, 1, True), (3, 2, 1, False), (11, 0, 10, True), (11, 1, 10, False), (99, 0, None, False)],
)
def test_a_message_is_over_when_its_deliveries_lapse_and_not_when_it_is_given_back(
    deliveries: int, nacks: int, lapses_max: int | None, is_over: bool
) -> None:
    message = Message(1, "q", None, deliveries, deliveries_here=deliveries, nacks=nacks, retry=60.0)
    why = lapsed(message, lapses_max)
    assert (why is not None) == is_over
    assert why is None or "60 s" in why


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "3"])
def test_how_many_may_lapse_is_checked(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_lapses"):
        check_lapses(wrong)


def test_the_queue_that_was_served_is_last() -> None:
    turns = Turns(["a", "b", "c"])
    turns.served("a")
    assert turns.asked == ["b", "c", "a"]
    turns.served("c")
    turns.served("none of them")
    assert turns.asked == ["b", "a", "c"]
    alone = Turns("a")
    alone.served("a")
    assert alone.asked == "a"
    with pytest.raises(ValueError, match="at least one"):
        Turns([])
