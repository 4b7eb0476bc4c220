"""What storage raises; each error carries what a person needs to act on it."""


class StorageError(Exception):
    """Base of all that storage raises."""


class DamagedError(StorageError):
    """Something on disk is not what was written: `where` names the file or the trans_id, `what` the fault."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what


class NoMembersError(StorageError):
    """What can be read of the data names no members: the node may be the one that was to found its cluster."""


class UnknownFormatError(StorageError):
    """Written by a version that this one does not understand."""


class DiskFullError(StorageError):
    """The disk has no space for what had to be written; nothing of it was written."""


class MapGrownError(StorageError):
    """The transaction did not fit LMDB's map, which has been enlarged: nothing was written, do it again."""
