"""Charts for the report: SVG that takes its colours from the page around it, so that it is right in light and dark."""

import io
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import matplotlib as mpl
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

INK: Final = "#010203"
FAINT: Final = "#010204"
SERIES: Final = tuple(f"#0102{number:02x}" for number in range(0x10, 0x19))
"""Stand-ins, which `_themed` turns into the page's colours: no chart has them for anything else."""

NAME_MAX: Final = 28

Line = tuple[str, Sequence[datetime], Sequence[float]]


def _figure(height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(9.0, height), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(visible=True, color=FAINT, linewidth=0.5, alpha=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _themed(figure: Figure, title: str) -> str:
    """Draw the figure as inline SVG, with the page's colours and its own ids."""
    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = text.replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    for number, colour in enumerate(SERIES):
        text = text.replace(colour, f"var(--series-{number})")
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r'\1 width="100%"', text, count=1)
    mark = f"c{abs(hash(title)) % 10**8}"
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{mark}-", text)


def shortened(name: str) -> str:
    """Cut a queue's name to what a chart has room for."""
    return name if len(name) <= NAME_MAX else name[: NAME_MAX - 1] + "…"


def _legend(figure: Figure, handles: Sequence[Any], names: Sequence[str], columns: int) -> None:
    """With the names as they are: matplotlib would read a `$` as mathematics, and leave out what begins with `_`."""
    shown = [shortened(name) for name in names]
    legend = figure.legend(list(handles), shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_color(INK)
        text.set_parse_math(False)


def lines(title: str, unit: str, series: Sequence[Line], *, steps: bool = False) -> str:
    """Values over time, one line a series: nine at most."""
    figure, axes = _figure(3.4)
    for number, (_, times, values) in enumerate(series):
        colour = SERIES[number]
        if steps:
            axes.step(list(times), list(values), where="post", color=colour, linewidth=1.6)
        else:
            axes.plot(list(times), list(values), color=colour, linewidth=1.6)
    locator = AutoDateLocator(minticks=3, maxticks=8)  # with five it finds none for spans of 4 minutes
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.xaxis.get_offset_text().set_color(INK)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit, color=INK, fontsize=9)
    if len(series) > 1:
        _legend(figure, axes.lines, [name for name, _, _ in series], 3)
    return _themed(figure, title)


def bars(title: str, unit: str, names: Sequence[str], groups: Sequence[tuple[str, Sequence[float | None]]]) -> str:
    """Draw a group of horizontal bars for each name, on a logarithmic scale: latencies differ by orders of
    magnitude."""
    figure, axes = _figure(max(0.16 * len(names) * (len(groups) + 0.6) + 1.2, 2.2))
    height = 0.8 / len(groups)
    known = [value for _, values in groups for value in values if value]
    least = min(known, default=0.001) / 2
    for number, (_, values) in enumerate(groups):
        places = [index + (number - (len(groups) - 1) / 2) * height for index in range(len(names))]
        widths = [max((value or 0.0) - least, 0.0) for value in values]
        axes.barh(places, widths, height=height * 0.9, left=least, color=SERIES[number])
    axes.set_xscale("log")
    axes.set_xlim(left=least)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yticks(range(len(names)), [shortened(name) for name in names])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(which="minor", colors=INK)
    axes.set_xlabel(unit, color=INK, fontsize=9)
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)
    _legend(figure, axes.containers, [label for label, _ in groups], len(groups))
    return _themed(figure, title)
