"""When LMDB is brought up to what is committed, and what a full disk means. A machine; its host is the Replicator.

| state | an entry is committed | the timer rings | LMDB has stored | there was no space |
|---|---|---|---|---|
| RESTING | WAITING, with a timer | | | |
| WAITING | | STORING, or RESTING if nothing is left | | |
| STORING | | | RESTING | WAITING, with a longer timer |

The disk is full as long as LMDB's last store, or the journal's last wish for a segment, found no space.
"""

from enum import Enum
from typing import Final

from storage.entry import StoredEntry

INTERVAL_S: Final = 0.05
RETRY_S: Final = 0.5


class Phase(Enum):
    """Where it is between two checkpoints."""

    RESTING = "resting"
    WAITING = "waiting"
    STORING = "storing"


class Checkpointing:
    """Begins by storing what the journal had left over."""

    def __init__(self) -> None:
        self.phase = Phase.STORING
        self._store_full: str | None = None
        self._journal_full: str | None = None
        self._was_full = False

    @property
    def disk_full(self) -> str | None:
        """Why nothing can be stored now; None while it can."""
        return self._journal_full or self._store_full

    def take_news(self) -> bool:
        """Whether the disk has become full, or has space again, since this was taken last."""
        was_full, self._was_full = self._was_full, self.disk_full is not None
        return self._was_full != was_full

    def grown(self) -> float | None:
        """Entries wait for LMDB; after so many seconds `due` is to be called, if a timer is to be set now."""
        if self.phase is not Phase.RESTING:
            return None
        self.phase = Phase.WAITING
        return INTERVAL_S

    def due(self, entries: list[StoredEntry], *, may_store: bool) -> list[StoredEntry]:
        """Decide what is to be stored now, at the moment that was set. `may_store`: LMDB's content is not being
        replaced."""
        if self.phase is Phase.STORING:
            return []
        chosen = entries if may_store else []
        self.phase = Phase.STORING if chosen else Phase.RESTING
        return chosen

    def stored(self) -> None:
        """LMDB has what it was given."""
        self.phase = Phase.RESTING
        self._store_full = None

    def failed(self, reason: str) -> float:
        """There was no space; after so many seconds `due` is to be called."""
        self.phase = Phase.WAITING
        self._store_full = reason
        return RETRY_S

    def journal_space(self, shortage: str | None) -> None:
        """Why the journal has no space for its next segment; None when it has."""
        self._journal_full = shortage

    def is_done(self, *, has_unstored: bool, is_reloading: bool) -> bool:
        """Whether a node that stops need not wait for LMDB: it has all, or the journal keeps it."""
        if self.phase is Phase.STORING:
            return False
        return self.disk_full is not None or is_reloading or not has_unstored
