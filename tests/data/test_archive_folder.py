"""An archive's folder, killed between any two steps. Without Spark."""

from pathlib import Path

import pytest

from data.archive_folder import ARCHIVING, COMPACTING, ArchiveError, ArchiveFolder


def listed(folder: ArchiveFolder) -> list[str]:
    return sorted(str(path.relative_to(folder.data.resolve())) for path in folder.data.resolve().rglob("*.parquet"))


def written(folder: ArchiveFolder, batch: int) -> None:
    part = folder.staged(batch) / "date=2026-01-01" / "shard=0"
    part.mkdir(parents=True)
    (part / f"{batch}.parquet").write_text(str(batch))
    (folder.staged_path(batch) / "_SUCCESS").touch()


def archive(path: Path) -> ArchiveFolder:
    folder = ArchiveFolder(path)
    folder.create({"format": 1})
    (folder.checkpoint / "offsets").mkdir(parents=True)
    (folder.checkpoint / "offsets" / "0").touch()
    return folder


def test_a_batch_counts_when_it_is_whole_and_not_before(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    written(folder, 0)
    assert (listed(folder), folder.has_batch(0)) == ([], False)
    folder.add(0)
    assert (listed(folder), folder.has_batch(0)) == (["batch=0/date=2026-01-01/shard=0/0.parquet"], True)
    folder.check()


def test_what_a_killed_job_left_beside_the_data_is_gone_when_the_batch_is_done_again(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    written(folder, 0)
    (folder.staged_path(0) / "half.parquet").write_text("half")
    written(folder, 0)
    folder.add(0)
    assert listed(folder) == ["batch=0/date=2026-01-01/shard=0/0.parquet"]


def test_a_batch_without_rows_was_done_all_the_same(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    folder.staged(0).mkdir()
    folder.add(0)
    assert (folder.batches(), listed(folder)) == ([0], [])
    (folder.checkpoint / "commits").mkdir()
    (folder.checkpoint / "commits" / "0").touch()
    folder.check()


def test_one_job_of_a_kind_runs_at_a_time(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    with folder.alone(ARCHIVING):
        with pytest.raises(ArchiveError, match="another process is archiving"), folder.alone(ARCHIVING):
            pass
        with folder.alone(COMPACTING):
            pass


def test_what_spark_has_noted_as_done_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    assert folder.committed_ends() is None
    (folder.checkpoint / "commits").mkdir()
    for batch in (9, 10):
        (folder.checkpoint / "commits" / str(batch)).touch()
        (folder.checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{"x":1}}\n{{"0":{batch * 100}}}')
    (folder.checkpoint / "offsets" / "11").write_text('v1\n{}\n{"0":9999}')
    assert folder.committed_ends() == {0: 1000}


def test_merged_batches_are_known_and_the_version_before_stays_until_the_next(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    for batch in range(3):
        written(folder, batch)
        folder.add(batch)
    before = folder.data.resolve()
    new = folder.begin_version()
    merged = new / "batch=1" / "date=2026-01-01" / "shard=0"
    merged.mkdir(parents=True)
    (merged / "merged.parquet").write_text("01")
    written(folder, 3)
    folder.add(3)  # an archive job goes on meanwhile
    assert len(listed(folder)) == 4, "nothing has changed for a reader yet"
    folder.switch(new, [0, 1])
    assert [name.split("/")[0] for name in listed(folder)] == ["batch=1", "batch=2", "batch=3"]
    assert all(folder.has_batch(batch) for batch in range(4))
    assert not folder.has_batch(4)
    assert len(list(before.rglob("*.parquet"))) == 4, "who reads it still may go on"
    folder.begin_version()
    assert not before.exists()
    assert len(listed(folder)) == 3


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(ArchiveError, match="not empty"):
        ArchiveFolder(tmp_path).create({})
    with pytest.raises(ArchiveError, match="no archive"):
        ArchiveFolder(tmp_path).about()


def test_a_killed_creation_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "_versions" / "0").mkdir(parents=True)
    (tmp_path / "archive.json.part").touch()
    assert ArchiveFolder(tmp_path).create({"format": 1}) == {"format": 1}
    assert ArchiveFolder(tmp_path).create({"format": 2}) == {"format": 1}, "it is there already"


def test_data_without_their_checkpoint_or_the_other_way_round_are_refused(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    written(folder, 0)
    folder.add(0)
    (folder.checkpoint / "offsets" / "0").unlink()
    with pytest.raises(ArchiveError, match="lost its _checkpoint"):
        folder.check()
    other = archive(tmp_path / "b")
    (other.checkpoint / "commits").mkdir()
    (other.checkpoint / "commits" / "0").touch()
    with pytest.raises(ArchiveError, match="lost its data"):
        other.check()
