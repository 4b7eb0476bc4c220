"""What the log keeps for its readers, and what they lose."""

from actors.disk.checkpointer import Retention, RetentionLimits, stretch_records
from storage.log_store import Bounds
from storage.records import ReaderPosition

LIMITS = RetentionLimits(records_max=100, reader_records_max=1000, reader_bytes_max=10_000)


def readers(**upto: int) -> dict[str, ReaderPosition]:
    return {name: ReaderPosition(at, 0.0) for name, at in upto.items()}


def test_nothing_is_trimmed_before_it_is_known_who_reads() -> None:
    """After a restart the head went before the state's owner had said that somebody reads it."""
    retention = Retention(LIMITS)
    assert retention.until(Bounds(0, 5000), 1 << 40, is_going_on=False) is None
    assert retention.until(Bounds(0, 5000), 1 << 40, is_going_on=True) is None
    retention.moved(readers(archive=2))
    assert retention.until(Bounds(0, 500), 0, is_going_on=False) == 2


def test_without_readers_the_last_records_are_kept_and_a_tenth_more() -> None:
    retention = Retention(LIMITS)
    retention.moved({})
    assert retention.until(Bounds(0, 110), 0, is_going_on=False) is None
    assert retention.until(Bounds(0, 111), 0, is_going_on=False) == 11
    assert retention.until(Bounds(5, 110), 0, is_going_on=True) == 10


def test_nothing_is_trimmed_that_the_slowest_reader_has_not_got() -> None:
    retention = Retention(LIMITS)
    retention.moved(readers(slow=40, quick=480))
    assert retention.until(Bounds(0, 500), 0, is_going_on=False) == 40
    assert retention.until(Bounds(40, 500), 0, is_going_on=False) is None
    retention.moved(readers(slow=450, quick=480))
    assert retention.until(Bounds(40, 500), 0, is_going_on=False) == 400, "what the log keeps anyway stays"


def test_a_reader_too_far_behind_loses_records_and_is_not_waited_for_any_more() -> None:
    retention = Retention(LIMITS)
    retention.moved(readers(slow=40))
    assert retention.until(Bounds(0, 1500), 0, is_going_on=False) == 500
    assert retention.trimmed(500) == [("slow", 40)]
    assert retention.trimmed(510) == [], "it is said once"
    assert retention.until(Bounds(500, 1500), 0, is_going_on=False) == 1400
    retention.moved(readers(slow=1300))
    assert retention.until(Bounds(500, 1500), 0, is_going_on=False) == 1300, "it has caught up"
    assert retention.trimmed(1350) == [("slow", 1300)], "it falls behind again"


def test_bytes_bound_it_too() -> None:
    retention = Retention(LIMITS)
    retention.moved(readers(slow=40))
    assert retention.until(Bounds(0, 500), 10_001, is_going_on=False) == 400


def test_a_reader_that_is_forgotten_holds_nothing_up() -> None:
    retention = Retention(LIMITS)
    retention.moved(readers(slow=40))
    retention.moved({})
    assert retention.until(Bounds(0, 500), 0, is_going_on=False) == 400


def test_what_goes_at_once_is_less_than_a_log_may_have_beyond_its_size() -> None:
    for records_max in (1, 10, 100, 1000, 100_000, 1_000_000):
        assert 1 <= stretch_records(records_max) <= max(records_max // 10, 1)
