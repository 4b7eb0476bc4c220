"""How things are told."""

import pytest

from console import showing
from console.pages import back_of
from console.views import COUNTED, STATES, Samples, Sums


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0123, "12 ms"),
        (5.25, "5.2 s"),
        (59.4, "59 s"),
        (60, "1 m"),
        (192, "3 m 12 s"),
        (3700, "1 h 1 m"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_have_two_units(seconds: float, said: str) -> None:
    assert showing.duration(seconds) == said


def test_data_are_text_json_or_bytes_and_cut() -> None:
    assert showing.shown({"data": {"a": [1]}}) == ('{\n  "a": [\n    1\n  ]\n}', "JSON", True)
    assert showing.shown({"data": "x"})[1] == "text"
    assert showing.shown({"data": b"ab"})[:2] == ("ab", "text, as bytes")
    assert showing.shown({"data": b"\xff\x00"}) == ("ff 00", "2 bytes", True)
    text, _, is_all = showing.shown({"data": "x" * 100_000})
    assert (len(text), is_all) == (showing.DATA_SHOWN, False)
    assert showing.brief({"data": ["x" * 200]}).endswith("…")


def test_sizes_and_times() -> None:
    assert [showing.size(n) for n in (12, 2048, 50 << 20, 3 << 30)] == ["12 B", "2.0 KiB", "50 MiB", "3.0 GiB"]
    assert showing.instant(1_800_000_000.25) == "2027-01-15 08:00:00.250"
    assert showing.instant(253_402_300_799) == "never"
    assert showing.instant(None) == showing.ago(None) == ""


def test_rates_go_on_when_a_new_leader_counts_anew() -> None:
    def sums(seen: float, *shards: tuple[int, float, int, int]) -> Sums:
        rows = [
            {
                "shard": shard,
                "messages": dict.fromkeys(STATES, 1),
                "dead_letters": 0,
                "waiting_consumers": 2,
                "oldest": None,
                "totals": {**dict.fromkeys(COUNTED, 0), **totals},
            }
            for shard, since, produced, confirmed in shards
            for totals in [{"since": since, "produced": produced, "confirmed": confirmed}]
        ]
        return Sums({"queue_count": 1, "sums": rows}, seen)

    first = sums(0, (0, 5.0, 100, 50), (1, 5.0, 7, 7))
    second = sums(2, (0, 5.0, 160, 70), (1, 9.0, 10, 4))
    second.follow(first)
    assert (second.came, second.left) == (30 + 5, 10 + 2)
    alone = sums(4, (1, 9.0, 12, 4))
    alone.follow(second)
    assert (alone.came, alone.left) == (1, 0), "a shard that is missing counts for nothing"
    late = sums(100, (0, 5.0, 900, 900))
    late.follow(second)
    assert (late.came, late.counts["ready"], late.waiting) == (0, 1, 2)
    samples = Samples()
    for at, made, came in ((0.0, 0, 0.0), (2.0, 20, 10.0), (4.0, 20, 0.0)):
        samples.add(at, {"ready": made, "delayed": 0, "in_flight": 0}, came, 0.0)
    assert samples.columns() == [[0, 2, 4], [0, 20, 20], [0, 0, 0], [0, 0, 0], [0, 10, 0], [0, 0, 0]]
    samples.add(90.0, {"ready": 7, "delayed": 0, "in_flight": 0}, 0.0, 0.0)
    times, ready, *_ = samples.columns()
    assert times == [0, 2, 4, 6, 90]
    assert ready == [0, 20, 20, None, 7], "nothing is known of when nobody looked, and no line is drawn"


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "https://evil.example", "", "evil", "/\tx"])
def test_nobody_is_sent_elsewhere_after_logging_in(path: str) -> None:
    assert back_of(path) == "/"
    assert back_of("/queue?name=a") == "/queue?name=a"
