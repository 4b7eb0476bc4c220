"""Entries: records that are committed together. Their bytes are `entry_codec`'s affair."""

import msgspec

from storage.records import Record


class Entry(msgspec.Struct, array_like=True, gc=False):
    """Records first_trans_id .. last_trans_id, made by the leader of `vote_id` at its `time` (Unix seconds)."""

    version: int
    vote_id: int
    first_trans_id: int
    time: float
    records: list[Record]

    @property
    def last_trans_id(self) -> int:
        """The trans_id of its last record."""
        return self.first_trans_id + len(self.records) - 1


class EntryHeader(msgspec.Struct, array_like=True, gc=False):
    """The part of an entry that can be read without knowing any record's kind."""

    version: int
    vote_id: int
    first_trans_id: int
    time: float
    records: list[msgspec.Raw]


class LogEnd(msgspec.Struct, frozen=True, order=True, gc=False):
    """The last entry of a log. Of two logs the one with the greater end is the more up to date."""

    vote_id: int
    trans_id: int


class StoredEntry(msgspec.Struct, gc=False):
    """An encoded entry: its records' numbers, the vote_id that made it, its bytes.

    One without records, as the journal alone holds them, is a cut: from there on what stood behind
    `last_trans_id` is not part of the log any more. `is_members`: whether it changes the members; None: look.
    `read`: what stands in it, where that was looked at when it came, until it is applied.
    """

    first_trans_id: int
    last_trans_id: int
    vote_id: int
    data: bytes
    is_members: bool | None = None
    read: Entry | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands, and who made it: for people."""
        return self.first_trans_id, self.last_trans_id, self.vote_id

    @property
    def is_cut(self) -> bool:
        """Whether it holds no record."""
        return self.last_trans_id < self.first_trans_id
