"""The access file: what it may hold, and every fault in it at once."""

from pathlib import Path

import pytest

from actors.gateway.access import TokenHash
from actors.node.private_files import PATTERNS_MAX, AccessFileError, read_access, rights_of

TOKEN = "worker.a-token-drawn-at-random"
TEXT = f"""
# who works here
[principals.worker]
tokens = ["{TokenHash.of(TOKEN).text}"]
allow = ["produce", "consume:jobs*"]   # and no more

[principals.viewer]
certificates = ["viewer.example"]
allow = ["look"]

[anonymous]
allow = ["look:public*"]
"""


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "access.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_it_says_who_may_do_what(tmp_path: Path) -> None:
    table = read_access(written(tmp_path, TEXT))
    known = table.by_token(TOKEN)
    assert known is not None
    assert known.principal.rights.shown() == ["produce", "consume:jobs*"]
    assert table.by_token(TOKEN + "x") is None
    certified = table.by_certificate(("viewer.example",))
    assert certified is not None
    assert certified.principal.name == "viewer"
    assert table.stranger(is_near=True).principal.rights.shown() == ["look:public*"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_a_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(AccessFileError, match="chmod 600"):
        read_access(written(tmp_path, TEXT, mode))


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(AccessFileError, match="No such file"):
        read_access(tmp_path / "none.toml")


def test_all_that_is_wrong_with_it_is_said_at_once(tmp_path: Path) -> None:
    text = """
    others = 1
    [principals.local]
    allow = ["look"]
    [principals."a b"]
    allow = ["fly", "operate:x", "look:"]
    tokens = ["md5:00:11"]
    extra = 1
    [principals.c]
    certificates = ["same"]
    allow = "look"
    [principals.d]
    certificates = ["same"]
    [anonymous]
    tokens = []
    """
    with pytest.raises(AccessFileError) as refused:
        read_access(written(tmp_path, text))
    said = str(refused.value)
    for part in (
        "no section 'others'",
        "'local' is taken",
        "'a b' has to be",
        "no right 'fly'",
        "is no hash of a token",
        "no 'extra'",
        "allow has to be a list",
        "'same' is another principal's",
        "`allow` and nothing else",
    ):
        assert part in said, part


@pytest.mark.parametrize("text", ["[principals", "a = 1\na = 2", "\x00", "principals = 3"])
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(AccessFileError):
        read_access(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[principals]\nw = 5", "w has to be a section"),
        ("anonymous = 5", "anonymous has to be a section"),
        ("[anonymous]\ntokens = []", "anonymous has `allow` and nothing else"),
        (f"[principals.w]\nallow = {[f'look:{n}' for n in range(PATTERNS_MAX + 1)]}", "rights, and"),
    ],
)
def test_what_is_wrong_with_a_section_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(AccessFileError, match=said):
        read_access(written(tmp_path, text))


def test_so_many_patterns_there_may_be(tmp_path: Path) -> None:
    allow = [f"look:{n}" for n in range(PATTERNS_MAX)]
    table = read_access(written(tmp_path, f"[principals.w]\nallow = {allow}"))
    assert table.entries["w"].rights.shown() == allow


@pytest.mark.parametrize("allow", ["operate:q", "log:*", "look:", "", "all", "look:a\nb"])
def test_a_right_that_there_is_not_is_refused(allow: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        rights_of([allow])
