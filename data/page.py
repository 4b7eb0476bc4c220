"""The report's page: one HTML file without anything from elsewhere. Pure: rows and charts in, text out."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2329; --faint: #c3cad1; --page: #ffffff; --soft: #f3f5f7; --accent: #14609e;
  --series-0: #14609e; --series-1: #c8501e; --series-2: #2e7d46; --series-3: #8a4fa3; --series-4: #a07c00;
  --series-5: #008b8b; --series-6: #b8336a; --series-7: #5b6770; --series-8: #7a5c3e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ec; --faint: #4a545d; --page: #14181c; --soft: #1d2329;
  --accent: #6cb4ee; --series-0: #6cb4ee; --series-1: #f0935f; --series-2: #73c98b; --series-3: #c99be0;
  --series-4: #e0bf4f; --series-5: #5fd0d0; --series-6: #f083ae; --series-7: #a9b4bd; --series-8: #cfae8a; } }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
p.about { margin: .1rem 0; opacity: .8; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem; margin: 1.2rem 0; }
.facts div { background: var(--soft); border-radius: .5rem; padding: .6rem .8rem; }
.facts b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; font-size: .88rem; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--faint); }
th:first-child, td:first-child { text-align: left; max-width: 22rem; overflow: hidden; text-overflow: ellipsis; }
th { position: sticky; top: 0; background: var(--page); }
svg { display: block; max-width: 100%; height: auto; } svg text { font-family: system-ui, sans-serif !important; }
"""


@dataclass(frozen=True)
class Table:
    """A table: its columns as (field, heading), its rows, and how many rows there are in all."""

    columns: Sequence[tuple[str, str]]
    rows: Sequence[dict[str, Any]]
    total: int


@dataclass
class Section:
    """A part of the page."""

    title: str
    says: str = ""
    chart: str = ""
    table: Table | None = None
    facts: list[tuple[str, str]] = field(default_factory=list)


def page(title: str, about: Sequence[str], facts: Sequence[tuple[str, str]], sections: Sequence[Section]) -> str:
    """Write the page."""
    boxes = "".join(f"<div>{html.escape(name)}<b>{html.escape(value)}</b></div>" for name, value in facts)
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1>",
        *(f'<p class="about">{html.escape(line)}</p>' for line in about),
        f'<div class="facts">{boxes}</div>',
        *(_section(section) for section in sections),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _section(section: Section) -> str:
    parts = [f"<section><h2>{html.escape(section.title)}</h2>"]
    if section.says:
        parts.append(f"<p>{html.escape(section.says)}</p>")
    parts.append(section.chart)
    if section.table is not None:
        parts.append(_table(section.table))
    return "\n".join([*parts, "</section>"])


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for _, heading in table.columns)
    rows = "".join("<tr>" + "".join(_cell(row.get(name)) for name, _ in table.columns) + "</tr>" for row in table.rows)
    more = table.total - len(table.rows)
    note = f"<p>{more:,} more in the Parquet tables.</p>" if more > 0 else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}'


def _cell(value: Any) -> str:
    text = shown(value)
    hint = f' title="{html.escape(text)}"' if len(text) > 30 else ""
    return f"<td{hint}>{html.escape(text)}</td>"


def shown(value: Any) -> str:
    """Show a value to people: three significant digits, thousands apart, an instant to the second."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return str(value)


def duration(seconds: float | None) -> str:
    """Seconds for people."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us" if seconds else "0 s"
