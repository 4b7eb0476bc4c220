"""The record of votes: it is never half written, and never guessed."""

from random import Random

import pytest

from storage.errors import DamagedError
from storage.vote_file import NAME, Identity, open_vote_file
from tests.storage.memory import MemoryFolder

NEW = Identity(0, 1, 77)


def test_a_new_folder_gets_the_identity_that_it_is_given() -> None:
    folder = MemoryFolder()
    assert open_vote_file(folder, NEW).is_new
    again = open_vote_file(folder, Identity(0, 1, 99))
    assert not again.is_new
    assert again.identity == NEW


def test_the_last_save_is_what_counts() -> None:
    folder = MemoryFolder()
    file = open_vote_file(folder, NEW)
    for vote_id in range(1, 8):
        file.save(Identity(5, 1, 77, vote_id, 2))
    assert open_vote_file(folder, NEW).identity == Identity(5, 1, 77, 7, 2)


@pytest.mark.parametrize("seed", range(40))
def test_a_write_that_a_power_cut_tears_leaves_the_one_before_it(seed: int) -> None:
    folder = MemoryFolder()
    file = open_vote_file(folder, NEW)
    before = Identity(5, 1, 77, 3, 2)
    file.save(before)
    folder.settle()
    after = Identity(5, 1, 77, 4, 1)
    file.save(after)
    folder.power_cut(Random(seed))
    assert open_vote_file(folder, NEW).identity in (before, after)


def test_a_file_that_can_not_be_read_is_no_new_one() -> None:
    folder = MemoryFolder()
    open_vote_file(folder, NEW).save(NEW)
    folder.files[NAME].write_at(0, b"x" * 100)
    folder.files[NAME].write_at(4096, b"x" * 100)
    with pytest.raises(DamagedError, match="does not know how it voted"):
        open_vote_file(folder, NEW)


def test_a_vote_that_was_read_is_on_disk_before_anybody_hears_of_it() -> None:
    """A worker that was killed between write and flush reads its vote from the system's cache."""
    folder = MemoryFolder()
    file = open_vote_file(folder, NEW)
    vote = Identity(5, 1, 77, 8, 3)
    folder.settle()
    file.save(vote)  # on its way: the worker dies before it is there
    again = open_vote_file(folder, NEW).identity
    folder.power_cut(Random(1))
    assert open_vote_file(folder, NEW).identity == again
