"""The state: what a record does, and that doing it again over a later state ends in the same."""

from storage.message_ids import message_id
from storage.records import Bury, Configure, Confirm, Deliver, Produce, Record, Remove
from storage.state import ShardState

NOW = 100.0


def produced(trans_id: int, queue: str) -> Produce:
    return Produce(queue, message_id(trans_id, 0), b'"x"', NOW, NOW, NOW + 99, 5.0, 0, None)


def replay(records: list[Record], *, rows: list[Produce], settings: list[Configure], trimmed: int) -> ShardState:
    """A backlog, and the records behind `trimmed` over it."""
    state = ShardState()
    state.loading = True
    for row in settings:
        state.restore_queue(row, 0)
    for message in rows:
        state.restore_message(message)
    for trans_id, record in enumerate(records, 1):
        if trans_id > trimmed:
            state.apply(trans_id, record)
    state.finish_loading(NOW)
    state.check()
    return state


def test_a_removed_queues_settings_do_not_come_back_with_a_message_that_was_buried_under_its_name() -> None:
    msg_id = message_id(1, 0)
    records: list[Record] = [
        produced(1, "q"),
        Configure("x", 5, 1.0, 0.0, 0, None, True),
        Remove("x"),
        Deliver("q", [msg_id], [1], [NOW], [1]),
        Bury("q", "x", [msg_id], [4], [NOW], [NOW + 50]),
    ]
    whole = replay(records, rows=[], settings=[], trimmed=0)
    assert not whole.queues["x"].paused
    row = produced(1, "x")
    row.last, row.expires_at = 5, NOW + 50
    again = replay(records, rows=[row], settings=[whole.queues["x"].settings()], trimmed=1)
    assert again.queues["x"].settings() == whole.queues["x"].settings()
    assert again.messages[msg_id].queue == "x"


def test_records_about_messages_that_are_gone_change_nothing() -> None:
    state = replay(
        [produced(1, "q"), Deliver("q", [1024], [1], [NOW], [1]), Confirm("q", [1024], [2])],
        rows=[],
        settings=[],
        trimmed=1,
    )
    assert not state.messages
    assert state.data_bytes == 0
