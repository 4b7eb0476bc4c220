"""What a shard's owner may do at the moment: follow, lead, serve, or none of it. A machine; its host is the QueueOwner.

| stage | requests | becomes |
|---|---|---|
| FOLLOWING | go back to the Router, but for those about this node | PROMOTED; RELOADING |
| RELOADING | as FOLLOWING, and those about this node are refused | FOLLOWING with the fresh state |
| PROMOTED | wait until the own first entry, and the members, are committed | CATCHING_UP; FOLLOWING or RELOADING |
| CATCHING_UP | wait until what has come due is where it belongs | SERVING, DRAINING; FOLLOWING or RELOADING |
| SERVING | are done | DRAINING; FOLLOWING or RELOADING |
| DRAINING | are done; no new ones come, and time stands still | CATCHING_UP; FOLLOWING or RELOADING |

Stopping is beside that: whatever the stage, new requests are refused.
"""

from enum import Enum
from typing import Final


class Stage(Enum):
    """See the table above."""

    FOLLOWING = "following"
    RELOADING = "reloading"
    PROMOTED = "promoted"
    CATCHING_UP = "catching up"
    SERVING = "serving"
    DRAINING = "draining"


BECOMES: Final = {
    Stage.FOLLOWING: {Stage.PROMOTED, Stage.RELOADING},
    Stage.RELOADING: {Stage.FOLLOWING, Stage.RELOADING},
    Stage.PROMOTED: {Stage.CATCHING_UP, Stage.FOLLOWING, Stage.RELOADING, Stage.PROMOTED},
    Stage.CATCHING_UP: {Stage.SERVING, Stage.DRAINING, Stage.FOLLOWING, Stage.RELOADING},
    Stage.SERVING: {Stage.DRAINING, Stage.FOLLOWING, Stage.RELOADING},
    Stage.DRAINING: {Stage.CATCHING_UP, Stage.FOLLOWING, Stage.RELOADING},
}


LEADING: Final = frozenset({Stage.PROMOTED, Stage.CATCHING_UP, Stage.SERVING, Stage.DRAINING})


class OwnerStage:
    """Begins as a follower. `vote_id` is that of the last time that it led.

    `leads`: records may be made. `serves`: requests may be done. `lets_time_pass`: what is due may be done, which it
    may not while another node is to take over, which does it then. `is_draining`, `is_reloading`: what `stage` says,
    for those who ask at each turn.
    """

    def __init__(self) -> None:
        self.stage = Stage.FOLLOWING
        self.leads = self.serves = self.lets_time_pass = False
        self.is_draining = self.is_reloading = self._waits_to_serve = False
        self.vote_id = 0
        self.is_stopping = False
        self._serves_from = 0
        self._members_since: int | None = 0
        self._is_drain_open = False

    def _become(self, stage: Stage) -> None:
        assert stage in BECOMES[self.stage], f"{self.stage} does not become {stage}"
        self.stage = stage
        self.leads = stage in LEADING
        self.serves = stage is Stage.SERVING or stage is Stage.DRAINING
        self.lets_time_pass = stage is Stage.SERVING or stage is Stage.CATCHING_UP
        self._waits_to_serve = stage is Stage.PROMOTED
        self.is_reloading = stage is Stage.RELOADING
        self.is_draining = self._is_drain_open = stage is Stage.DRAINING

    @property
    def is_urgent(self) -> bool:
        """Whether all that there is should go to the log at once."""
        return self.is_stopping or self.is_draining

    def promoted(self, vote_id: int, lead_trans_id: int) -> None:
        """Lead: catch up, and serve, when record `lead_trans_id`, the node's first, is committed.

        What an earlier leader has committed is known only then (Ongaro's dissertation, 6.4).
        """
        self._become(Stage.PROMOTED)
        self.vote_id = vote_id
        self._serves_from = lead_trans_id

    def named(self, since: int | None) -> None:
        """Record `since` names the members; None: the log has none that does, its cluster is just being founded.

        Before that is committed nobody knows which cluster the shard belongs to, or what all its nodes understand.
        """
        self._members_since = since

    def committed(self, trans_id: int) -> bool:
        """Note that records up to there are committed; whether time may pass from now on."""
        if not self._waits_to_serve or trans_id < self._serves_from:
            return False
        if self._members_since is None or trans_id < self._members_since:
            return False
        self._become(Stage.CATCHING_UP)
        return True

    def caught_up(self) -> bool:
        """Nothing is due; whether requests may be done from now on, which they might not before."""
        if self.stage is not Stage.CATCHING_UP:
            return False
        self._become(Stage.SERVING)
        return True

    def drain(self, vote_id: int) -> bool:
        """Settle what is open; whether that is to begin."""
        if self.stage not in (Stage.SERVING, Stage.CATCHING_UP) or vote_id != self.vote_id:
            return False
        self._become(Stage.DRAINING)
        return True

    def drained(self) -> bool:
        """All is committed; whether that is to be told, once."""
        is_open, self._is_drain_open = self._is_drain_open, False
        return is_open

    def undrain(self) -> bool:
        """Lead on after all, if the node was about not to; time has stood still: whether it is to catch up."""
        if self.stage is not Stage.DRAINING:
            return False
        self._become(Stage.CATCHING_UP)
        return True

    def deposed(self) -> None:
        """Note that the node does not lead any more."""
        self._become(Stage.FOLLOWING)

    def dropped(self) -> None:
        """Note that the state is not the log's any more."""
        self._become(Stage.RELOADING)

    def loaded(self) -> None:
        """Note that a fresh state is there."""
        self._become(Stage.FOLLOWING)
