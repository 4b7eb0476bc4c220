"""What the documentation says in tables is what the code has: each table is made from the rows that it describes."""

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
