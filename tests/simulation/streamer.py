"""A simulated client of a topic: it appends, reads from any node, and is a member of a group that commits. What it
makes of jobs it appends and produces in the transaction that confirms them; some of those are to be refused.

What is known for certain stands in `TopicHistory`, which all of them share: what an append was answered, what anybody
has read at an offset, who was told to have a partition, where the group was. Its random numbers are its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from quorate.protocol import Action, ErrorWord
from storage.state import ShardState
from tests.simulation.clients import History, SimulatedSession
from tests.simulation.cluster import SimulatedNode
from tests.simulation.world import World

TOPIC = "{stream}"
GROUP = "readers"
JOBS, DONE = f"{TOPIC}.jobs", f"{TOPIC}.done"
NEVER = "never "
"""Begins what is in transactions that are refused."""

PARTITIONS = 3
SESSION_S = 6.0
APPENDED = "messages appended to a topic"
READ = "messages read from a topic"
TRANSACTED = "transactions that were done"
OWNED = "times that a member got a partition"
PACE = 0.7
"""A leader's clock may run so much faster."""

GONE = (ErrorWord.NO_SUCH_MESSAGE, ErrorWord.NOT_IN_FLIGHT)
"""Why a transaction may be refused whose job is somebody else's by then, or done."""

Place = tuple[int, int]
"""A partition, and an offset."""


@dataclass
class TopicHistory:
    """What is certain. `appended`: the data at a place, by an answer; `seen`: what anybody read there.

    `owners`: who was told to have a partition, and until when nobody else may. `positions`: where it is by now.
    `jobs` were produced, and `done` in a transaction.
    """

    problems: list[str]
    appended: dict[Place, str] = field(default_factory=dict)
    seen: dict[Place, tuple[str, int, int]] = field(default_factory=dict)
    numbered: dict[tuple[str, int], Place] = field(default_factory=dict)
    trimmed: dict[int, int] = field(default_factory=dict)
    owners: dict[int, tuple[str, float]] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    owned: int = 0
    jobs: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)

    def was_appended(self, place: Place, data: str) -> None:
        """An append was answered so."""
        if self.appended.setdefault(place, data) != data:
            self.problems.append(f"{data} and {self.appended[place]} were both appended at {place}")

    def was_read(self, place: Place, message: dict[str, Any], who: str) -> None:
        """Somebody has read that."""
        said = (message["data"], message["msg_id"], message["position"])
        if said[0].startswith(NEVER):
            self.problems.append(f"{who} has read {said} at {place}, of a transaction that was refused")
        if self.seen.setdefault(place, said) != said:
            self.problems.append(f"{who} has read {said} at {place}, where {self.seen[place]} was read")
        if self.appended.get(place, said[0]) != said[0]:
            self.problems.append(f"{who} has read {said} at {place}, where {self.appended[place]} was appended")


class Streamer(SimulatedSession):
    """Does so until it is stopped."""

    patience_s = 6.0

    def __init__(
        self, world: World, nodes: Sequence[SimulatedNode], history: History, topic: TopicHistory, name: str
    ) -> None:
        self._draw = Random(f"{world.seed} {name}")
        self._name = name
        self._topic = topic
        self._count = 0
        self._number = 0
        self._repeat: dict[str, Any] | None = None
        self._has_created = False
        self._at = dict.fromkeys(range(PARTITIONS), 0)
        self._has: set[int] = set()
        self._has_until = 0.0
        self._generation = 0
        self.appended = self.read = self.transacted = 0
        self._job: dict[str, Any] | None = None
        super().__init__(world, nodes, history)

    def _problem(self, text: str) -> None:
        self._topic.problems.append(f"{self._name}: {text} at {self._world.time}")

    def _next(self) -> None:
        if not self._has_created:
            self._create()
            return
        if self._draw.random() < 0.03 and self._stream is not None:
            self._stream.break_off()
            return
        if self._repeat is not None:
            self._append(self._repeat)
            return
        if self._draw.random() < 0.25:
            self._work()
            return
        chance = self._draw.random()
        if chance < 0.4:
            self._append_new()
        elif chance < 0.7:
            self._read()
        elif chance < 0.85:
            self._heartbeat()
        elif chance < 0.95:
            self._commit()
        elif chance < 0.97:
            self._trim()
        else:
            self._leave()

    def _create(self) -> None:
        def replied(reply: dict[str, Any]) -> None:
            self._has_created = reply["code"] == 0

        request = {"action": Action.TOPIC, "command": "create", "topic": TOPIC, "partitions": PARTITIONS}
        self._request(request, replied, lambda: None)

    # -- appending ---------------------------------------------------------------------------------------------

    def _data(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}" + "x" * self._draw.choice([0, 0, 50, 400])

    def _append_new(self) -> None:
        request: dict[str, Any] = {"action": Action.APPEND, "topic": TOPIC}
        if self._draw.random() < 0.6:
            request["partition"] = self._draw.randrange(PARTITIONS)
        if self._draw.random() < 0.5:
            request["data"] = self._data()
        else:
            request["messages"] = [{"data": self._data()} for _ in range(self._draw.choice([1, 3, 20]))]
        if self._draw.random() < 0.5:
            self._number += 1
            request |= {"producer": self._name, "number": self._number}
            self._repeat = request
        self._append(request)

    def _append(self, request: dict[str, Any]) -> None:
        """A numbered one is asked for until it is answered: it is appended once."""
        given = [one["data"] for one in request.get("messages", [request])]

        def replied(reply: dict[str, Any]) -> None:
            if reply["code"] != 0:
                if reply.get("error") == ErrorWord.DUPLICATE_NUMBER:
                    self._problem(f"number {request['number']} was not known any more: {reply}")
                    self._repeat = None
                return
            self._repeat = None
            partitions = reply.get("partitions") or [reply["partition"]]
            offsets = reply.get("offsets") or [reply["offset"]]
            if len(offsets) != len(given):
                self._problem(f"{len(given)} messages were appended, and {offsets} answered")
            self.appended += len(given)
            for partition, offset, data in zip(partitions, offsets, given, strict=True):
                self._topic.was_appended((partition, offset), data)

        self._request(request, replied, lambda: None)

    # -- reading -----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        partition = self._draw.randrange(PARTITIONS)
        offset = self._draw.choice([self._at[partition], self._at[partition], 0])
        request = {"action": Action.READ, "topic": TOPIC, "partition": partition, "offset": offset, "count": 30}
        if self._draw.random() < 0.5:
            request["wait"] = 0.5

        def replied(reply: dict[str, Any]) -> None:
            if reply.get("error") == ErrorWord.TRIMMED:
                if reply["next"] > self._topic.trimmed.get(partition, 0):
                    self._problem(f"messages before {reply['next']} of {partition} are gone, and nobody trimmed them")
                self._at[partition] = max(self._at[partition], reply["next"])
            if reply.get("error") == ErrorWord.DAMAGED:
                self._problem(f"a read of {partition}:{offset} was answered {reply}")
            if reply["code"] != 0:
                return
            for at, message in enumerate(reply["messages"], offset):
                if message["offset"] != at:
                    self._problem(f"offset {message['offset']} of {partition} came, where {at} was wanted")
                self._topic.was_read((partition, at), message, self._name)
            self.read += len(reply["messages"])
            self._at[partition] = max(self._at[partition], reply["next"])

        self._request(request, replied, lambda: None)

    def _trim(self) -> None:
        partition = self._draw.randrange(PARTITIONS)
        offset = self._at[partition] // 2
        before = self._topic.trimmed.get(partition, 0)
        self._topic.trimmed[partition] = max(before, offset)
        request = {"action": Action.TOPIC, "command": "trim", "topic": TOPIC, "partition": partition, "offset": offset}
        self._request(request, lambda reply: None, lambda: None)

    # -- transactions ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Produce a job, take one, or say in one transaction that it is done, and what came of it."""
        if self._job is not None:
            self._transact(self._job)
        elif self._draw.random() < 0.5:
            job = self._data()
            request = {"action": Action.PRODUCE, "queue": JOBS, "data": job, "retry": 5}
            self._request(
                request, lambda reply: self._topic.jobs.add(job) if reply["code"] == 0 else None, lambda: None
            )
        else:
            self._request({"action": Action.CONSUME, "queue": JOBS}, self._took, lambda: None)

    def _took(self, reply: dict[str, Any]) -> None:
        if reply["code"] == 0 and reply.get("msg_id") is not None:
            self._job = reply

    def _transact(self, job: dict[str, Any]) -> None:
        data = job["data"]
        is_refused = self._draw.random() < 0.3
        beside = NEVER + self._data() if is_refused else f"of {data}"
        where = {"partition": self._draw.randrange(PARTITIONS)}
        operations: list[dict[str, Any]] = [
            {"action": Action.APPEND, "topic": TOPIC, "data": beside, **where},
            {"action": Action.CONFIRM, "msg_id": job["msg_id"], "delivery": job["deliveries"]},
            {"action": Action.PRODUCE, "queue": DONE, "data": beside},
        ]
        if self._draw.random() < 0.3:
            operations.append({"action": Action.COMMIT, "topic": TOPIC, "group": "workers", "positions": {"0": 0}})
        if is_refused:
            operations.append({"action": Action.CONFIRM, "msg_id": 1 << 40})
        else:
            self._job = None

        def replied(reply: dict[str, Any]) -> None:
            if is_refused:
                if reply["code"] == 0:
                    self._problem(f"{operations} was done")
            elif reply["code"] == 0:
                self.transacted += 1
                if data in self._topic.done:
                    self._problem(f"{data} was done twice")
                self._topic.done.add(data)
                self._topic.was_appended((where["partition"], reply["replies"][0]["offset"]), beside)
            elif reply.get("index") is not None and reply.get("error") not in GONE:
                self._problem(f"{operations} was refused: {reply}")

        self._request({"action": Action.TRANSACTION, "operations": operations}, replied, lambda: None)

    # -- the group ---------------------------------------------------------------------------------------------

    def _lets_go(self, kept: set[int]) -> None:
        """What the member does not say that it has is nobody's from now on."""
        for partition, (owner, _) in [*self._topic.owners.items()]:
            if owner == self._name and partition not in kept:
                del self._topic.owners[partition]
        self._has &= kept

    def _heartbeat(self) -> None:
        asked_at = self._world.time
        if asked_at > self._has_until:  # it has heard of nobody for a session: others may have got what it had
            self._lets_go(set())
        has = sorted(self._has)
        self._lets_go({*has})
        request = {"action": Action.GROUP, "command": "heartbeat", "topic": TOPIC, "group": GROUP, "owns": has}
        request |= {"member": self._name, "session": SESSION_S}
        if self._draw.random() < 0.3:
            request["wait"] = 1.0

        def replied(reply: dict[str, Any]) -> None:
            if reply["code"] != 0 or reply.get("owns") is None:
                return
            now = self._world.time
            for partition in reply["owns"]:
                owner, until = self._topic.owners.get(partition, (self._name, 0.0))
                if owner != self._name and now < until:
                    self._problem(f"it is to have {partition}, which is {owner}'s until {until}")
                self._topic.owners[partition] = (self._name, asked_at + SESSION_S * PACE)
                if partition not in self._has:
                    self._topic.owned += 1
            self._has = {*reply["owns"]}
            self._has_until = asked_at + SESSION_S * PACE
            self._generation = reply["generation"]
            for partition, position in reply.get("positions", {}).items():
                known = self._topic.positions.get(int(partition), 0)
                if position < known and asked_at > self._last_commit_at:
                    self._problem(f"the group is said to be at {position} of {partition}, and was at {known}")

        self._request(request, replied, lambda: None)

    _last_commit_at = 0.0

    def _commit(self) -> None:
        if not self._has:
            self._heartbeat()
            return
        partition = self._draw.choice(sorted(self._has))
        position = self._draw.choice([self._at[partition], max(self._at[partition] - 5, 0)])
        request = {"action": Action.COMMIT, "topic": TOPIC, "group": GROUP, "member": self._name}
        request |= {"generation": self._generation, "positions": {str(partition): position}}

        def replied(reply: dict[str, Any]) -> None:
            if reply["code"] != 0:
                if reply.get("error") in (ErrorWord.NOT_OWNER, ErrorWord.UNKNOWN_MEMBER):
                    self._lets_go(set())
                return
            now = reply["positions"][str(partition)]
            if now < position:
                self._problem(f"{position} of {partition} was committed, and the group is at {now}")
            self._topic.positions[partition] = max(self._topic.positions.get(partition, 0), now)

        self._request(request, replied, lambda: None)

    def _leave(self) -> None:
        self._lets_go(set())
        request = {"action": Action.GROUP, "command": "leave", "topic": TOPIC, "group": GROUP, "member": self._name}
        self._request(request, lambda reply: None, lambda: None)


def _halves(history: TopicHistory, node_id: int, state: ShardState, appended: list[Any]) -> list[str]:
    """Transactions of which a node has a part alone, or that were refused; and jobs that are nowhere."""
    by_queue: dict[str, list[str]] = {JOBS: [], DONE: []}
    for message in state.messages.values():
        if message.queue in by_queue:
            by_queue[message.queue].append(msgspec.json.decode(message.data))
    jobs, done = by_queue[JOBS], by_queue[DONE]
    found = [f"node {node_id} has {one!r}" for one in (*appended, *done) if one.startswith(NEVER)]
    found += [f"node {node_id} has {one!r}, and the job itself" for one in jobs if f"of {one}" in done]
    found += [f"node {node_id} has {one!r} twice in {DONE}" for one in {*done} if done.count(one) > 1]
    found += [
        f"node {node_id} has appended {one!r}, and no more" for one in appended if one[:3] == "of " and one not in done
    ]
    is_trimmed = any(history.trimmed.values())
    found += [f"node {node_id} has not appended {one!r}" for one in done if one not in appended and not is_trimmed]
    found += [
        f"node {node_id} has {one!r} no more" for one in history.jobs if one not in jobs and f"of {one}" not in done
    ]
    found += [f"node {node_id} has {one!r} not done" for one in history.done if f"of {one}" not in done]
    return found


def problems_of(history: TopicHistory, nodes: Sequence[SimulatedNode]) -> list[str]:
    """Where the nodes' disks, which hold all of one shard, say something else than what is certain, or each other."""
    found: list[str] = []
    first: dict[Place, tuple[Any, ...]] | None = None
    for node in nodes:
        state = node.state_on_disk()
        topic = state.topics.by_name.get(TOPIC)
        if topic is None:
            if history.appended:
                found.append(f"node {node.node_id} has no topic")
            continue
        if state.topics.tails.gaps:
            found.append(f"node {node.node_id} lacks {state.topics.tails.gaps}")
            continue
        held: dict[Place, tuple[Any, ...]] = {}
        for partition in topic.partitions:
            its = {kept.offset: kept for kept in node.kept_in(partition)}
            if [*its] != [*range(partition.first, partition.next)]:
                found.append(f"node {node.node_id} has {[*its]} of {partition.index}, not {partition.first} on")
            trimmed = history.trimmed.get(partition.index, 0)
            if partition.first > trimmed:
                found.append(f"node {node.node_id} begins with {partition.first}, and {trimmed} was trimmed")
            for offset, kept in its.items():
                held[partition.index, offset] = (kept.data.decode(), kept.msg_id, kept.position)
            for (index, offset), data in history.appended.items():
                its_data = held.get((index, offset), ("",))[0]
                if index == partition.index and offset >= partition.first and its_data != data:
                    found.append(f"node {node.node_id} has {its_data!r} at {index}:{offset}, not {data}")
        found += [
            f"node {node.node_id} has {held.get(place)} at {place}, where {said} was read"
            for place, said in history.seen.items()
            if place[1] >= topic.partitions[place[0]].first and held.get(place) != said
        ]
        datas = [said[0] for said in held.values()]
        if len(datas) != len({*datas}):
            twice = {data for data in datas if datas.count(data) > 1}
            found.append(f"node {node.node_id} has {twice} twice")
        found += _halves(history, node.node_id, state, datas)
        group = topic.groups.get(GROUP)
        for index, position in history.positions.items():
            if group is None or group.offsets.get(index, 0) < position:
                found.append(f"node {node.node_id} has the group before {position} of {index}")
        if first is None:
            first = held
        elif held != first:
            found.append(f"node {node.node_id} has other messages than another node")
    return found
