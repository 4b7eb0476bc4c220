"""What a data folder was founded with holds for good."""

import json
from pathlib import Path

import pytest

from actors.node.data_folder import FOUNDING_NAME, FoundedWith, FoundingError, founded


def test_a_folder_keeps_what_it_was_founded_with(tmp_path: Path) -> None:
    first = founded(tmp_path / "new", 4)
    assert first.shards == 4
    assert first.cluster_id > 0
    assert founded(tmp_path / "new", 4) == first
    with pytest.raises(FoundingError, match="founded with 4"):
        founded(tmp_path / "new", 5)
    assert sorted(one.name for one in (tmp_path / "new").iterdir()) == [FOUNDING_NAME, "shard-0"]


def test_without_shard_0_the_others_are_not_taken_for_new(tmp_path: Path) -> None:
    first = founded(tmp_path, 2)
    (tmp_path / "shard-1" / "journal").mkdir(parents=True)
    assert founded(tmp_path, 2) == first
    (tmp_path / "shard-0" / "journal").rmdir()
    with pytest.raises(FoundingError, match="shard-0 is gone"):
        founded(tmp_path, 2)


def test_a_folder_of_before_has_one_shard(tmp_path: Path) -> None:
    (tmp_path / "shard-0").mkdir()
    assert founded(tmp_path, 1) == FoundedWith(1, 0)
    with pytest.raises(FoundingError, match="founded with 1"):
        founded(tmp_path, 2)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 9}', json.dumps({"format": 1, "shards": 1}), "\x00" * 50])
def test_a_damaged_file_is_told_and_not_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / FOUNDING_NAME).write_text(text)
    with pytest.raises(FoundingError, match=FOUNDING_NAME):
        founded(tmp_path, 1)
    assert (tmp_path / FOUNDING_NAME).read_text() == text
