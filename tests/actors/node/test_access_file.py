"""The access file: what it may hold, every fault in it at once, and changing it without losing what people wrote."""

import os
from pathlib import Path

import pytest

from actors.gateway.access import TokenHash
from actors.node.access_file import PATTERNS_MAX, AccessFile, AccessFileError, read_access, rights_of

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


def test_a_new_file_says_what_was_put_into_it(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    file = AccessFile(path)
    assert not file.has("w")
    file.add("w", ["look:x", "operate"], None, ["w.example"])
    file.allow("anonymous", ["produce:in"])
    assert file.has("w")
    assert not file.has("v")
    file.write()
    table = read_access(path)
    assert table.entries["w"].rights.shown() == ["look:x", "log", "operate"]
    assert table.entries["w"].certificates == ("w.example",)
    assert table.stranger(is_near=False).principal.rights.shown() == ["produce:in"]
    file.allow("anonymous", ["look"])
    file.write()
    assert read_access(path).stranger(is_near=False).principal.rights.shown() == ["look"]
    file.remove("anonymous")
    file.remove("anonymous")
    file.write()
    assert not read_access(path).stranger(is_near=False).principal.rights.has_some


@pytest.mark.parametrize("allow", ["operate:q", "log:*", "look:", "", "all", "look:a\nb"])
def test_a_right_that_there_is_not_is_refused(allow: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        rights_of([allow])


def test_a_change_leaves_comments_and_the_rest_alone(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT)
    file = AccessFile(path)
    file.add("new", ["look:x"], TokenHash.of("new.t"), ["n.example"])
    file.allow("worker", ["produce"])
    file.allow("anonymous", [])
    file.remove("viewer")
    file.write()
    text = path.read_text()
    assert "# who works here" in text
    assert path.stat().st_mode & 0o777 == 0o600
    table = read_access(path)
    assert sorted(table.entries) == ["new", "worker"]
    assert table.by_token("new.t") is not None
    assert table.entries["worker"].rights.shown() == ["produce"]
    assert not table.stranger(is_near=True).principal.rights.has_some


def test_a_new_token_leaves_the_one_of_before_until_it_is_the_only_one(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT)
    for n, only in ((1, False), (2, False), (3, True)):
        file = AccessFile(path)
        file.add_token("worker", TokenHash.of(f"worker.{n}"), is_only=only)
        file.write()
        table = read_access(path)
        valid = [t for t in (TOKEN, "worker.1", "worker.2", "worker.3") if table.by_token(t) is not None]
        assert valid == {1: [TOKEN, "worker.1"], 2: ["worker.1", "worker.2"], 3: ["worker.3"]}[n]


def test_a_file_that_is_not_there_is_begun(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    previous = os.umask(0)
    try:
        file = AccessFile(path)
        file.add("a", ["look"], None, [])
        file.write()
    finally:
        os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(read_access(path).entries) == ["a"]
