"""One seed: a cluster, clients, faults for a while, then none, and then the checkers.

Safety first, under faults; then the faults stop, and the cluster must serve everything that is left within a bounded
virtual time (liveness).
"""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from quorate.shards import shard_of_queue
from storage.blocks import BLOCK_BYTES
from storage.message import Message
from storage.records import Place
from tests.simulation.archive import READER, Archive
from tests.simulation.clients import Drain, History, SimulatedClient, SimulatedSession
from tests.simulation.cluster import ClusterLimits, SimulatedNode
from tests.simulation.dabbler import PREFIX, Dabbler
from tests.simulation.faults import Faults
from tests.simulation.gopher import POPPED, TOPICS, Gopher, IdHistory
from tests.simulation.jobber import GOT, Jobber, JobHistory
from tests.simulation.jobber import QUEUES as JOBBERS_QUEUES
from tests.simulation.network import Network
from tests.simulation.observe import Observer
from tests.simulation.replacer import QUEUE as REPLACERS_QUEUE
from tests.simulation.replacer import Replacer
from tests.simulation.rules import IDLE
from tests.simulation.rules import QUEUES as WORKERS_QUEUES
from tests.simulation.steward import LOOKED, QUEUES, Looker, Steward
from tests.simulation.streamer import (
    APPENDED,
    DONE,
    JOBS,
    OWNED,
    READ,
    TOPIC,
    TRANSACTED,
    Streamer,
    TopicHistory,
    problems_of,
)
from tests.simulation.worker import CANCELLED, Worker
from tests.simulation.world import World
from tests.simulation.zookeeper import ZooKeeper

FAULTS_S = 40.0
RAW_BYTES = 4 << 20
CALM_S = 400.0
RIPE_S = 3.0
DABBLED = "requests with any fields"
CONVERGED_S = 30.0
REGISTERED_S = 90.0
"""A registrar looks once a minute whether all is still there."""


@dataclass
class Outcome:
    """What a seed came to."""

    seed: int
    problems: list[str]
    trace: str
    requests: int
    virtual_s: float
    crashes: int
    torn: int
    nodes: int
    elections: int
    reached: Counter[str]


class Run:
    """One seed's run. `size` fixes the number of nodes, `shards` that of shards: 0 lets the seed draw 2 to 4.

    `has_steward`, `has_workers` None: in a third of the seeds.
    """

    def __init__(
        self,
        seed: int,
        size: int | None = None,
        shards: int = 1,
        *,
        has_steward: bool | None = None,
        has_workers: bool | None = None,
        has_jobbers: bool | None = None,
        has_gophers: bool | None = None,
        has_dabblers: bool | None = None,
        has_replacers: bool | None = None,
        has_streamers: bool | None = None,
    ) -> None:
        self.seed = seed
        self.has_workers = Random(seed ^ 0x30BB1E5).random() < 1 / 3 if has_workers is None else has_workers
        self.has_jobbers = Random(seed ^ 0x10BBE25).random() < 1 / 3 if has_jobbers is None else has_jobbers
        self.has_gophers = Random(seed ^ 0x60F).random() < 1 / 3 if has_gophers is None else has_gophers
        self.has_dabblers = Random(seed ^ 0xDAB).random() < 1 / 3 if has_dabblers is None else has_dabblers
        self.has_replacers = Random(seed ^ 0x4E91).random() < 1 / 4 if has_replacers is None else has_replacers
        self.replacers: list[Replacer] = []
        self.has_streamers = Random(seed ^ 0x57E4).random() < 1 / 4 if has_streamers is None else has_streamers
        self.streamers: list[Streamer] = []
        self.ids = IdHistory()
        self.has_steward = Random(seed ^ 0x57E4A2D).random() < 1 / 3 if has_steward is None else has_steward
        self.world = World(seed)
        self.limits = ClusterLimits.drawn(self.world.random)
        if size is not None:
            self.limits.size = size
        self.limits.vary(seed)
        if shards != 1:
            self.limits.shards = shards or Random(seed).choice([2, 2, 3, 4])
            self.limits.balance_s = Random(seed + 1).choice([0.0, 1.0, 10.0])
            self.limits.frame_bytes_max += RAW_BYTES  # between workers a part of the raw log goes in one
        if self.has_streamers:
            self.limits.frame_bytes_max += BLOCK_BYTES + RAW_BYTES
        if self.has_streamers and Random(seed ^ 0x200).random() < 0.5:
            self.limits.zookeeper = ZooKeeper(self.world)
        self.network = Network(self.world)
        self.history = History(queues=self.limits.queues)
        self.topic = TopicHistory(self.history.problems)
        problems, handed_out = self.history.problems, self.history.handed_out
        self.observers = [Observer(self.world, problems, handed_out, n) for n in range(self.limits.shards)]
        self.nodes: list[SimulatedNode] = []
        for number in range(1, self.limits.size + 1):
            first = SimulatedNode(self.network, number, self.limits)
            others = [SimulatedNode(self.network, number, self.limits, first, n) for n in range(1, self.limits.shards)]
            self.nodes += [first, *others]
        for node in self.nodes:
            node.observer = self.observers[node.shard]
        self.faults = Faults(self.world, self.network, self.nodes, self.history)

    def go(self) -> Outcome:
        """Run it."""
        world = self.world
        for node in self.nodes:
            assert node.start()
        clients: list[SimulatedSession] = [
            SimulatedClient(world, self.nodes, self.history, f"c{n}") for n in range(world.random.randint(1, 5))
        ]
        lookers: list[Looker] = []
        if self.has_steward:
            self.history.stewards_queues = [*QUEUES]
            steward = Steward(world, self.nodes, self.history)
            lookers = [Looker(world, node, self.history, steward) for node in self.nodes if not node.shard]
            clients += [steward, *lookers]
        workers: list[Worker] = []
        if self.has_workers:
            self.history.stewards_queues += WORKERS_QUEUES
            workers = [Worker(world, self.nodes, self.history, name) for name in ("w1", "w2")]
            clients += workers
        if self.has_gophers:
            clients += [Gopher(world, self.nodes, self.history, self.ids, name) for name in ("g1", "g2")]
        jobs = JobHistory()
        if self.has_jobbers:
            clients += [Jobber(world, self.nodes, self.history, jobs, name) for name in ("j1", "j2")]
        dabblers: list[Dabbler] = []
        if self.has_dabblers:
            dabblers = [Dabbler(world, self.nodes, self.history, name) for name in ("d1", "d2")]
            clients += dabblers
        if self.has_replacers:
            self.replacers = [Replacer(world, self.nodes, self.history, name) for name in ("r1", "r2")]
            clients += self.replacers
        if self.has_streamers:
            names = ("s1", "s2", "s3")
            self.streamers = [Streamer(world, self.nodes, self.history, self.topic, name) for name in names]
            clients += self.streamers
        archive = Archive(world, self.nodes, self.history, self.seed % self.limits.shards)
        world.later(world.random.random() * 5, self.faults.next)
        world.run_until(FAULTS_S)
        for client in [*clients, archive]:
            client.is_stopped = True
        self.faults.end()
        if self.limits.zookeeper is not None:
            self.limits.zookeeper.is_calm = True
        world.run_until(world.time + 3)
        self._check_ripe()
        confirmed_before = set(self.history.confirmed)
        drained = Drain(world, self.nodes, self.history, self._has_some)
        world.run_until(world.time + CALM_S, lambda: drained.is_done)
        world.run_until(world.time + CONVERGED_S, self._has_converged)
        world.run_until(world.time + REGISTERED_S, lambda: not self._unregistered())
        self._check(drained, confirmed_before)
        self._check_workers(workers)
        self._check_archive(archive)
        self._check_jobbers()
        self._check_gophers()
        self._check_replacers()
        self._check_streamers()
        self.history.problems += self._unregistered()
        for node in self.nodes:
            if node.is_up:
                node.end(power_cut=world.random.random() < 0.5)
        return Outcome(
            self.seed,
            self.history.problems,
            world.trace.hexdigest(),
            self.history.done,
            world.time,
            self.faults.crashes,
            sum(node.torn for node in self.nodes),
            self.limits.size,
            sum(observer.elections for observer in self.observers),
            sum(
                (observer.reached for observer in self.observers),
                world.reached
                + Counter({"clients moved": self._moved})
                + Counter({GOT: jobs.got})
                + Counter({POPPED: self.ids.popped})
                + Counter({LOOKED: sum(one.looked for one in lookers)})
                + Counter({DABBLED: sum(one.asked for one in dabblers)})
                + Counter({APPENDED: sum(one.appended for one in self.streamers)})
                + Counter({TRANSACTED: sum(one.transacted for one in self.streamers)})
                + Counter({READ: sum(one.read for one in self.streamers), OWNED: self.topic.owned})
                + Counter({CANCELLED: sum(one.cancelled for one in workers)}),
            ),
        )

    @property
    def _moved(self) -> int:
        return sum(node.moved for node in self.nodes)

    def _check_ripe(self) -> None:
        """What is due by the log's time is ready on every node, or held back; but for what comes behind a record that
        is to be made, and on a leader whose first record is not committed yet: it serves nobody.
        """
        for node in self.nodes:
            state = self.observers[node.shard].states.get(node.node_id)
            if not node.is_up or state is None or node.log is None or node.log.committed < state.trans_id:
                continue
            for queue in state.queues.values():
                first = state.messages[queue.waiting.first[1]] if queue.waiting else None
                if first is not None and first.place == Place.DELAYED and first.due_at < state.time - RIPE_S:
                    late = f"message {first.msg_id} was due {state.time - first.due_at:.1f} s before its log's time"
                    self.history.problems.append(f"node {node.node_id} says that it is delayed still: {late}")

    def _has_some(self) -> bool:
        """Whether a member's memory holds a message that a client of ours would have taken."""
        within = [node for node in self.nodes if node.node_id not in self.faults.outside]
        states = [self.observers[node.shard].states.get(node.node_id) for node in within]
        return any(state is None or any(_is_left(one) for one in state.messages.values()) for state in states)

    def _has_converged(self) -> bool:
        """Whether all members know the same to be committed, and have it in LMDB."""
        agree = all(self._agree_on(shard) for shard in range(self.limits.shards))
        return agree and not any(self._lacks(node) for node in self.nodes if node.node_id not in self.faults.outside)

    def _lacks(self, node: SimulatedNode) -> bool:
        """Whether messages of topics are on their way to a node."""
        state = self.observers[node.shard].states.get(node.node_id)
        return state is not None and bool(state.topics.tails.gaps)

    def _agree_on(self, shard: int) -> bool:
        workers = [one for one in self.nodes if one.shard == shard and one.node_id not in self.faults.outside]
        known = {_known_of(worker) for worker in workers}
        return len(known) == 1 and all(committed == checkpointed for committed, checkpointed in known)

    def _check(self, drained: Drain, confirmed_before: set[int]) -> None:
        problems = self.history.problems
        if not drained.is_done:
            problems.append("the cluster did not serve what was left in time")
            return
        if not self._has_converged():
            views = [(node.node_id, node.shard, *_known_of(node)) for node in self.nodes]
            problems.append(f"the nodes did not come to agree: {views}")
            return
        self._check_lost(drained, confirmed_before)
        self._check_keys()
        states = [observer.replayed() for observer in self.observers]
        self._check_batches()
        self._check_open()
        self._check_members()
        for node in self.nodes:
            if node.node_id in self.faults.outside:
                continue
            replayed, observer = states[node.shard], self.observers[node.shard]
            observer.compare(node.node_id, observer.states[node.node_id], math.inf, replayed)
            state = node.state_on_disk()
            left = [message for message in state.messages.values() if _is_left(message)]
            if left:
                problems.append(f"{len(left)} messages are on the disk of node {node.node_id}, drained")
            if state.trans_id != replayed.trans_id or sorted(state.messages) != sorted(replayed.messages):
                problems.append(f"node {node.node_id}'s disk is not what the committed log says")
            if state.facts.readers != replayed.facts.readers:
                problems.append(f"node {node.node_id}'s readers are not what the committed log says")
            settings = {name: queue.settings() for name, queue in state.queues.items()}
            if settings != {name: queue.settings() for name, queue in replayed.queues.items()}:
                problems.append(f"node {node.node_id}'s queues are not what the committed log says")

    def _check_workers(self, workers: list[Worker]) -> None:
        """What was confirmed was the delivery that the worker meant; a queue that nobody uses is gone."""
        confirmed = {msg_id: count for observer in self.observers for msg_id, count in observer.rules.confirmed.items()}
        for worker in workers:
            for msg_id, delivery in worker.confirmed.items():
                if confirmed.get(msg_id, delivery) > delivery:  # fewer: a crash has lost the record of that delivery
                    self.history.problems.append(
                        f"delivery {delivery} of message {msg_id} was confirmed when there were {confirmed[msg_id]}"
                    )
        for node in self.nodes if workers else ():
            queue = node.state_on_disk().queues.get(IDLE) if node.is_up else None
            if queue is not None and queue.life.expires_after_s and node.node_id not in self.faults.outside:
                self.history.problems.append(f"queue {IDLE} is still there, which nobody has used for long")

    def _check_jobbers(self) -> None:
        """Their jobs are over, and so are the queues that those have made."""
        for node in self.nodes if self.has_jobbers else ():
            for name in JOBBERS_QUEUES:
                queue = node.state_on_disk().queues.get(name) if node.is_up else None
                if queue is None or node.node_id in self.faults.outside:
                    continue
                if queue.life.is_transient and not (queue.paused or queue.paused_in_at):
                    self.history.problems.append(f"queue {name} is still there, which a job has made")

    def _check_gophers(self) -> None:
        """Each disk has the ids that are known to be there, and none that is known to be gone."""
        shard = shard_of_queue(TOPICS[0], self.limits.shards)
        for node in self.nodes if self.has_gophers else ():
            if node.is_up and node.shard == shard and node.node_id not in self.faults.outside:
                self.history.problems += self.ids.problems_on(node.state_on_disk())

    def _check_replacers(self) -> None:
        """Each disk has for each key the message that is known to have it."""
        shard = shard_of_queue(REPLACERS_QUEUE, self.limits.shards)
        for node in self.nodes if self.replacers else ():
            if node.is_up and node.shard == shard and node.node_id not in self.faults.outside:
                state = node.state_on_disk()
                self.history.problems += [one for client in self.replacers for one in client.problems_on(state)]

    def _check_streamers(self) -> None:
        """Each disk has each message that is known to be there, once, at its place."""
        shard = shard_of_queue(TOPIC, self.limits.shards)
        nodes = [node for node in self.nodes if node.is_up and node.shard == shard]
        if self.streamers:
            self.history.problems += problems_of(
                self.topic, [node for node in nodes if node.node_id not in self.faults.outside]
            )

    def _unregistered(self) -> list[str]:
        """What does not stand in ZooKeeper as it should: all topics, each at its shard's leader."""
        zookeeper = self.limits.zookeeper
        if zookeeper is None:
            return []
        within = [node for node in self.nodes if node.node_id not in self.faults.outside]
        topics: dict[int, dict[str, int]] = {shard: {} for shard in range(self.limits.shards)}
        for node in within:
            state = self.observers[node.shard].states.get(node.node_id)
            for name, topic in {} if state is None else state.topics.by_name.items():
                topics[node.shard][name] = len(topic.partitions)
        return zookeeper.problems(within, topics)

    def _check_archive(self, archive: Archive) -> None:
        """What a reader of the raw log has is what was committed, and the log knows where it said it is."""
        problems = self.history.problems
        for first, taken in archive.entries.items():
            if self.observers[archive.shard].committed.get(first) != taken:
                problems.append(f"a reader of the log was given records {first}..{taken[0]}, which are not committed")
        for node in self.nodes:
            if node.node_id not in self.faults.outside and archive.said and node.shard == archive.shard:
                at = node.state_on_disk().facts.readers.get(READER)
                if at is None or at.upto < archive.said:
                    problems.append(
                        f"node {node.node_id} has the reader at {at}, and it was acknowledged {archive.said}"
                    )

    def _check_batches(self) -> None:
        """All messages of a produce are in a queue's log, or none."""
        produced = sum((observer.produced for observer in self.observers), Counter())
        for (queue, token), count in produced.items():
            if token in self.history.batches and count != self.history.batches[token]:
                wanted = self.history.batches[token]
                self.history.problems.append(f"{count} of the {wanted} messages {token} are in {queue}'s log")

    def _check_members(self) -> None:
        """Every shard has the members that shard 0 has."""
        for node in self.nodes:
            members, first = _members_of(node), _members_of(node.first)
            if members != first:
                self.history.problems.append(
                    f"node {node.node_id} has the members {members} in shard {node.shard}, and {first} in shard 0"
                )

    def _check_open(self) -> None:
        """No request counts as open that nobody waits for any more: the node would refuse all of them in the end."""
        for node in self.nodes:
            if node.listener is not None and node.listener.counts.open_requests:
                count = node.listener.counts.open_requests
                self.history.problems.append(f"node {node.node_id} takes {count} requests for open")

    def _check_lost(self, drained: Drain, confirmed_before: set[int]) -> None:
        history = self.history
        for msg_id, sent in history.acknowledged.items():
            if msg_id in history.delivered or msg_id in drained.seen:
                continue
            if msg_id in history.cleared or msg_id in history.maybe_cleared:
                continue
            if msg_id in history.maybe_confirmed or msg_id in history.confirmed:
                history.problems.append(f"message {msg_id} was confirmed without having been delivered")
            if sent.retry == 0 and history.may_be_taken(sent):
                continue  # a delivery of it may have been lost with its connection: that is at most once
            history.problems.append(f"acknowledged message {msg_id} ({sent.token}) is lost")
        history.problems += [f"message {one} was left, and is lost" for one in history.left if one not in drained.seen]
        for msg_id in drained.seen:
            if msg_id in confirmed_before:
                history.problems.append(f"message {msg_id} came back after its confirmation")

    def _check_keys(self) -> None:
        """No two live messages of a queue have one key: the older was gone before the younger was asked for."""
        by_key: dict[tuple[str, str], list[int]] = {}
        for msg_id, sent in self.history.acknowledged.items():
            if sent.key is not None:
                by_key.setdefault((sent.queue, sent.key), []).append(msg_id)
        for (queue, key), ids in by_key.items():
            ids.sort()  # in the log's order: the replies may have come in another
            for older, younger in pairwise(ids):
                alive_at = max(
                    (at for (msg_id, _), at in self.history.handed_out.items() if msg_id == older), default=-math.inf
                )
                if alive_at > self.history.acknowledged[younger].at:
                    self.history.problems.append(
                        f"messages {older} and {younger} of {queue} were both alive with the key {key}"
                    )


def _members_of(worker: SimulatedNode) -> list[tuple[int, bool, int]]:
    """The node_ids, whether they vote, and the disk that shard 0 knows each by."""
    current = None if worker.log is None else worker.log.membership.current
    members = [] if current is None else current.members
    return [(one.node_id, one.is_voter, one.root_disk_id if worker.shard else one.disk_id) for one in members]


def _is_left(message: Message) -> bool:
    """Whether it is there though all was taken; but for what nobody takes."""
    return message.queue not in (IDLE, REPLACERS_QUEUE, JOBS, DONE, *TOPICS) and not message.queue.startswith(PREFIX)


def _known_of(node: SimulatedNode) -> tuple[int, int]:
    """How far a node's log is committed and checkpointed."""
    return (0, 0) if node.log is None else (node.log.committed, node.log.tail.checkpointed)
