"""What the documentation says in tables is what the code has: each table is made from the rows that it describes."""

import re
from pathlib import Path

from actors.node.options import OPTIONS, Option
from quorate.actions import TABLE

DOCS = Path(__file__).parent.parent / "docs"


def option_row(option: Option) -> str:
    """A setting as docs/configuration.md has it."""
    default = "(empty)" if option.default == "" else option.default
    choices = f" ({', '.join(map(str, option.choices))})" if option.choices else ""
    return f"| {option.name} | {default} | {'yes' if option.is_live else ''} | {option.meaning}{choices} |"


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
