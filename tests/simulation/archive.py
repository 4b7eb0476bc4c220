"""A simulated reader of the whole log: raw entries from any node, in order, and its position back into the log."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from storage.entry_codec import received_entry
from tests.simulation.clients import History, SimulatedSession
from tests.simulation.cluster import SimulatedNode
from tests.simulation.world import World

READER = "archive"


class Archive(SimulatedSession):
    """Takes part after part of a shard's log.

    `entries` are what it has, by the number of the first record; `said` is its position. In half of the seeds it rests
    when it has said it, as one does that comes once an hour.
    """

    def __init__(self, world: World, nodes: Sequence[SimulatedNode], history: History, shard: int = 0) -> None:
        self.shard = shard
        self.entries: dict[int, tuple[int, bytes]] = {}
        self.said = 0
        self._after = 0
        self._has_new = False
        draw = Random(world.seed ^ 0xA2C417E)
        self._draw = draw if draw.random() < 0.5 else None
        self._rests_until = 0.0
        super().__init__(world, nodes, history)

    def _next(self) -> None:
        if self._world.time < self._rests_until:
            self._soon(self._rests_until - self._world.time)
            return
        if self._has_new and self._world.random.random() < 0.5:
            upto = self._after
            self._request(
                {"action": 17, "reader": READER, "trans_id": upto, **self._which},
                lambda reply: self._noted(upto, reply),
            )
        else:
            count = self._world.random.choice([None, None, 1, 5])
            wish = {"action": 14, "raw": True, "after": self._after, "count": count, **self._which}
            self._request({name: value for name, value in wish.items() if value is not None}, self._read)

    @property
    def _which(self) -> dict[str, int]:
        return {"shard": self.shard} if self.shard else {}

    def _noted(self, upto: int, reply: dict[str, Any]) -> None:
        if reply["code"] == 0:
            self.said = upto
            self._has_new = False
            if self._draw is not None and self._draw.random() < 0.3:
                self._rests_until = self._world.time + self._draw.choice([3.0, 10.0])

    def _read(self, reply: dict[str, Any]) -> None:
        if reply.get("error") == "trimmed":
            self._after = reply["first_trans_id"] - 1
        if reply["code"] != 0:
            return
        data, at = reply["entries"], 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            entry = received_entry(data[at + 4 : at + 4 + size], "a part of the log")
            at += 4 + size
            if entry.first_trans_id > self._after + 1 or entry.last_trans_id <= self._after:
                self._history.problems.append(f"behind record {self._after} a node gives {entry.place}")
            self.entries[entry.first_trans_id] = (entry.last_trans_id, entry.data)
            self._after = entry.last_trans_id
            self._has_new = True
        if reply["last_trans_id"] != self._after:
            self._history.problems.append(f"a part said to end at {reply['last_trans_id']} ends at {self._after}")

    def _received(self, data: bytes) -> None:
        """A raw part has bytes behind its line."""
        self._buffer += data
        end = self._buffer.find(b"\n")
        if end < 0 or self._on_reply is None:
            return
        reply = json.loads(self._buffer[:end])
        size = reply.get("bytes", 0)
        if len(self._buffer) < end + 1 + size:
            return
        assert len(self._buffer) == end + 1 + size, "more than one reply to one request"
        reply["entries"] = self._buffer[end + 1 :]
        self._buffer = b""
        self._take(reply)
