"""What goes wrong, drawn from the seed: nodes, disks, clocks, links, and the people who administer them."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from storage.renewal import others_can_elect
from tests.simulation.clients import History
from tests.simulation.cluster import SimulatedNode, Stream
from tests.simulation.network import Network
from tests.simulation.stranger import Stranger
from tests.simulation.world import World

HELD_S = 6.0
SILENT_RATE = 0.02
"""In so many cases a disk answers nothing any more, until its node is restarted."""

DAMAGE_RATE = 0.04
"""So many of a cluster's nodes that start again have lost their logs."""

AHEAD_RATE = 0.2
AHEAD_S = 60.0
"""So many start with a clock that is ahead, until it is put right."""


def _some_abstain(nodes: Sequence[SimulatedNode]) -> bool:
    """Whether a log was lost, and is not whole again."""
    return any(one.log is not None and one.log.abstains for one in nodes)


class Faults:
    """Lets something go wrong every now and then until `end`. `outside` are nodes that are no members at the end."""

    def __init__(self, world: World, network: Network, nodes: Sequence[SimulatedNode], history: History) -> None:
        self._world = world
        self._network = network
        self._nodes = nodes
        self._history = history
        self._is_on = True
        self._size = len({node.node_id for node in nodes})
        self._shards = nodes[0].shards
        self._wiped: SimulatedNode | None = None
        self.outside: set[int] = set()
        self.crashes = 0
        self._damage = Random(world.seed ^ 0xDA3A6ED)  # of its own: what else a seed draws stays as it was
        self._silence = Random(world.seed ^ 0x511E47)
        self._ahead = Random(world.seed ^ 0xA4EAD)
        self._silent: set[SimulatedNode] = set()

    def next(self) -> None:
        """Draw one, and when the next comes."""
        if not self._is_on:
            return
        world, random = self._world, self._world.random
        if self._size > 2 and self._silence.random() < SILENT_RATE:
            self._silent_disk(self._silence.choice(self._nodes))
        node = random.choice(self._nodes)
        choice = random.random()
        if choice < 0.35:
            if node.runtime is None:
                pass
            elif random.random() < 0.7:
                node.runtime.on_write = lambda: self._crash(node)  # the moment at which a crash is worth most
            elif self._shards > 1 and random.random() < 0.5:
                for one in self._workers_of(node):
                    self._crash(one)
            else:
                self._crash(node)
        elif choice < 0.45 and node.streams:
            random.choice(node.streams).break_off()
        elif choice < 0.52:
            node.set_disk_full(True)
            world.later(random.random() * 6, lambda: node.set_disk_full(False))
        elif choice < 0.60:
            node.clock.offset += random.choice([0.5, 3.0, 60.0, -0.5, -60.0])
        elif choice < 0.65 and node.runtime is not None:
            self._slow_disk(node)
        elif choice < 0.68 and node.runtime is not None:
            Stranger(world, node, random.choice(self._nodes)).talk()
        elif self._size > 1:
            self._cluster_fault(node)
        world.later(random.choice([0.05, 0.5, 2.0, 8.0]), self.next)

    def _cluster_fault(self, node: SimulatedNode) -> None:
        random = self._world.random
        choice = random.random()
        if choice < 0.35:
            self._partition()
        elif choice < 0.5:
            self._network.break_links(random.choice([None, node.name]))
        elif choice < 0.7:
            self._pause(node)
        elif choice < 0.85:
            self._move_leader()
        elif choice < 0.90 and self._size > 2:
            if not _some_abstain(self._nodes):
                self._replace_disk(node)
        elif choice < 0.95 and self._wiped is None:
            if not _some_abstain(self._nodes):  # with one voter less there would be nobody left to elect
                self._wiped = node
                self._readmit(node)  # removed, and added again with what it has
        else:
            for one in self._nodes:  # a power failure of the whole site
                if one.is_up:
                    self._crash(one, power_cut=True)

    def _move_leader(self) -> None:
        random = self._world.random
        if self._shards == 1:
            self._command({"command": "transfer"})
        elif random.random() < 0.3:
            self._command({"command": "balance"})
        else:
            self._command({"command": "transfer", "shard": random.randrange(self._shards)})

    def _workers_of(self, node: SimulatedNode) -> list[SimulatedNode]:
        return [one for one in self._nodes if one.node_id == node.node_id]

    # -- nodes -------------------------------------------------------------------------------------------------

    def _crash(self, node: SimulatedNode, power_cut: bool | None = None) -> None:
        if node.is_up and self._is_on:
            random = self._world.random
            self.crashes += 1
            self._world.note("crash", node.name)
            node.end(power_cut=random.random() < 0.6 if power_cut is None else power_cut)
            self._world.later(random.choice([0.0, 0.5, 3.0]), lambda: self._restart(node))

    def _restart(self, node: SimulatedNode) -> None:
        if not node.is_up and self._size > 2 and self._damage.random() < DAMAGE_RATE and self._may_lose_a_log(node):
            node.lose_log()
        can_be_ahead = not node.is_up and self._size > 1 and not node.clock.leads
        if can_be_ahead and self._ahead.random() < AHEAD_RATE:
            self._set_ahead(node)
        if not node.is_up and not node.start():
            self._world.later(0.5, lambda: self._restart(node))

    def _set_ahead(self, node: SimulatedNode) -> None:
        """As a machine's clock may be until it has asked for the time."""
        node.clock.offset += AHEAD_S

        def put_right() -> None:
            if self._is_on:  # at the end all clocks are set
                node.clock.offset -= AHEAD_S

        self._world.later(0.2 + 0.8 * self._ahead.random(), put_right)

    def _may_lose_a_log(self, node: SimulatedNode) -> bool:
        """One at a time: with two of three there would be nobody left to elect."""
        others = [one for one in self._nodes if one.shard == node.shard and one is not node]
        is_one = not _some_abstain(others)
        if self._wiped is not None or not is_one or node.folder.names() == [] or not node.may_begin_anew():
            return False
        # what it read of its own log may be older than a change of the members that needs it: while a cluster is
        # founded, for a moment two voters are all; `qctl log repair --force` ends that, and nobody is here to call it
        known = [one.log.membership.current for one in others if one.log is not None]
        return all(others_can_elect(node.node_id, members, ()) for members in known if members is not None)

    def _slow_disk(self, node: SimulatedNode) -> None:
        runtime = node.runtime
        assert runtime is not None
        runtime.disk_slowness = self._world.random.choice([10.0, 100.0])

        def mend() -> None:
            runtime.disk_slowness = 1.0

        self._world.later(self._world.random.random() * 5, mend)

    def _silent_disk(self, node: SimulatedNode) -> None:
        """What is being written never ends; somebody restarts the node after a while."""
        runtime = node.runtime
        if runtime is None or self._silent:
            return
        self._world.note("silent", node.name)
        self._silent.add(node)
        runtime.disk_slowness = 1e9

        def restart() -> None:
            self._silent.discard(node)
            if node.runtime is runtime:
                self._crash(node)

        self._world.later(2.0 + self._silence.random() * 10, restart)

    def _pause(self, node: SimulatedNode) -> None:
        """SIGSTOP, for longer than an election takes."""
        runtime = node.runtime
        if runtime is not None and not runtime.is_paused:
            runtime.is_paused = True
            self._world.later(self._world.random.random() * 6, runtime.resume)

    def _replace_disk(self, node: SimulatedNode) -> None:
        """A node loses its disk, and comes back empty under its old number; then it is removed and added again."""
        all_vote = all(one.is_up and self._voters_seen_by(one) == self._size for one in self._nodes)
        if self._wiped is not None or not all_vote:
            return  # more than one disk at a time is more than a majority can stand
        self._wiped = node
        for one in self._workers_of(node):
            one.end(power_cut=True)
            one.wipe()
        for one in self._workers_of(node):
            assert one.start()
        self._world.later(3.0, lambda: self._readmit(node))

    @staticmethod
    def _voters_seen_by(node: SimulatedNode) -> int:
        return 0 if node.log is None else len(node.log.membership.voters)

    def _readmit(self, node: SimulatedNode) -> None:
        address = {"node_id": node.node_id, "host": node.name, "port": 1}

        def added(reply: dict[str, Any]) -> None:
            self._wiped = None

        def removed(reply: dict[str, Any]) -> None:
            if reply["code"] == 0 or "no member" in reply.get("reason", ""):
                self._command({"command": "add", **address}, added, persists=True)
            else:
                self._world.later(1.0, lambda: self._readmit(node))

        self._command({"command": "remove", "node_id": node.node_id}, removed, persists=True)

    # -- links -------------------------------------------------------------------------------------------------

    def _partition(self) -> None:
        """Symmetric, one-way, or partial; it heals by itself."""
        random = self._world.random
        names = list(dict.fromkeys(node.name for node in self._nodes))
        random.shuffle(names)
        cut = random.randint(1, len(names) - 1)
        pairs = [(a, b) for a in names[:cut] for b in names[cut:]]
        if random.random() < 0.3:
            pairs = [pair for pair in pairs if random.random() < 0.5]
        if random.random() < 0.6:
            pairs += [(b, a) for a, b in pairs]
        self._network.blocked.update(pairs)
        if random.random() < 0.3:
            self._network.break_links()
        self._world.later(random.choice([0.3, 2.0, 8.0]), lambda: self._network.blocked.difference_update(pairs))

    # -- commands ----------------------------------------------------------------------------------------------

    def _command(
        self,
        command: dict[str, Any],
        on_reply: Callable[[dict[str, Any]], None] = lambda reply: None,
        *,
        persists: bool = False,
    ) -> None:
        """Send a cluster command to any node; `persists`: again until there is a reply that says how it went."""
        buffer = b""

        def again(after_s: float = 0.5) -> None:
            if persists:
                self._world.later(after_s, lambda: self._command(command, on_reply, persists=True))

        def received(data: bytes) -> None:
            nonlocal buffer
            buffer += data
            if not buffer.endswith(b"\n"):
                return
            reply = json.loads(buffer)
            if reply.get("error") in ("no_leader", "unknown_outcome", "redirect", "stopping") or (
                persists and any(word in reply.get("reason", "") for word in ("under way", "can't be changed now"))
            ):
                again()
            else:
                on_reply(reply)
            stream.break_off()

        def broke() -> None:
            if not buffer.endswith(b"\n"):
                again(HELD_S)  # a node that has not noticed may hold it so long, and have it done then

        stream = Stream(self._world, received, broke)
        if self._world.random.choice(self._nodes).connect(stream):
            stream.send(json.dumps({"action": 15, **command}).encode())
            self._world.later(20.0, stream.break_off)
        else:
            again()

    # -- the end -----------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Nothing goes wrong any more, and what is broken is mended."""
        self._is_on = False
        self._network.calm()
        latest = self._world.latest_wall
        for node in self._nodes:
            node.clock.offset += latest - node.clock.wall()  # what was due by one clock is due by all of them
            node.set_disk_full(False)
            if node in self._silent and node.is_up:
                node.end(power_cut=False)
            if node.runtime is not None:
                node.runtime.on_write = None
                node.runtime.disk_slowness = 1.0
                if node.runtime.is_paused:
                    node.runtime.resume()
            elif not node.is_up:
                assert node.start()
