"""Counts the product's lines of code: `python -m bench.lines [ROOT]`.

A line counts if a token stands on it that is neither a comment, nor a docstring, nor the end of a line. ruff formats
both sides of a comparison, so the figure can't be bettered by squeezing. The folders are those of the product;
ROOT is another checkout to be counted, by default this one.
"""

import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("actors", "net", "storage", "quorate", "cli", "console")
_NO_CODE = frozenset(
    (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    )
)


def lines_of_code(path: Path) -> int:
    """Returns how many lines of a file have code on them."""
    lines: set[int] = set()
    with path.open("rb") as file:
        for statement in _statements(tokenize.tokenize(file.readline)):
            if len(statement) == 1 and statement[0].type == tokenize.STRING:
                continue  # a string that is a statement: a docstring
            for token in statement:
                lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def _statements(tokens: Iterator[tokenize.TokenInfo]) -> Iterator[list[tokenize.TokenInfo]]:
    statement: list[tokenize.TokenInfo] = []
    for token in tokens:
        if token.type == tokenize.NEWLINE:
            yield statement
            statement = []
        elif token.type not in _NO_CODE:
            statement.append(token)
    yield statement


def main() -> None:
    """Prints the lines of each room, and of all."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    total = 0
    for folder in FOLDERS:
        rooms: dict[str, int] = {}
        for path in sorted((root / folder).rglob("*.py")):
            inside = path.relative_to(root / folder).parts
            room = "/".join((folder, *inside[:-1][:1]))
            rooms[room] = rooms.get(room, 0) + lines_of_code(path)
        for room, lines in rooms.items():
            print(f"{lines:>7,}  {room}")
        total += sum(rooms.values())
    print(f"{total:>7,}  in all")


if __name__ == "__main__":
    main()
