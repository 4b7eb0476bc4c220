"""Who led a shard when: what the records say of it, from the feature level on at which all nodes keep it alike."""

from bisect import bisect_right
from typing import Final, NamedTuple

TENURES_MAX: Final = 4096
"""So many changes of who leads are known; what is older counts as of the first of them."""


class Tenure(NamedTuple):
    """From record `since` on node `node_id` has led; 0: nobody knows who."""

    since: int
    node_id: int


def _since(tenure: Tenure) -> int:
    return tenure.since


class Tenures:
    """Those of one shard, in order; `rows` is what is kept of them, empty before the level is reached.

    `led_by`: the node whose leading the log's records say last, 0 if they say nothing of it.
    """

    def __init__(self, rows: list[Tenure] | None = None) -> None:
        self.rows: list[Tenure] = rows or []
        self.led_by = 0

    def copy(self) -> "Tenures":
        """Make another that is the same."""
        other = Tenures([*self.rows])
        other.led_by = self.led_by
        return other

    def begin(self, trans_id: int) -> None:
        """Note that the level is reached with that record: who leads says so next."""
        if not self.rows:
            self.rows.append(Tenure(trans_id, 0))

    def led(self, trans_id: int, node_id: int) -> None:
        """Note that the node leads by that record; one that is known already is no new tenure."""
        self.led_by = node_id
        rows = self.rows
        if rows and trans_id > rows[-1].since and node_id != rows[-1].node_id:
            rows.append(Tenure(trans_id, node_id))
            if len(rows) > TENURES_MAX:
                del rows[0]

    def at(self, trans_id: int) -> int:
        """Find the node that led when that record was made; 0: nobody knows."""
        rows = self.rows
        if not rows:
            return 0
        last = rows[-1]
        if trans_id >= last.since:  # nearly always
            return last.node_id
        return rows[max(bisect_right(rows, trans_id, key=_since) - 1, 0)].node_id
