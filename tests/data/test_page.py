"""The report's charts and page, without Spark."""

import html
import re
from datetime import datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from data.charts import INK, bars, lines
from data.page import Section, Table, duration, page, shown

BEGIN = datetime(2026, 1, 1)
TIMES = [BEGIN + timedelta(minutes=n) for n in range(50)]


class Checker(HTMLParser):
    """Every tag that is opened is closed."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in ("src", "onload"), value
            assert not (name in ("href", "xlink:href") and value and not value.startswith("#")), (
                "nothing from elsewhere"
            )

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_charts_take_the_pages_colours() -> None:
    chart = lines("Backlog", "messages", [(f"q{n}", TIMES, [float(n)] * 50) for n in range(9)], steps=True)
    assert "var(--ink)" in chart
    assert {f"var(--series-{n})" for n in range(9)} <= set(re.findall(r"var\(--series-\d\)", chart))
    assert INK not in chart
    assert not re.search(r"#(?!c\d)[0-9a-f]{6}\b", chart.replace("#ffffff", "")), "no other colour is fixed"


def test_a_queues_name_is_only_a_name() -> None:
    names = ["$\\foo$", "a_$^_$", "_hidden", "<b>"]
    chart = lines("Backlog", "messages", [(name, TIMES, [1.0] * 50) for name in names])
    assert all(name in html.unescape(chart) for name in names)
    assert "_hidden" in bars("Latency", "s", names, [("p50", [1.0] * 4)])


def test_a_page_is_whole_and_holds_a_thousand_queues_and_hostile_names() -> None:
    hostile = "<script>alert(1)</script>" + "x" * 230
    rows: list[dict[str, Any]] = [{"queue": f"queue-{n}" if n else hostile, "produced": n} for n in range(1000)]
    groups: list[tuple[str, list[float | None]]] = [("p50", [0.1] * 12), ("p99", [None] * 12)]
    chart = bars("Latency", "seconds", [row["queue"] for row in rows[:12]], groups)
    table = Table((("queue", "queue"), ("produced", "produced")), rows[:50], len(rows))
    text = page("Title", ["about"], [("produced", "1")], [Section("Queues", "says", chart, table)])
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert "<script" not in text
    assert "950 more in the Parquet tables." in "".join(checker.texts)
    assert len(text) < 300_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.0, "0 s"), (0.0000021, "2.1 us"), (0.0123, "12.3 ms"), (75.0, "1.25 min"), (9e5, "10.4 d")],
)
def test_durations_are_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_values_are_for_people() -> None:
    assert [shown(one) for one in (None, True, 1234567, 0.123456, 12345.6, BEGIN)] == [
        "-", "yes", "1,234,567", "0.123", "12,346", "2026-01-01 00:00:00",
    ]  # fmt: skip


def test_nothing_to_show_is_no_fault() -> None:
    assert "<svg" in lines("Throughput", "messages/s", [("came", [], [])])
