"""Live messages by id: as a dict would have them, whatever id is asked for."""

from hypothesis import given
from hypothesis import strategies as st

from storage.live_messages import LiveMessages
from storage.message import Message

IDS = st.sampled_from([shard + 1024 * number for number in range(4) for shard in (0, 3, 4)]) | st.integers(-3000, 3000)


def message(msg_id: int) -> Message:
    return Message("q", msg_id, b"1", 1.0, 1.0, 9.0, 5.0, 0, None)


@given(st.lists(st.tuples(IDS, st.booleans())))
def test_it_holds_what_a_dict_would(steps: list[tuple[int, bool]]) -> None:
    live, model = LiveMessages(3), dict[int, Message]()
    for msg_id, is_added in steps:
        if is_added:
            one = message(msg_id)
            assert live.add(msg_id, one) == (msg_id not in model)
            model.setdefault(msg_id, one)
        else:
            assert live.pop(msg_id) is model.pop(msg_id, None)
        assert list(live) == list(model)
        assert list(live.values()) == list(model.values())
        assert len(live) == len(model)
        assert bool(live) == bool(model)
        for other in (msg_id, msg_id + 1, msg_id * 1024 + 3, -1 - msg_id):
            assert live.get(other) is model.get(other)
            assert (other in live) == (other in model)
    for msg_id, one in model.items():
        assert live[msg_id] is one


def test_messages_in_a_row_stand_in_a_row() -> None:
    live = LiveMessages(3)
    for number in range(1, 6):
        live.add(1024 * number + 3, message(1024 * number + 3))
    assert list(live._by_key) == [1, 2, 3, 4, 5]
