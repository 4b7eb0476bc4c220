"""Requests that are done in parts, mostly a part by each shard: each waits for all, and makes one reply. Machines.

When a shard can't be asked, the reply of a list or a status says so (`partial`, `missing_shards`), and holds the rest.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, Final

from actors.gateway.sharding import Part
from actors.messages.call import Call, rows_in_reply
from actors.messages.sorting import NAME, cursor, is_ranked, position, rank, value_of
from net.protocols import is_told_addresses
from quorate.node_replies import MetricsReply, StatusReply
from quorate.protocol import DOWN, ClusterReply, Code, ErrorWord, LeaderReply, Reply, Request, done, refusal
from quorate.queue_replies import ListReply, QueueRow
from quorate.shard_replies import ShardedClusterReply, ShardLeader, ShardMapReply
from quorate.stream_replies import TopicListReply

MayBePartial = ListReply | TopicListReply | ShardMapReply | ShardedClusterReply | MetricsReply | StatusReply
"""The replies that may lack some shards."""

NOT_DONE_ERRORS: Final = frozenset({ErrorWord.REDIRECT, ErrorWord.NO_LEADER, ErrorWord.STOPPING})
"""What says that a part was not done, and may be asked for again."""

NOT_THERE: Final = {ErrorWord.NO_SUCH_MESSAGE: 0, ErrorWord.NOT_IN_FLIGHT: 1, ErrorWord.NOT_READY: 1}
"""What says of a shard's messages that there was nothing to do; the higher says more, as where one shard answers."""


OF_SHARD: Final = ("node_id", "role", "lag", "is_full", "fault")
"""What a shard tells of a member that the others do not."""


class PartedCall(ABC):
    """Waits for `size` replies; it is the client of what is asked for them, each under its order from 0. It speaks the
    `protocol` of who asked.
    """

    def __init__(self, call: Call, size: int) -> None:
        self.call = call
        self.protocol: str = getattr(call.client, "protocol", "")
        self._by_order: list[Reply | None] = [None] * size
        self._missing = size

    @property
    def has_left(self) -> bool:
        """As its own client."""
        return self.call.client.has_left

    @property
    def has_ended(self) -> bool:
        """As its own client."""
        return self.call.client.has_ended

    @property
    def is_gone(self) -> bool:
        """As its own client."""
        return self.call.client.is_gone

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Take the reply to part number `order`."""
        self._by_order[order] = reply
        self._missing -= 1

    @property
    def is_complete(self) -> bool:
        """Whether all replies are there."""
        return not self._missing

    @property
    def replies(self) -> list[Reply]:
        """All of them, by their order. Only when it is complete."""
        assert self.is_complete, "a reply is made when all parts are answered"
        return [reply for reply in self._by_order if reply is not None]

    @abstractmethod
    def reply(self) -> Reply:
        """Make the one reply."""


class ShardsCall(PartedCall):
    """A call whose parts are asked of several shards."""

    def __init__(self, call: Call, parts: list[Part]) -> None:
        super().__init__(call, len(parts))
        self.parts = parts

    @property
    def by_shard(self) -> list[tuple[int, Reply]]:
        """Each shard's reply."""
        return [(part.shard, reply) for part, reply in zip(self.parts, self.replies, strict=True)]

    def _note_missing(self, whole: MayBePartial, known: Collection[int]) -> None:
        """Say so in the one reply where shards are not among those that are known."""
        missing = sorted(part.shard for part in self.parts if part.shard not in known)
        if missing:
            whole.partial, whole.missing_shards = True, missing


def _how_telling(refusal: Reply) -> int:
    """How much it says of a message: the most, where it is not that there is none."""
    return NOT_THERE.get(refusal.error or "", 2)


COUNTS: Final = ("confirmed", "elsewhere", "released", "extended", "buried", "withheld")
"""What a reply counts that is about messages."""


class ConfirmSum(ShardsCall):
    """What is said of messages of several shards, as confirm or bury: how many there were in all."""

    def reply(self) -> Reply:
        """Add up. Where a shard could not be asked, give its refusal, which still says how many others were done."""
        request = self.call.request
        if request.key is not None and request.scope is not None:
            return self._of_one()
        total = Reply(action=request.action, code=Code.OK, queue=request.queue, seq=request.seq)
        total.msg_id = request.msg_id
        any_done = False
        refusals: list[Reply] = []
        for reply in self.replies:
            any_done = any_done or reply.code == Code.OK
            for name in COUNTS:
                count = getattr(reply, name)
                if count is not None:
                    setattr(total, name, (getattr(total, name) or 0) + count)
            if reply.code != Code.OK:
                refusals.append(reply)
        refused = max(refusals, key=_how_telling, default=None)
        if refused is not None and not (any_done and refused.error in NOT_THERE):
            total.code, total.error, total.reason = refused.code, refused.error, refused.reason
            total.state, total.deliveries = refused.state, refused.deliveries
            if any_done and refused.error in NOT_DONE_ERRORS:
                total.code, total.error = Code.ERROR, ErrorWord.UNKNOWN_OUTCOME  # some are done, and some are not
        return total

    def _of_one(self) -> Reply:
        """Of a message that one shard has: what that says; else the refusal that says most, or that there is none."""
        counted = [reply for reply in self.replies if any(getattr(reply, name) for name in COUNTS)]
        refusals = [reply for reply in self.replies if reply.code != Code.OK]
        refused = max(refusals, key=_how_telling, default=None)
        return counted[0] if counted else refused or self.replies[0]


class Found(ShardsCall):
    """One message that one of the shards has."""

    def reply(self) -> Reply:
        """Give that shard's; otherwise the refusal that says most."""
        found = next((reply for reply in self.replies if reply.code == Code.OK), None)
        return found or max(self.replies, key=_how_telling)


class FirstRefusal(ShardsCall):
    """What every shard has to do: the first refusal, or else the first shard's reply."""

    def reply(self) -> Reply:
        """Whichever it is."""
        return next((reply for reply in self.replies if reply.code != Code.OK), self.replies[0])


Place = tuple[float, str]
"""Of a queue in a list: its rank, and its name."""


class _Order:
    """That of a list: see `actors.messages.sorting`."""

    def __init__(self, request: Request) -> None:
        self._sort = request.sort or NAME
        self._is_ranked = is_ranked(request)
        self._is_down = bool(request.descending)
        self.is_reversed = self._is_down and not self._is_ranked

    def key(self, row: QueueRow) -> Place:
        """Say what stands before what; downwards by name it is the other way round."""
        if not self._is_ranked:
            return 0.0, row.name
        return rank(value_of(row, self._sort), is_descending=self._is_down), row.name

    def place(self, after: int | str) -> Place:
        """Where a shard's list has stopped: its last row may be gone, or changed, by now."""
        found = position(str(after)) if self._is_ranked else None
        return (0.0, str(after)) if found is None else found

    def first(self, places: list[Place]) -> Place:
        """Find the first of them in this order."""
        return max(places) if self.is_reversed else min(places)

    def is_behind(self, place: Place, bound: Place) -> bool:
        """Whether it stands behind the other."""
        return place < bound if self.is_reversed else place > bound

    def next(self, place: Place) -> str:
        """Say what a list goes on after that ends there."""
        return cursor(*place) if self._is_ranked else place[1]


class Listed(ShardsCall):
    """The queues of all shards, in the order that was asked for."""

    def reply(self) -> Reply:
        """As many as one shard's list would have. The first refusal, if no shard has answered."""
        request = self.call.request
        known = {shard: reply for shard, reply in self.by_shard if isinstance(reply, ListReply)}
        refused = next((reply for reply in self.replies if not isinstance(reply, ListReply)), None)
        is_of_request = refused is not None and refused.error not in (*NOT_DONE_ERRORS, ErrorWord.UNKNOWN_OUTCOME)
        if refused is not None and (is_of_request or not known):
            return refused
        lists, order = list(known.values()), _Order(request)
        rows = sorted((row for one in lists for row in one.queue_list), key=order.key, reverse=order.is_reversed)
        chosen = rows[: rows_in_reply(self.call)]
        nexts = [order.place(one.next) for one in lists if one.next is not None]
        bound = order.first(nexts) if nexts else None
        if bound is not None:  # a shard has more behind its last: what is behind that is not given before it is asked
            chosen = [row for row in chosen if not order.is_behind(order.key(row), bound)]
        listed = done(request, ListReply, queue_list=chosen, queue_count=sum(one.queue_count for one in lists))
        if len(chosen) < len(rows) or bound is not None:
            last = order.key(chosen[-1]) if chosen else bound
            if last is not None and request.after is not None and not order.is_behind(last, order.place(request.after)):
                last = bound  # a row has moved forward since its shard chose it: no list goes back for that
            listed.next = None if last is None else order.next(last)
        listed.sums = [row for one in lists for row in one.sums or ()] or None
        self._note_missing(listed, known)
        return listed


class TopicsListed(ShardsCall):
    """The topics of all shards, in the order of their names."""

    def reply(self) -> Reply:
        """As many as one shard's list would have. The first refusal, if no shard has answered."""
        request = self.call.request
        known = {shard: reply for shard, reply in self.by_shard if isinstance(reply, TopicListReply)}
        refused = next((reply for reply in self.replies if not isinstance(reply, TopicListReply)), None)
        is_of_request = refused is not None and refused.error not in (*NOT_DONE_ERRORS, ErrorWord.UNKNOWN_OUTCOME)
        if refused is not None and (is_of_request or not known):
            return refused
        rows = sorted((row for one in known.values() for row in one.topics), key=lambda row: row.name)
        bound = min((one.next for one in known.values() if one.next is not None), default=None)
        chosen = [row for row in rows if bound is None or row.name <= bound][: rows_in_reply(self.call)]
        listed = done(
            request, TopicListReply, topics=chosen, topic_count=sum(one.topic_count for one in known.values())
        )
        if chosen and len(chosen) < len(rows):
            listed.next = chosen[-1].name
        else:
            listed.next = bound
        self._note_missing(listed, known)
        return listed


class LeaderMap(ShardsCall):
    """Where each shard is led."""

    def reply(self) -> Reply:
        """All that is known; the first refusal, if nothing is."""
        request = self.call.request
        known = {shard: reply for shard, reply in self.by_shard if isinstance(reply, LeaderReply)}
        if not known:
            return self.replies[0]
        first = known[min(known)]
        is_told = is_told_addresses(self.call.client)
        rows = [
            ShardLeader(shard, one.leader_node_id, *((one.leader_host, one.leader_port) if is_told else ("", 0)))
            for shard, one in known.items()
        ]
        mapped = done(
            request,
            ShardMapReply,
            leader_node_id=first.leader_node_id,
            leader_host=first.leader_host,
            leader_port=first.leader_port,
            shards=rows,
            version=sum(reply.vote_id for reply in known.values()),
        )
        self._note_missing(mapped, known)
        return mapped


class ClusterRows(ShardsCall):
    """The cluster's members, and each shard's."""

    def reply(self) -> Reply:
        """Shard 0's, as it says them, and a row for each shard. The first refusal, if no leader answers."""
        known = {shard: reply for shard, reply in self.by_shard if isinstance(reply, ClusterReply)}
        if not known:
            return self.replies[0]
        at = min(known)
        first = known[at]
        rows: list[dict[str, Any]] = []
        for shard, reply in self.by_shard:
            if isinstance(reply, ClusterReply):
                members = [{name: one[name] for name in OF_SHARD if name in one} for one in reply.members]
                row = {"leader_node_id": reply.leader_node_id, "level": reply.level, "members": members}
            else:
                row = {"fault": reply.reason}
            rows.append({"shard": shard, **row})
        spread = done(
            self.call.request,
            ShardedClusterReply,
            leader_node_id=first.leader_node_id,
            members=[{**one, "port": one["port"] - at} for one in first.members],
            level=first.level,
            shards=rows,
        )
        self._note_missing(spread, known)
        return spread


class MembersInSync(ShardsCall):
    """A change of the members, which shard 0 makes: not before every shard has followed the removals before it.

    A shard that still counts on a node that is gone from shard 0 would lose its majority if another went after it. A
    shard that lacks members, or a leader, holds nothing up: the change may be what mends it.
    """

    @property
    def fault(self) -> str | None:
        """Why it has to wait, once all parts are answered."""
        first = self.replies[0]
        if not isinstance(first, ClusterReply):
            return None  # shard 0 says itself what it lacks
        there = {one["node_id"] for one in first.members} | {self.call.request.node_id}
        for shard, reply in self.by_shard:
            has = {one["node_id"] for one in reply.members} if isinstance(reply, ClusterReply) else set()
            if has - there:
                gone = ", ".join(map(str, sorted(has - there)))
                return f"shard {shard} still has node {gone}, which was removed: ask again when it has followed"
        return None

    def reply(self) -> Reply:
        """Give the refusal."""
        reason = f"the members can't be changed now: {self.fault}"
        return refusal(self.call.request, ErrorWord.MEMBERSHIP, reason)


class Measured(ShardsCall):
    """A node's numbers: all shards' rows, each counted by its own worker."""

    def reply(self) -> Reply:
        """Give the rows that there are; the first refusal, if there is none."""
        known = {shard: reply for shard, reply in self.by_shard if isinstance(reply, MetricsReply)}
        if not known:
            return self.replies[0]
        whole = known[min(known)]
        whole.shards = [row for shard in sorted(known) for row in known[shard].shards]
        whole.seq = self.call.request.seq
        self._note_missing(whole, known)
        return whole


class NodeStatus(ShardsCall):
    """A node and its shards, as the worker of shard `own` tells it; `faults` say why a worker does not run."""

    def __init__(self, call: Call, parts: list[Part], own: int, faults: dict[int, str]) -> None:
        super().__init__(call, parts)
        self._own = own
        self._faults = faults

    def reply(self) -> Reply:
        """Add up what the workers count, beside all shards' rows."""
        request = self.call.request
        rows: list[Any] = []
        known: set[int] = set()
        whole: StatusReply | None = None
        limits: set[str] = set()
        for shard, reply in sorted(self.by_shard, key=lambda row: row[0] != self._own):
            if not isinstance(reply, StatusReply):
                fault = self._faults.get(shard, reply.reason)
                rows.append({"shard": shard, "role": DOWN, "fault": fault})
                continue
            known.add(shard)
            rows += reply.shards
            limits |= set(reply.limits_reached)
            if whole is None:
                whole = reply
                continue
            whole.resident_bytes += reply.resident_bytes
            whole.connections += reply.connections
            whole.requests += reply.requests
            whole.open_requests += reply.open_requests
        if whole is None:
            return refusal(request, ErrorWord.NO_LEADER, "no shard of this node answers")
        whole.shards = sorted(rows, key=lambda row: row["shard"])
        whole.limits_reached = sorted(limits)
        whole.seq = request.seq
        self._note_missing(whole, known)
        return whole
