"""The report's charts and page, without Spark."""

import html
import json
import re
import shutil
import subprocess
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
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


MEASURE = """<script>
const seen = [];
for (const svg of document.querySelectorAll("svg")) {
  const boxes = [...svg.querySelectorAll("text")].filter(t => t.textContent.trim()).map(t => {
    const box = t.getBoundingClientRect();
    return {says: t.textContent.trim(), left: box.left, right: box.right, top: box.top, bottom: box.bottom};
  });
  const around = svg.getBoundingClientRect();
  for (const [at, a] of boxes.entries()) {
    if (a.left < around.left - 1 || a.right > around.right + 1) seen.push("cut off: " + a.says);
    for (const b of boxes.slice(at + 1)) {
      const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (width > 1 && height > 2) seen.push("overlap: " + a.says + " | " + b.says);
    }
  }
}
const style = getComputedStyle(document.body);
document.body.textContent = JSON.stringify({
  seen, charts: document.querySelectorAll("svg").length, wide: document.documentElement.scrollWidth - innerWidth,
  ink: style.color, paper: style.backgroundColor,
});
</script>"""
"""Put behind a page: says what a reader would see of its charts, instead of the page."""


def looked_at(browser: str, file: Path, *, is_dark: bool) -> dict[str, Any]:
    words = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,900",
    ]
    words += [f"--blink-settings=preferredColorScheme={0 if is_dark else 1}", f"--user-data-dir={file.parent / 'home'}"]
    done = subprocess.run([*words, "--dump-dom", file.as_uri()], capture_output=True, text=True, check=True, timeout=60)
    body = re.search(r"<body[^>]*>(.*)</body>", done.stdout, re.DOTALL)
    assert body is not None, done.stderr
    found: dict[str, Any] = json.loads(html.unescape(body.group(1)))
    return found


def brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("is_dark", [False, True])
def test_a_browser_shows_every_label_for_itself_in_light_and_dark(tmp_path: Path, is_dark: bool) -> None:
    names = [f"{'a long name of a queue ' * 4}{n}" for n in range(12)]
    rows = [{"queue": f"queue-{n}", "produced": n} for n in range(1000)]
    series = [(name, TIMES, [float(n * at) for at in range(50)]) for n, name in enumerate(names[:9])]
    sections = [
        Section("Backlog", "Of all.", lines("Backlog", "messages", series, steps=True)),
        Section("Latency", "Of some.", bars("Latency", "seconds", names, [("p50", [0.1] * 12), ("p99", [9e4] * 12)])),
        Section("Queues", "A thousand.", table=Table((("queue", "queue"), ("produced", "produced")), rows, 1000)),
    ]
    file = tmp_path / "report.html"
    file.write_text(page("A report", ["from a test"], [("produced", "1,000")], sections) + MEASURE)
    assert BROWSER is not None
    found = looked_at(BROWSER, file, is_dark=is_dark)
    assert found["charts"] == 2
    assert not found["seen"]
    assert found["wide"] <= 0
    ink, paper = brightness(found["ink"]), brightness(found["paper"])
    assert (ink - paper > 120) if is_dark else (paper - ink > 120)
