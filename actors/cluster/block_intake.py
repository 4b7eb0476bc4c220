"""Fetching messages of topics that this node lacks, as after a snapshot: from any member, block by block. A machine.

A snapshot has the rows of topics, and not their messages: those may be very many, and a node follows, votes and serves
queues without them. Blocks hold committed messages and never change, so any node's will do, whoever leads. One part is
under way at a time, and no more than `BYTES_PER_S`, so that neither disk is busy with nothing else.
"""

import math
from typing import Final

from actors.cluster.decisions import Decisions
from actors.cluster.replicated_log import ReplicatedLog
from actors.messages.blocks import BlocksFetched, BlocksMissing, FetchBlocks, FillGap
from actors.messages.peers import CutPeer, SendPeers
from net.peers.messages import BlocksPull, BlocksRows
from storage.blocks import BlockView
from storage.errors import DamagedError
from storage.log_store import Gap

BYTES_PER_S: Final = 64e6
PATIENCE_S: Final = 2.0
"""A node that has not answered by then, or had nothing, makes way for the next."""


class BlockIntake:
    """Of one shard's log. Times are monotonic seconds. `next_at`: when `tick` has something to do.

    `part_bytes`: what is sent to another node at once, or one block.
    """

    def __init__(self, log: ReplicatedLog, part_bytes: int) -> None:
        self._log = log
        self._part_bytes = part_bytes
        self._gaps: list[Gap] = []
        self._asked: Gap | None = None
        self._turn = 0
        self.next_at = math.inf

    def missing(self, now: float, message: BlocksMissing) -> Decisions:
        """Note what LMDB lacks now; the rest of it is asked for."""
        self._gaps = message.gaps
        self._log.lacks_blocks = bool(message.gaps)
        self._asked = None
        if not self._gaps:
            self.next_at = math.inf
            return []
        if self.next_at == math.inf:
            self.next_at = now
        return self.tick(now)

    def tick(self, now: float) -> Decisions:
        """Ask for the next part, if it is time; another node, where the last has not answered."""
        if now < self.next_at or not self._gaps:
            return []
        others = sorted(self._log.membership.others)
        self.next_at = now + PATIENCE_S
        if not others:
            return []
        if self._asked is not None:
            self._turn += 1
        self._asked = gap = self._gaps[0]
        number, partition, begin, until = gap
        return [SendPeers((others[self._turn % len(others)],), BlocksPull(number, partition, begin, until))]

    def pulled_by(self, node_id: int, message: BlocksPull) -> Decisions:
        """Look for what another node lacks."""
        gap = (message.number, message.partition, message.offset, message.until)
        return [FetchBlocks(node_id, gap, self._part_bytes)]

    @staticmethod
    def fetched(message: BlocksFetched) -> Decisions:
        """Send what was found."""
        number, partition, begin, until = message.gap
        rows = BlocksRows(number, partition, begin, until, message.rows)
        return [SendPeers((message.node_id,), rows)] if message.rows else []

    def rows(self, now: float, node_id: int, message: BlocksRows) -> Decisions:
        """Take in blocks that have come, if they were asked for."""
        gap = (message.number, message.partition, message.offset, message.until)
        if gap != self._asked:
            return []
        expected = message.offset
        try:
            for key, value in message.rows:
                view = BlockView(key, value)
                its = view.key
                is_wanted = its.offset <= expected < min(view.end, message.until)
                if (its.number, its.partition) != gap[:2] or not is_wanted:
                    return [CutPeer(node_id, f"{view.name}, where offset {expected} of {gap[:2]} was wanted")]
                expected = view.end
        except DamagedError as error:
            return [CutPeer(node_id, str(error))]
        if expected == message.offset:
            return []
        self._asked = None
        self.next_at = now + sum([len(value) for _, value in message.rows]) / BYTES_PER_S
        self._gaps = []  # LMDB says what it lacks then
        return [FillGap(gap, message.rows, min(expected, message.until))]
