"""Links that come and go: many times a minute is said once a minute, and what a start or a stop makes is told each."""

from actors.links.changes import MANY, NODES_MAX, WITHIN_S, Changes


def test_many_changes_within_a_minute_are_told_once_a_minute() -> None:
    """Found with two processes of one node: each logged 24 lines a second."""
    said: list[int] = []
    changes = Changes(said.append)
    many = [changes.note(number * 0.1, 2) for number in range(1000)]
    assert many == [False] * MANY + [True] * (1000 - MANY)
    assert said == [2, 2], "in 100 s"
    assert not changes.note(1.0, 3), "each node by itself"
    assert not changes.note(200 + WITHIN_S, 2), "it has become quiet"


def test_changes_now_and_then_are_told_each() -> None:
    changes = Changes(lambda node_id: None)
    assert not any(changes.note(number * WITHIN_S / MANY, 2) for number in range(100))


def test_however_many_numbers_strangers_say_they_take_little_memory() -> None:
    changes = Changes(lambda node_id: None)
    for node_id in range(10 * NODES_MAX):
        changes.note(0.0, node_id)
    assert len(changes._at) <= NODES_MAX
