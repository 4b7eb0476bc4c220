"""What the documentation says in tables is what the code has: each table is made from the rows that it describes."""

import re
from pathlib import Path

from actors.node.options import OPTIONS, Option
from quorate.actions import TABLE
from quorate.protocol import Action

DOCS = Path(__file__).parent.parent / "docs"


def option_row(option: Option) -> str:
    """A setting as docs/configuration.md has it."""
    default = "(empty)" if option.default == "" else option.default
    choices = f" ({', '.join(map(str, option.choices))})" if option.choices else ""
    live = "yes" if option.is_live else ""
    return f"| {option.name} | {default} | {live} | {option.bounds} | {option.meaning}{choices} |"


def test_every_setting_stands_in_the_documentation_as_it_is() -> None:
    table = "\n".join(option_row(option) for option in OPTIONS)
    assert table in (DOCS / "configuration.md").read_text(), f"docs/configuration.md should have:\n{table}"


def test_the_rights_that_actions_need_are_documented() -> None:
    text = (DOCS / "protocol.md").read_text()
    rights = {right: [f.name for f in TABLE if f.right == right] for right in dict.fromkeys(f.right for f in TABLE)}
    table = "\n".join(f"| {right} | {', '.join(names)} |" for right, names in rights.items())
    assert table in text, f"docs/protocol.md should have:\n{table}"


def test_every_line_of_the_threat_model_names_tests_that_there_are() -> None:
    text = (DOCS / "security.md").read_text()
    model = text[text.index("## Threat model") : text.index("Out of scope")]
    rows = [line for line in model.splitlines() if line.startswith("| ") and not line.startswith("| who | can't")]
    code = "\n".join(path.read_text() for path in (DOCS.parent / "tests").rglob("test_*.py"))
    code += (DOCS.parent / "bench" / "security.py").read_text()
    assert len(rows) > 10
    for row in rows:
        shown = row.split("|")[3]
        names = [one for one in re.findall(r"`([^`]+)`", shown) if not one.startswith("python")]
        parts = [one.split()[-1] for one in re.findall(r"`(python -m bench.security \w+)`", shown)]
        assert names or parts, row
        assert all(f"def test_{name}" in code or f"_{name}" in code for name in names), row
        assert all(f"def {part}(" in code for part in parts), row


def blocks(page: Path) -> list[tuple[str, int]]:
    """Each heading of a page, and how many words of text stand under it: tables and code are looked up, not read."""
    found: list[tuple[str, int]] = []
    is_code = False
    for line in page.read_text().splitlines():
        is_code ^= line.startswith("```")
        if not is_code and re.match("#+ ", line):
            found.append((f"{page.name}: {line}", 0))
        elif not is_code and not line.startswith(("|", "    ")):
            head, words = found[-1]
            found[-1] = head, words + len(line.split())
    return found


def test_text_has_a_heading_every_150_words_and_nowhere_none_for_long() -> None:
    pages = {page.name: blocks(page) for page in DOCS.glob("*.md")}
    assert {name for name, its in pages.items() if sum(words for _, words in its) > 150 * len(its)} == set()
    assert [head for its in pages.values() for head, words in its if words > 250] == []


def test_how_it_works_is_told_in_pages_that_are_read_in_ten_minutes() -> None:
    """At 200 words a minute."""
    for name in ("architecture", "extending", "loop", "log", "cluster", "shards", "compiled-code"):
        assert sum(words for _, words in blocks(DOCS / f"{name}.md")) <= 2000, name


def test_the_examples_of_what_a_new_thing_takes_are_true() -> None:
    text = (DOCS / "extending.md").read_text()
    [number] = re.findall(r"`COUNT = (\d+)`", text)
    assert int(number) == max(action for action in Action if action < 100) + 1
    [head] = re.findall(r"`class Tag(\(msgspec.Struct.*?\))`", text)
    records = (DOCS.parent / "storage" / "records.py").read_text()
    tags = [int(tag) for tag in re.findall(r"tag=(\d+)", records)]
    assert f"tag={max(tags) + 1}," in head
    assert re.sub(r"tag=\d+", f"tag={max(tags)}", head) in records
    for path in re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", text):
        assert (DOCS.parent / path).exists(), path
