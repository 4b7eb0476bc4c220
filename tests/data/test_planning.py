"""Options and offsets, without Spark."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.decode import Selection
from data.logs import Range, TrimmedError
from data.options import EARLIEST, LATEST, OptionError, places, sink_options, source_options
from data.planning import advanced, chosen, cut, resolved, started_at, within


class FakeLog:
    """A log with records 11 to 99 of shard 0, and 1 to 9 of shard 1; record n was made at n seconds."""

    held = {0: Range(11, 100), 1: Range(1, 10)}

    def ranges(self) -> dict[int, Range]:
        return dict(self.held)

    def first_since(self, shard: int, since: float) -> int:
        return min(max(int(since), self.held[shard].first), self.held[shard].end)

    def rows(self, shard: int, first: int, end: int, selection: Selection) -> Iterator[pa.RecordBatch]:
        raise AssertionError

    def hold(self, reader: str, places: dict[int, int]) -> None:
        raise AssertionError

    def moved(self, reader: str, places: dict[int, int]) -> None:
        raise AssertionError

    def close(self) -> None:
        """Nothing."""


def options(**given: str) -> dict[str, str]:
    return {"bootstrap.servers": "127.0.0.1:1", **given}


def test_places_are_named_as_kafka_names_them() -> None:
    log = FakeLog()
    asked = places("startingOffsets", '{"0": 20, "1": -1}')
    assert resolved(log, log.ranges(), asked, None) == {"0": 20, "1": 10}
    assert resolved(log, log.ranges(), places("startingOffsets", "earliest"), None) == {"0": 11, "1": 1}
    assert resolved(log, log.ranges(), places("endingOffsets", '{"0": -2}'), None) == {"0": 11, "1": 10}
    assert resolved(log, log.ranges(), places("startingOffsets", "earliest"), 50.0) == {"0": 50, "1": 10}
    assert places("startingOffsets", "LATEST").names_latest
    assert places("endingOffsets", '{"0": 5}').others == LATEST
    assert places("startingOffsets", '{"0": 5}').others == EARLIEST


@pytest.mark.parametrize("text", ["soon", '{"0": "x"}', "[1]", '{"a": 1}', '{"0": -3}', '{"0": true}', '{"0": 1.5}'])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets"):
        places("startingOffsets", text)


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"bootstrap.servers": ""}, "either bootstrap.servers"),
        ({"bootstrap.servers": "host"}, "HOST:PORT"),
        ({"path": "/x"}, "either"),
        ({"subscribe": "a", "subscribePattern": "b"}, "together"),
        ({"subscribePattern": "("}, "regular expression"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"startingTimestamp": "yesterday"}, "milliseconds"),
        ({"shards": "one"}, "shards"),
        ({"startingOffset": "earliest"}, "no option 'startingoffset'"),
    ],
)
def test_an_option_that_can_not_be_is_named(given_: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        source_options(options(**given_))


def test_options_have_no_case_and_defaults_that_lose_nothing() -> None:
    found = source_options({"BOOTSTRAP.SERVERS": "a:1,b:2", "GroupID": "me", "SUBSCRIBE": "x, y"})
    assert (found.servers, found.group, found.queues) == (("a:1", "b:2"), "me", frozenset({"x", "y"}))
    assert (found.starting.others, found.fails_on_loss, found.offsets_per_trigger) == (EARLIEST, True, 200_000)


def test_a_beginning_takes_the_place_of_another_however_it_was_spelled() -> None:
    given = options(STARTINGOFFSETS="latest", startingTimestamp="5", subscribe="q")
    assert started_at(given, "earliest") == options(subscribe="q", startingOffsets="earliest")


def test_a_sink_needs_servers_and_bounds_its_batches() -> None:
    with pytest.raises(OptionError, match="wanted"):
        sink_options({"queue": "q"})
    with pytest.raises(OptionError, match="1000"):
        sink_options(options(batchSize="1001"))
    assert sink_options(options(checkpointLocation="/tmp")).batch_size == 1000


def test_what_is_trimmed_is_a_fault_that_names_shard_and_record_or_is_passed_over() -> None:
    with pytest.raises(TrimmedError, match="shard 0: record 5 is wanted, and the first that is kept is 11"):
        within({"0": 5, "1": 1}, FakeLog.held, source_options(options()))
    with pytest.raises(TrimmedError, match="partition 0: message 5 is wanted, and the first that is kept is 11"):
        within({"0": 5, "1": 1}, FakeLog.held, source_options(options(topic="t")))
    careless = source_options(options(failOnDataLoss="false"))
    assert within({"0": 5, "1": 1}, FakeLog.held, careless) == {"0": 11, "1": 1}


def test_a_topics_partitions_are_read_whole_unless_more_parts_are_wanted() -> None:
    start, end = {"0": 5, "1": 7, "2": 0}, {"0": 1_000_000, "1": 7, "2": 10}
    assert cut(start, end, whole=True) == [(0, 5, 1_000_000), (2, 0, 10)]
    assert cut(start, end, 2, whole=True) == [(0, 5, 1_000_000), (2, 0, 10)]
    assert len(cut(start, end, 10, whole=True)) == 11
    with pytest.raises(ValueError, match="another log"):
        cut({"0": 9}, {"0": 5}, whole=True)


@pytest.mark.parametrize("name", ["path", "subscribe", "subscribePattern", "shards", "pushFilters"])
def test_a_topic_stands_beside_nothing_that_is_about_the_log(name: str) -> None:
    given = options(topic="t", **{name: "1"})
    with pytest.raises(OptionError, match=f"topic and {name}"):
        source_options(given)


def test_shards_are_chosen() -> None:
    assert chosen(FakeLog.held, source_options(options(shards="1"))) == {1: Range(1, 10)}
    with pytest.raises(ValueError, match="no shard 7"):
        chosen(FakeLog.held, source_options(options(shards="0,7")))


OFFSETS = st.dictionaries(st.sampled_from(["0", "1", "2"]), st.integers(1, 2_000_000), min_size=1)


@given(OFFSETS, st.integers(0, 3_000_000), st.integers(0, 40))
def test_parts_are_all_of_the_records_each_once(start: dict[str, int], more: int, parts_min: int) -> None:
    end = {shard: at + more for shard, at in start.items()}
    parts = cut(start, end, parts_min)
    for shard, at in start.items():
        mine = sorted((first, upto) for number, first, upto in parts if str(number) == shard)
        edges = [at, *(upto for _, upto in mine)]
        assert [first for first, _ in mine] == edges[:-1]
        assert edges[-1] == at + more
    if parts_min and more * len(start) >= parts_min:
        assert len(parts) >= min(parts_min, more * len(start)) // 2
    assert len(parts) <= max(parts_min * 2 + 3, 3 + more * len(start) // 20_000 + 3)


def test_an_end_before_the_start_is_another_log() -> None:
    with pytest.raises(ValueError, match="another log"):
        cut({"0": 10}, {"0": 5})


@given(
    OFFSETS,
    st.dictionaries(st.sampled_from(["0", "1", "2"]), st.integers(1, 2_000_000), min_size=1),
    st.integers(1, 1000),
)
def test_a_batch_goes_on_within_its_limit_and_comes_to_the_end(
    start: dict[str, int], heads: dict[str, int], limit: int
) -> None:
    end = advanced(start, heads, limit)
    assert all(end[shard] >= at for shard, at in start.items())
    assert all(at <= max(heads.get(shard, at), start.get(shard, 0)) for shard, at in end.items())
    waiting = sum(max(at - start.get(shard, at), 0) for shard, at in heads.items())
    taken = sum(at - start.get(shard, at) for shard, at in end.items())
    assert taken <= limit + 3
    assert taken > 0 or not waiting
    assert advanced(start, heads, None) == {**start, **{s: max(h, start.get(s, h)) for s, h in heads.items()}}


def test_who_reads_and_writes_is_said_by_options_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUORATE_TOKEN", raising=False)
    found = source_options({"bootstrap.servers": "a:1", "token": "w.t", "tls": "true", "ca": "/ca.pem"}).credentials
    assert (found.token, found.has_tls, found.ca) == ("w.t", True, "/ca.pem")
    assert sink_options({"bootstrap.servers": "a:1", "token": "w.t"}).credentials.token == "w.t"
    assert source_options({"bootstrap.servers": "a:1"}).credentials.token is None
