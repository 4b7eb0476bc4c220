"""The log's named readers, asked of a broker by hand."""

from quorate.protocol import Action
from storage.records import Position, ReaderPosition
from tests.actors.queues.shard import Shard


def shard_with(records: int) -> Shard:
    shard = Shard()
    for _ in range(records):
        shard.ask(Action.PRODUCE, queue="q", data="x")
    return shard


def test_a_position_is_kept_in_the_log() -> None:
    shard = shard_with(3)
    assert shard.ask(Action.POSITION, reader="archive", trans_id=2)["trans_id"] == 2
    assert shard.log[-1] == Position("", "archive", 2, shard.now)
    assert shard.ask(Action.POSITION, reader="archive")["trans_id"] == 2
    assert shard.state.facts.readers == {"archive": ReaderPosition(2, shard.now)}


def test_saying_the_same_again_costs_no_record() -> None:
    shard = shard_with(3)
    shard.ask(Action.POSITION, reader="archive", trans_id=2)
    before = len(shard.log)
    assert shard.ask(Action.POSITION, reader="archive", trans_id=2)["code"] == 0
    assert len(shard.log) == before


def test_a_position_can_be_taken_back() -> None:
    shard = shard_with(3)
    shard.ask(Action.POSITION, reader="archive", trans_id=3)
    shard.ask(Action.POSITION, reader="archive", trans_id=1)
    assert shard.ask(Action.POSITION, reader="archive")["trans_id"] == 1


def test_all_readers_are_listed_with_how_far_they_are_behind() -> None:
    shard = shard_with(5)
    shard.ask(Action.POSITION, reader="b", trans_id=1)
    shard.ask(Action.POSITION, reader="a", trans_id=4)
    shard.broker.context.view.trimmed = 2
    rows = shard.ask(Action.POSITION)["readers"]
    assert [(row["reader"], row["trans_id"], row["lag"], row["lost"]) for row in rows] == [
        ("a", 4, 3, 0),
        ("b", 1, 6, 1),
    ]


def test_a_reader_is_forgotten() -> None:
    shard = shard_with(1)
    shard.ask(Action.POSITION, reader="a", trans_id=1)
    assert shard.ask(Action.POSITION, reader="a", command="forget")["code"] == 0
    assert shard.ask(Action.POSITION, reader="a")["error"] == "no_such_reader"
    assert shard.ask(Action.POSITION, reader="a", command="forget")["error"] == "no_such_reader"


def test_what_can_not_be_is_refused() -> None:
    shard = shard_with(1)
    assert shard.ask(Action.POSITION, reader="a", trans_id=2)["error"] == "field_error", "that record is not there yet"
    assert shard.ask(Action.POSITION, trans_id=1)["error"] == "field_error"
    assert shard.ask(Action.POSITION, reader="a", trans_id=1, shard=3)["error"] == "field_error"
    assert shard.ask(Action.POSITION, reader="a", trans_id=1, command="x")["error"] == "field_error"


def test_there_is_a_bound_to_readers() -> None:
    shard = shard_with(1)
    for number in range(1000):
        assert shard.ask(Action.POSITION, reader=f"r{number}", trans_id=0)["code"] == 0
    assert shard.ask(Action.POSITION, reader="more", trans_id=0)["error"] == "limit_reached"
    assert shard.ask(Action.POSITION, reader="r7", trans_id=1)["code"] == 0
