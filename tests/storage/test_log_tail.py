"""The log's end: who made which record, what a cut leaves, and what the journal says of it after a restart."""

import pytest

import quorate_compiled
from storage import entry_codec
from storage.entry import LogEnd, StoredEntry
from storage.log_tail import LogTail
from storage.records import Remove
from storage.recovery import standing_entries
from tests.cost import lines_of


def made(first: int, last: int, vote_id: int) -> StoredEntry:
    records = [Remove(f"q{n}") for n in range(first, last + 1)]
    return StoredEntry(first, last, vote_id, entry_codec.encode(vote_id, first, 1.0, list(records)))


def tail() -> LogTail:
    return LogTail([(0, 1)], 10, [made(11, 12, 1), made(13, 13, 3), made(14, 20, 3), made(21, 22, 5)])


def test_every_record_is_known_by_the_vote_that_made_it() -> None:
    log = tail()
    assert log.end == LogEnd(5, 22)
    assert [log.vote_id_at(n) for n in (0, 10, 12, 13, 20, 21, 22, 23)] == [1, 1, 1, 3, 3, 5, 5, None]
    assert [log.end_of(vote_id) for vote_id in (0, 1, 2, 3, 4, 5, 9)] == [0, 12, 12, 20, 20, 22, 22]


def test_a_cut_brings_back_the_vote_before_it() -> None:
    log = tail()
    log.cut(13)
    assert log.end == LogEnd(3, 13)
    assert log.vote_id_at(14) is None
    log.append(made(14, 14, 6))
    assert log.end == LogEnd(6, 14)
    log.cut(10)
    assert log.end == LogEnd(1, 10)
    assert log.bytes == 0


def test_what_lmdb_has_is_forgotten_but_for_who_made_it() -> None:
    log = tail()
    log.forget(13)
    assert log.checkpointed == 13
    assert log.vote_id_at(11) == 1
    assert [entry.first_trans_id for entry in log.behind(0)] == [14, 21]
    log.forget_history(13)
    assert log.vote_id_at(13) == 3
    assert log.vote_id_at(12) is None
    with pytest.raises(AssertionError):
        log.cut(12)


def test_entries_are_given_out_within_limits() -> None:
    log = tail()
    assert [entry.last_trans_id for entry in log.behind(12, up_to=20)] == [13, 20]
    assert [entry.last_trans_id for entry in log.behind(12, bytes_max=1)] == [13]
    assert [log.boundary(n) for n in (9, 12, 15, 20, 99)] == [10, 12, 13, 20, 22]


def test_an_entry_that_does_not_follow_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        tail().append(made(24, 24, 5))
    with pytest.raises(AssertionError):
        tail().append(made(23, 23, 4))


def test_the_journal_is_read_without_what_was_cut_off() -> None:
    entries = [made(1, 2, 1), made(3, 5, 1), made(6, 9, 1), entry_codec.cut(2, 5), made(6, 6, 2)]
    standing = standing_entries([entry.data for entry in entries])
    assert [(one[0].first_trans_id, one[0].vote_id) for one in standing if one[0]] == [(1, 1), (3, 1), (6, 2)]


def test_a_later_entry_stands_in_the_place_of_an_older_one_even_without_a_cut() -> None:
    entries = [made(1, 2, 1), made(3, 9, 1), made(3, 3, 4)]
    standing = standing_entries([entry.data for entry in entries])
    assert [(one[0].first_trans_id, one[0].vote_id) for one in standing if one[0]] == [(1, 1), (3, 4)]


@pytest.mark.skipif(quorate_compiled.running() == "compiled", reason="compiled code has no lines")
def test_what_is_behind_a_record_is_found_at_the_same_cost_in_a_long_log() -> None:
    """It went through all from LMDB's end at each commit: where LMDB stalls, a follower's work grew with the square."""
    costs = []
    for count in (64, 8192):
        long = LogTail([], 0, [made(number, number, 1) for number in range(1, count + 1)])
        costs.append(lines_of(lambda: long.behind(count - 3)))  # noqa: B023  # called at once
        assert [entry.first_trans_id for entry in long.behind(count - 3)] == [count - 2, count - 1, count]
    assert costs[1] <= costs[0] + 3 * 7, "seven halvings more, each with its key"
