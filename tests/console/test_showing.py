"""How things are told."""

import pytest

from console import showing
from console.pages import back_of
from console.views import Samples, rate


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
    assert rate({"produced": 100}, {"produced": 160}, ("produced",), 2) == 30
    assert rate({"produced": 100}, {"produced": 10}, ("produced",), 2) == 5
    assert rate({}, {}, ("produced",), 0) == 0
    samples = Samples()
    for at, made, came in ((0.0, 0, 0.0), (2.0, 20, 10.0), (4.0, 20, 0.0)):
        samples.add(at, {"ready": made, "delayed": 0, "in_flight": 0}, came, 0.0)
    assert samples.columns() == [[0, 2, 4], [0, 20, 20], [0, 0, 0], [0, 0, 0], [0, 10, 0], [0, 0, 0]]


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "https://evil.example", "", "evil", "/\tx"])
def test_nobody_is_sent_elsewhere_after_logging_in(path: str) -> None:
    assert back_of(path) == "/"
    assert back_of("/queue?name=a") == "/queue?name=a"
