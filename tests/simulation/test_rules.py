"""The rules by which a log is judged: what breaks one is told, and what keeps it is not."""

from collections.abc import Sequence

from storage.records import Deliver, Remove
from storage.state import ShardState
from tests.simulation.rules import IDLE, IDLE_S, Rules

USED = 1_000.0
DELIVER = Deliver(IDLE, [1], [0], [2_000.0], [1])


def judged(*entries: tuple[float, Sequence[Deliver | Remove]]) -> list[str]:
    """What is found in entries of those times."""
    rules, state = Rules(), ShardState(0)
    for time, records in entries:
        for record in records:
            rules.check(record, time, state)
    return rules.problems


def test_a_queue_goes_when_nobody_has_used_it_for_as_long_as_is_set() -> None:
    before, used = (USED - 0.1, [Remove("other")]), (USED, [DELIVER])
    assert not judged(before, used, (USED + IDLE_S, [Remove(IDLE)]))
    assert judged(before, used, (USED + 2.0, [Remove(IDLE)]))


def test_what_gathered_behind_a_slow_disk_may_be_as_old_as_the_entry_before_it() -> None:
    """Seed 7501041: a delivery and, 9 s later, the end of its queue left in one entry, which is of the later time."""
    before, stalled_s = (USED, [Remove("other")]), IDLE_S + 1.0
    assert not judged(before, (USED + stalled_s, [DELIVER, Remove(IDLE)]))
    assert judged(before, (USED + IDLE_S - 1.0, [DELIVER, Remove(IDLE)]))
