"""What a stretch of the log is about is described in pieces, bounded in rows and bytes."""

from storage.message import Message
from storage.message_ids import message_id
from storage.records import Confirm, Deliver
from storage.state import ShardState
from storage.stretches import STRETCH_BYTES, STRETCH_IDS, Stretch
from storage.trimming import PIECE_BYTES, PIECE_ROWS, Trim, describing, trim_now


class Shard:
    """A state, and a log of entries of `each` records."""

    def __init__(self, stretch_records: int = 5000) -> None:
        self.state = ShardState(stretch_records=stretch_records)
        self.state.stretches.begin(0)

    def entry(self, *records: Message | Confirm | Deliver) -> None:
        for record in records:
            self.state.apply_next(record)
        self.state.stretches.note(3, self.state.trans_id, records)

    def produce(self, count: int, size: int = 1, each: int = 1) -> None:
        for _ in range(count // each):
            first = self.state.trans_id + 1
            self.entry(*(self.message(first + index, size) for index in range(each)))

    @staticmethod
    def message(number: int, size: int) -> Message:
        return Message("q", message_id(number, 0), b"x" * size, 1.0, 1.0, 9.0, 5.0, 0, None)

    def confirm(self, number: int) -> None:
        message = self.state.messages[message_id(number, 0)]
        self.entry(Confirm("q", [message.msg_id], [message.last or number]))

    def deliver(self, number: int) -> None:
        message = self.state.messages[message_id(number, 0)]
        self.entry(Deliver("q", [message.msg_id], [message.last or number], [5.0], [1]))


def pieces(stretch: Stretch, state: ShardState) -> tuple[int, Trim]:
    """Describe a stretch; in how many pieces."""
    steps, count = describing(stretch, state), 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def test_many_small_messages_take_many_pieces() -> None:
    shard = Shard(stretch_records=5 * PIECE_ROWS)
    shard.produce(5 * PIECE_ROWS, each=100)
    stretch = shard.state.stretches.first(5 * PIECE_ROWS)
    assert stretch is not None
    count, (until, vote_id, rows) = pieces(stretch, shard.state)
    assert count >= 5
    assert (until, vote_id) == (5 * PIECE_ROWS, 3)
    assert len(rows.messages) == 5 * PIECE_ROWS
    assert [name for name, row in rows.queues if row is not None] == ["q"]


def test_large_messages_are_described_some_at_a_time_and_a_stretch_ends_where_it_is_enough() -> None:
    """A thousand messages of 200 kB were 200 MB at once, in one turn of 150 ms."""
    size, shard = 200_000, Shard()
    shard.produce(100, size, each=5)
    stretch = shard.state.stretches.first(100)
    assert stretch is not None
    count, (_, _, rows) = pieces(stretch, shard.state)
    assert count >= STRETCH_BYTES // PIECE_BYTES
    described = sum(len(row) for _, row in rows.messages)
    assert STRETCH_BYTES < described < STRETCH_BYTES + 6 * size
    assert stretch.until == len(rows.messages), "whole entries"


def test_old_messages_that_are_large_fill_a_stretch_too() -> None:
    size, shard = 1 << 20, Shard(stretch_records=100)
    shard.produce(20, size, each=20)
    assert (first := shard.state.stretches.first(20)) is not None
    assert first.until == 20
    for number in range(1, 21):
        shard.deliver(number)
    second = shard.state.stretches.first(40)
    assert shard.state.stretches.drop_trimmed(20)
    second = shard.state.stretches.first(40)
    assert second is not None
    assert second.until == 20 + STRETCH_BYTES // size


def test_an_entry_of_any_size_is_described_whole_but_not_in_one_piece() -> None:
    shard = Shard()
    shard.produce(100, 200_000, each=100)
    stretch = shard.state.stretches.first(100)
    assert stretch is not None
    count, trim = pieces(stretch, shard.state)
    assert count > 10
    assert (trim.until, len(trim.rows.messages)) == (100, 100)


def test_what_came_and_went_in_one_stretch_is_no_row_and_no_work() -> None:
    shard = Shard(stretch_records=6)
    shard.produce(2)
    for number in (1, 2):
        shard.deliver(number)
        shard.confirm(number)
    stretch = shard.state.stretches.first(6)
    assert stretch is not None
    assert (len(stretch.produced), len(stretch.touched)) == (0, 0)
    rows = trim_now(stretch, shard.state).rows
    assert (rows.messages, [*rows.gone]) == ([], [])


def test_a_message_of_an_earlier_stretch_gets_its_row_anew_or_has_none_any_more() -> None:
    shard = Shard(stretch_records=4)
    shard.produce(4)
    first = shard.state.stretches.first(4)
    assert first is not None
    rows = trim_now(first, shard.state).rows
    assert [msg_id for msg_id, _ in rows.messages] == [message_id(n, 0) for n in range(1, 5)]
    shard.deliver(1)
    shard.deliver(2)
    shard.confirm(1)
    shard.confirm(3)
    assert shard.state.stretches.drop_trimmed(4)
    second = shard.state.stretches.first(8)
    assert second is not None
    rows = trim_now(second, shard.state).rows
    assert [msg_id for msg_id, _ in rows.messages] == [message_id(2, 0)]
    assert [*rows.gone] == [message_id(1, 0), message_id(3, 0)]


def test_records_of_many_messages_fill_a_stretch_by_those() -> None:
    """A clear of a million names them in a thousand records: to describe them all was one turn of 0.24 s."""
    shard, each = Shard(stretch_records=1_000_000), 1000
    for number in range(1, 30 * each + 1, each):
        shard.entry(*(shard.message(number + index, 1) for index in range(each)))
    ids = [message_id(number, 0) for number in range(1, 30 * each + 1)]
    for begin in range(0, len(ids), each):
        part = ids[begin : begin + each]
        shard.entry(Confirm("q", part, [msg_id // 1024 for msg_id in part]))
    at, sizes = 0, []
    while (stretch := shard.state.stretches.first(shard.state.trans_id)) is not None:
        sizes.append(len(stretch.produced) + len(stretch.touched))
        at = stretch.until
        assert shard.state.stretches.drop_trimmed(at)
    assert len(sizes) >= 5
    assert max(sizes) <= STRETCH_IDS


def test_the_record_right_at_the_end_of_a_stretch_is_an_older_one_for_the_next() -> None:
    shard = Shard(stretch_records=4)
    shard.produce(4)
    shard.entry(Confirm("q", [message_id(3, 0), message_id(4, 0)], [3, 4]))
    shard.produce(3)
    assert shard.state.stretches.drop_trimmed(4)
    second = shard.state.stretches.first(8)
    assert second is not None
    assert [*trim_now(second, shard.state).rows.gone] == [message_id(3, 0), message_id(4, 0)]


def test_a_queue_has_a_row_of_each_stretch_that_brought_it_messages() -> None:
    shard = Shard(stretch_records=2)
    shard.produce(4)
    first, second = (shard.state.stretches._full[index] for index in range(2))
    assert (first.queues, second.queues) == (["q"], ["q"])
    assert first.queues[0] is shard.state.queues["q"].name, "one string for all"


def test_a_log_that_begins_elsewhere_is_another_log() -> None:
    shard = Shard(stretch_records=4)
    shard.produce(8)
    assert shard.state.stretches.drop_trimmed(0)
    assert not shard.state.stretches.drop_trimmed(100), "a snapshot has taken its place"
