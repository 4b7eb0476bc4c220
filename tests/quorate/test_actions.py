"""The table of actions is whole, and says of each what the others rest on."""

from pathlib import Path

from quorate.actions import BASE_LEVEL, BY_NUMBER, LATER, LOOKS, NEEDS_SPACE, TABLE, WRITES
from quorate.protocol import Action
from storage import records


def test_every_action_has_one_row() -> None:
    assert {facts.action for facts in TABLE} == set(Action)
    assert len(BY_NUMBER) == len(TABLE)
    assert len({facts.name for facts in TABLE}) == len(TABLE)


def test_what_needs_space_writes_and_what_looks_does_not() -> None:
    assert NEEDS_SPACE <= WRITES
    assert not LOOKS & WRITES


def test_the_feature_level_that_an_action_needs_is_that_of_its_record() -> None:
    assert records.BASE_LEVEL == BASE_LEVEL
    of_topics = (
        Action.TOPIC,
        Action.APPEND,
        Action.READ,
        Action.GROUP,
        Action.COMMIT,
        Action.TRANSACTION,
        Action.PREPARED,
    )
    assert dict.fromkeys(of_topics, records.STREAMS_LEVEL) == LATER, "an action of a later level needs its row here"


def test_the_documentation_names_every_action() -> None:
    text = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    for action in Action:
        assert f"{action.value}" in text, action.name
