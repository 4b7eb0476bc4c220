"""Changing the access file without losing what people wrote."""

import os
from pathlib import Path

from actors.gateway.access import TokenHash
from actors.node.private_files import AccessFile, read_access
from tests.actors.node.test_private_files_access import TEXT, TOKEN, written


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
