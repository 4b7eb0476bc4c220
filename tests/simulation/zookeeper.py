"""A pretended ZooKeeper beside the simulated cluster: sessions expire, answers are lost, and it may be away.

Its random numbers are its own.
"""

from random import Random
from typing import TYPE_CHECKING, Any

from actors.messages.registering import GroupsRead, ReadGroups, ReadTree, SessionChanged, Transact, Transacted, TreeRead
from actors.node.shard_settings import Registering
from actors.registrar.registration import Place
from actors.runtime.blocking import BlockingActor
from tests.actors.registrar.zoo import Zoo
from tests.simulation.world import SimulatedRuntime, World

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedNode

ROOT = "/meta"
SESSION_S = 6.0
REGISTERED = "transactions of a registrar in ZooKeeper"
EXPIRED = "sessions with ZooKeeper that expired"


class ZooKeeper:
    """One for all nodes. `is_calm`: nothing goes wrong any more."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.zoo = Zoo()
        self.draw = Random(f"{world.seed} zoo")
        self.is_calm = False
        self.is_away = False
        self.runtimes: dict[int, SimulatedRuntime] = {}
        world.later(1.0, self._tick)

    def registering(self, node_id: int, shard: int) -> Registering:
        """How a node's worker is registered."""
        return Registering(Place(ROOT, shard, node_id, address(node_id)), ZooKeeperLane, (self,))

    def begin(self, runtime: SimulatedRuntime) -> int:
        session = self.zoo.begin()
        self.runtimes[session] = runtime
        return session

    def expire(self, session: int) -> None:
        self.world.reached[EXPIRED] += 1
        self.runtimes.pop(session, None)
        self.zoo.expire(session)

    def _tick(self) -> None:
        """Sessions of workers that are gone expire; it is away for a while, now and then."""
        for session, runtime in [*self.runtimes.items()]:
            if not runtime.is_alive:
                self.world.later(self.draw.random() * SESSION_S, lambda session=session: self.expire(session))  # type: ignore[misc]
                del self.runtimes[session]
        self.is_away = not self.is_calm and self.draw.random() < 0.1
        self.world.later(1.0, self._tick)

    def problems(self, nodes: "list[SimulatedNode]", topics: dict[int, dict[str, int]]) -> list[str]:
        """What is not as it should be when all is calm: by shard the topics with their numbers of partitions."""
        return [problem for shard, its in topics.items() for problem in self._of_shard(shard, its, nodes)]

    def _of_shard(self, shard: int, topics: dict[str, int], nodes: "list[SimulatedNode]") -> list[str]:
        told = {path: node[0].decode() for path, node in self.zoo.nodes.items()}
        broker = f"{ROOT}/brokers/ids/{shard}"
        vote_id = int(told.get(f"{broker}/quorate", "0 0").split()[0])
        workers = [node for node in nodes if node.shard == shard]
        observer = workers[0].observer
        assert observer is not None
        leader = observer.leaders.get(vote_id, 0)
        if vote_id != max(observer.leaders, default=0):
            return [f"shard {shard}: the leader of vote {vote_id} is registered, and {observer.leaders} were elected"]
        slaves = {node.node_id for node in workers if node.node_id != leader}
        wanted = {broker: address(leader), f"{broker}/master": address(leader)}
        wanted |= {f"{broker}/slave{one}": address(one) for one in slaves}
        for name, partitions in topics.items():
            for folder in ("topics", "topics-pub", "topics-sub"):
                path = f"{ROOT}/brokers/{folder}/{name}/{shard}-m"
                data = f'{{"numParts":{partitions},"broker":"{shard}-m"}}'
                wanted[path] = str(partitions) if folder == "topics" else data
        found = {path: data for path, data in told.items() if path in wanted}
        leaves = {path for path in told if path.endswith(f"/{shard}-m")}
        stray = sorted(leaves - wanted.keys())
        return [] if found == wanted and not stray else [f"shard {shard}: {found} and {stray} instead of {wanted}"]


def address(node_id: int) -> str:
    """Where a node's broker is."""
    return f"meta://n{node_id}:8123"


class ZooKeeperLane(BlockingActor):
    """Stands in for the lane that talks by kazoo."""

    def __init__(self, runtime: Any, server: ZooKeeper, registrar: Any) -> None:
        super().__init__(runtime)
        self._server = server
        self._registrar = registrar
        self._session = 0
        runtime.call_later(server.draw.random(), self.connect)

    def on_receive(self, message: Any) -> None:
        """Do it, with what may go wrong."""
        server = self._server
        if server.is_away or not self._session or (not server.is_calm and server.draw.random() < 0.03):
            self._lose(message)
            return
        if not server.is_calm and server.draw.random() < 0.02:
            server.expire(self._session)
            self._lose(message)
            return
        if isinstance(message, ReadGroups):
            self._registrar.tell(GroupsRead(message.serial, {}))
            return
        answer: TreeRead | Transacted
        if isinstance(message, ReadTree):
            answer = server.zoo.read(self._session, message)
        else:
            assert isinstance(message, Transact)
            answer = server.zoo.transact(self._session, message)
            server.world.reached[REGISTERED] += answer.refused is None
        if not server.is_calm and server.draw.random() < 0.05:
            answer = self._unknown(message)
        self._registrar.tell(answer)

    def _lose(self, message: Any) -> None:
        """The session is another one from now on, or the same, and the message may not have been heard."""
        self._registrar.tell(SessionChanged(0, "away (simulated)"))
        self.connect()
        if isinstance(message, ReadGroups):
            self._registrar.tell(GroupsRead(message.serial, {}, message.after))
        else:
            self._registrar.tell(self._unknown(message))

    @staticmethod
    def _unknown(message: ReadTree | Transact) -> TreeRead | Transacted:
        if isinstance(message, ReadTree):
            return TreeRead(message.serial, {}, {}, "lost (simulated)")
        return Transacted(message.serial, fault="lost (simulated)")

    def connect(self) -> None:
        """Have a session, as soon as there is somebody to give one."""
        server = self._server
        if server.is_away:
            self.runtime.call_later(0.5, self.connect)
            return
        if self._session not in server.runtimes:
            self._session = server.begin(self.runtime)  # type: ignore[arg-type]
        self._registrar.tell(SessionChanged(self._session))
