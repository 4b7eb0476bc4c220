"""How long an entry waits for those whose clients the last commit has freed."""

from hypothesis import given
from hypothesis import strategies as st

from actors.runtime.commit_delay import ENOUGH, GATHER_FEW_S, GATHER_S, SKIPPED_MAX, CommitDelay


def test_without_a_commit_before_it_an_entry_is_written_at_once() -> None:
    assert CommitDelay().is_over(0.0, 1)


def test_after_a_commit_the_entry_waits_for_those_that_were_freed() -> None:
    gathering = CommitDelay()
    gathering.committed(0.0, still_parked=1, freed=3)
    assert not gathering.is_over(0.0001, 3)
    assert gathering.is_over(0.0002, 4)


def test_the_wait_is_over_in_time_and_the_next_commits_do_not_wait() -> None:
    gathering = CommitDelay()
    gathering.committed(0.0, 0, 8)
    assert gathering.is_over(GATHER_S, 1)
    gathering.committed(1.0, 0, 8)
    assert gathering.is_over(1.0, 1)


def test_few_clients_of_several_nodes_are_waited_for_longer_and_many_are_not() -> None:
    few, many = CommitDelay(), CommitDelay()
    few.committed(0.0, 0, ENOUGH - 1, is_shared=True)
    many.committed(0.0, 0, ENOUGH, is_shared=True)
    assert not few.is_over(GATHER_S, 1)
    assert few.is_over(GATHER_FEW_S, 1)
    assert many.is_over(GATHER_S, 1)


@given(st.floats(0.0, 1e9), st.floats(0.0, 1.5 * GATHER_S))
def test_when_what_is_left_has_passed_it_is_over(begun: float, passed_s: float) -> None:
    gathering = CommitDelay()
    gathering.committed(begun, 0, 8)
    now = begun + passed_s
    left_s = gathering.left_s(now)
    assert left_s <= GATHER_S + 2e-6
    assert gathering.is_over(now + left_s, 1)


def test_waits_in_vain_become_rare() -> None:
    gathering, waits = CommitDelay(), 0
    for number in range(1000):
        gathering.committed(float(number), 0, 2)
        if not gathering.is_over(float(number), 1):
            waits += 1
            assert gathering.is_over(number + GATHER_S, 1)
    assert waits < 1000 / SKIPPED_MAX * 2 + 10
