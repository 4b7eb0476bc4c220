"""A simulated worker with its disk: one shard of one node; and the streams of bytes between it and its clients."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from actors.cluster.pushing import Lateness
from actors.cluster.replicated_log import ReplicatedLog
from actors.gateway.access import AccessTable, Entry
from actors.gateway.listener import Listener
from actors.gateway.listener_limits import ListenerLimits
from actors.links.links import Links
from actors.messages.log import Deposed, Promoted
from actors.messages.rights import EVERY_RIGHT
from actors.node.assembly import open_shard, start_shard
from actors.node.shard_settings import ShardSettings
from actors.shard.node_view import Limits
from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.peers.link import Connected
from net.protocols import PROTOCOLS
from net.protocols.session import RequestLimits
from storage import renewal
from storage.block_rows import Wanted, read_stored
from storage.blocks import Kept
from storage.entry_codec import decode
from storage.errors import DiskFullError
from storage.journal import is_segment_name
from storage.partition import Partition
from storage.records import Member
from storage.repair import verify
from storage.state import ShardState
from tests.simulation.network import Network
from tests.simulation.observe import Observer
from tests.simulation.world import Clock, SimulatedRuntime, World
from tests.simulation.zookeeper import ZooKeeper
from tests.storage.memory import MemoryFolder, MemoryTables

IDLE_QUEUE_S = 15.0
"""What a job has made goes when it was empty and unused for so long."""


class Stream:
    """A client's connection: bytes go both ways with delay, in pieces of any size, until it breaks.

    `written_at` holds when the node wrote each reply that the client has not taken yet.
    """

    def __init__(
        self, world: World, on_bytes: Callable[[bytes], None], on_break: Callable[[], None], protocol: str = "json"
    ) -> None:
        self.protocol = protocol
        self._world = world
        self._on_bytes = on_bytes
        self._on_break = on_break
        self._arrives_at = {"in": 0.0, "out": 0.0}
        self.connection: Connection | None = None
        self.runtime: SimulatedRuntime | None = None
        self.is_broken = False
        self.written_at: deque[float] = deque()

    def send(self, data: bytes) -> None:
        """From the client to the node."""
        self._world.note("in", data)
        self._carry("in", data, lambda part: self.connection.receive(part) if self.connection else None)

    def end(self) -> None:
        """The client ends its side, behind all that it has sent; it reads on."""
        at = max(self._arrives_at["in"] + 1e-6, self._world.time)
        self._world.later(at - self._world.time, self._end_arrives)

    def _end_arrives(self) -> None:
        if self.runtime is not None and not self.is_broken:
            self.runtime.run(lambda: self.connection.end() if self.connection and not self.is_broken else None)

    def write(self, data: bytes) -> None:
        """From the node to the client: the transport of its connection."""
        self._world.note("out", data)
        self.written_at.append(self._world.time)
        self._carry("out", data, self._on_bytes)

    def _carry(self, way: str, data: bytes, deliver: Callable[[bytes], None]) -> None:
        random = self._world.random
        while data:
            size = len(data) if random.random() < 0.7 else random.randint(1, len(data))
            part, data = data[:size], data[size:]
            delay_s = random.choice([0.0001, 0.0005, 0.005, 0.2])
            at = max(self._arrives_at[way] + 1e-6, self._world.time + delay_s)
            self._arrives_at[way] = at
            self._world.later(at - self._world.time, partial(self._arrive, deliver, part))

    def _arrive(self, deliver: Callable[[bytes], None], part: bytes) -> None:
        if self.is_broken:
            return
        if self.runtime is not None and deliver is not self._on_bytes:
            self.runtime.run(lambda: None if self.is_broken else deliver(part))
        else:
            deliver(part)

    def break_off(self) -> None:
        """The connection is gone: what is under way is lost, and both ends notice in their own time."""
        if self.is_broken:
            return
        self.is_broken = True
        connection = self.connection
        self.connection = None
        if connection is not None:
            self._world.later(self._world.random.random(), connection.lost)
        self._world.later(self._world.random.random(), self._on_break)

    def get_write_buffer_size(self) -> int:
        """Not modelled: whatever is written is on its way."""
        return 0

    def write_eof(self) -> None:
        """The node says nothing more; a client here takes that for the end."""
        self._world.later(0.3, self.break_off)

    def pause_reading(self) -> None:
        """Not modelled: the streams hold whatever is under way."""

    def resume_reading(self) -> None:
        """Not modelled."""

    def close(self) -> None:
        """The node closes."""
        self._world.later(0.3, self.break_off)

    def abort(self) -> None:
        """The node closes at once."""
        self.break_off()

    def get_extra_info(self, name: str) -> None:
        """No socket is below."""


class _Dialler:
    """The network as one incarnation of a node sees it."""

    def __init__(self, network: Network, name: str, runtime: SimulatedRuntime) -> None:
        self._network = network
        self._name = name
        self._runtime = runtime

    def dial(self, host: str, port: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """Dial."""
        self._network.dial(self._name, host, self._runtime, connected, failed, port)

    def dial_sibling(self, shard: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """Over the node's own socket."""
        self._network.dial_sibling(self._name, PORT + shard, self._runtime, connected, failed)


NEAR = ("127.0.0.1", 1)
KNOWN = {"known": Entry(EVERY_RIGHT, certificates=("known",))}
PORT = 1
"""Of shard 0 for other nodes; the other shards' follow."""


@dataclass
class ClusterLimits:
    """What a seed draws for all of its nodes."""

    size: int
    log_records_max: int
    segment_bytes: int
    is_lease_committed: bool
    election_timeout_s: float
    sync_records_per_s: int
    snapshot_part_bytes: int
    pull_bytes: int
    push_bytes: int
    window_bytes: int
    forward_bytes: int
    frame_bytes_max: int
    shards: int = 1
    balance_s: float = 0.0
    variety: Random | None = None
    flush_interval_s: float | None = None
    lateness: Lateness = field(default_factory=Lateness)
    zookeeper: ZooKeeper | None = None

    def vary(self, seed: int) -> None:
        """In half of the seeds nodes are set differently, and so after a restart; in some they flush now and then.

        A leader pushes to followers that no majority needs as it is set to, at once, or very late.

        Drawn beside all else, so that what a seed was stays what it is but for this.
        """
        draw = Random(seed ^ 0x5E77146)
        if draw.random() < 0.5:
            self.variety = draw
            self.frame_bytes_max += 40 << 10  # the largest entry of the largest segment
        if draw.random() < 0.15:
            self.flush_interval_s = draw.choice([0.01, 0.2])
        self.lateness = draw.choice([Lateness(), Lateness(seconds=0.0), Lateness(seconds=0.1, entries=3, size=400)])

    def varied(self, settings: ShardSettings) -> ShardSettings:
        """As a node is set for its next start."""
        if self.variety is not None:
            settings = replace(
                settings,
                election_timeout_s=self.election_timeout_s * self.variety.choice([0.5, 1.0, 1.0, 2.0]),
                segment_bytes=self.variety.choice([24, 32, 64]) * 1024,
                log_records_max=self.variety.choice([10, 100, 1000]),
                frame_bytes_max=self.frame_bytes_max,
            )
        return replace(settings, flush_interval_s=self.flush_interval_s)

    @property
    def queues(self) -> list[str]:
        """The clients' queues: of several shards, in several."""
        return ["q0", "q1", "q2"] if self.shards == 1 else ["q2", "q3", "q4"]

    @staticmethod
    def drawn(random: Random) -> "ClusterLimits":
        """Tiny ones, so that every corner is reached soon."""
        segment_bytes = random.choice([24, 32, 64]) * 1024  # four requests and more, as the configuration asks
        pull_bytes, push_bytes = random.choice([300, 1 << 20]), random.choice([500, 4000, 8 << 20])
        forward_bytes = random.choice([1000, 8 << 20])
        # an entry has at most a quarter of a segment and one request's messages more; a frame one entry more than asked
        entry_bytes = segment_bytes // 2 + 8000
        frame_bytes_max = max(pull_bytes, push_bytes, forward_bytes, 256 << 10) + entry_bytes
        if random.random() < 0.5:
            pull_bytes, push_bytes, forward_bytes = min(pull_bytes, 4000), min(push_bytes, 4000), 1000
            frame_bytes_max = 4000 + entry_bytes
        return ClusterLimits(
            size=random.choice([1, 1, 3, 3, 3, 3, 5]),
            log_records_max=random.choice([10, 100, 1000]),
            segment_bytes=segment_bytes,
            is_lease_committed=random.random() < 0.3,
            election_timeout_s=random.choice([0.4, 1.0, 2.0]),
            sync_records_per_s=random.choice([200, 5000, 100_000]),
            snapshot_part_bytes=random.choice([200, 2000]),
            pull_bytes=pull_bytes,
            push_bytes=push_bytes,
            window_bytes=random.choice([500, 4 << 20]),
            forward_bytes=forward_bytes,
            frame_bytes_max=frame_bytes_max,
        )


class SimulatedNode:
    """One shard's worker of one node: its disk outlives its incarnations. `first` is the node's worker of shard 0."""

    def __init__(
        self,
        network: Network,
        node_id: int,
        limits: ClusterLimits,
        first: "SimulatedNode | None" = None,
        shard: int = 0,
    ) -> None:
        world = network.world
        random = world.random
        self.world = world
        self.network = network
        self.node_id = node_id
        self.name = f"n{node_id}"
        self.first = self if first is None else first
        self._cluster = limits
        self.founding_id = 0
        self.shard = shard
        self.shards = limits.shards
        rates = [1.0, 1.0, 0.97, 1.03, 0.84, 1.17] if limits.size > 1 else [1.0]
        self.clock: Clock
        self.settings: ShardSettings
        if first is None:
            self.clock = Clock(world, random.choice(rates) if limits.size > 1 else 1.0)
        else:
            self.clock = first.clock
        self.is_disk_full = False
        port = PORT + shard
        listed = tuple(Member(n, f"n{n}", port) for n in range(1, limits.size + 1) if n != node_id)
        self.settings = ShardSettings(
            log_records_max=limits.log_records_max,
            segment_bytes=limits.segment_bytes,
            is_lease_committed=limits.is_lease_committed,
            undo_piece=[1, 3, 1000][node_id % 3],
            commit_piece=[1, 3, 1000][world.seed % 3],
            shard=shard,
            shards=limits.shards,
            balance_s=limits.balance_s,
            move_after=2,
            own=Member(node_id, self.name, port),
            listed=listed,
            client_host=self.name,
            client_port=2,
            election_timeout_s=limits.election_timeout_s,
            lateness=limits.lateness,
            sync_records_per_s=limits.sync_records_per_s,
            forwards=random.random() < 0.7 if first is None else first.settings.forwards,
            snapshot_part_bytes=limits.snapshot_part_bytes,
            pull_bytes=limits.pull_bytes,
            push_bytes=limits.push_bytes,
            window_bytes=limits.window_bytes,
            forward_bytes=limits.forward_bytes,
            frame_bytes_max=limits.frame_bytes_max,
            keyring=network.keyring,
            registration=None if limits.zookeeper is None else limits.zookeeper.registering(node_id, shard),
        )
        self.settings.facts.shards = limits.shards
        self.limits = Limits(data_bytes_max=500, idle_queue_s=IDLE_QUEUE_S, settle_piece=[1, 2, 1000][node_id % 3])
        self.request_limits = RequestLimits(request_bytes_max=5000)
        self.runtime: SimulatedRuntime | None = None
        self.listener: Listener | None = None
        self.links: Links | None = None
        self.virtual_queues = {"virtual": [limits.queues[0], limits.queues[-1 if limits.shards > 1 else 1]]}
        self.streams: list[Stream] = []
        self.torn = 0
        self.moved = 0
        self.log: ReplicatedLog | None = None
        self.observer: Observer | None = None
        self.wipe()
        network.nodes[self.name, port] = self

    def wipe(self) -> None:
        """A new disk. The folder of a node of several shards has a number for the cluster that it may found."""
        if self.shards > 1 and self.first is self:
            self.founding_id = int(self.world.random.random() * (1 << 60)) + 1
        self.folder = MemoryFolder()
        self.tables = MemoryTables(self._before_commit)
        self.set_disk_full(False)

    def may_begin_anew(self) -> bool:
        """Whether the others go on without it meanwhile, as a worker asks before it does so unasked."""
        if self.is_disk_full:
            return False
        members = verify(self.tables, self.folder, self.shard).members
        if members is None:
            return False  # it may be the one to found it: nobody else has anything
        return renewal.others_can_elect(self.node_id, members, [one.node_id for one in self.settings.listed])

    def lose_log(self) -> None:
        """Its data are damaged, and put aside: see `storage.renewal`."""
        members = verify(self.tables, self.folder, self.shard).members
        self.set_disk_full(False)
        renewal.abstain(self.folder)
        for name in [name for name in self.folder.names() if is_segment_name(name)]:
            self.folder.remove(name)
        self.tables = MemoryTables(self._before_commit)
        if members is not None:
            renewal.note_members(self.tables, self.shard, members)

    def _before_commit(self) -> None:
        if self.is_disk_full:
            raise DiskFullError("no space (simulated)")

    def set_disk_full(self, is_full: bool) -> None:
        """The disk has no space for anything new (or has again)."""
        self.is_disk_full = self.folder.is_full = is_full

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self.runtime is not None

    def start(self) -> bool:
        """Recover and run; False when the disk is too full to start."""
        assert self.runtime is None
        observer = self.observer
        settings = self._cluster.varied(self.settings)
        runtime = SimulatedRuntime(self.world, self.folder, self.clock, self._watch)
        random = self.world.random.random
        self.settings = replace(settings, cluster_id=self.first.founding_id)
        try:
            opened = open_shard(self.tables, self.folder, self.settings, runtime.now, random)
        except DiskFullError:
            return False
        opened.state.check()
        self.torn += opened.recovered.torn is not None
        if opened.is_alone:
            self.world.shown(opened.state.placed_at)
        for stored in opened.recovered.unstored:
            if observer is not None and stored.last_trans_id <= opened.state.trans_id:
                observer.settled(self.node_id, stored)  # it is alone: what its disk has is committed
        self.log = opened.log
        if observer is not None:
            observer.logs[self.node_id] = opened.log
        network = _Dialler(self.network, self.name, runtime)
        access = None if self.world.strangers is None else AccessTable(KNOWN, EVERY_RIGHT)
        shard = start_shard(runtime, network, opened, self.settings, self.limits, self.virtual_queues, access=access)
        limits = ListenerLimits(connection=ConnectionLimits(request=self.request_limits))
        self.listener = Listener.start_object(
            runtime, shard.router.actor_ref, limits, move=self._move_out, access=access
        )
        shard.router.serve(self.listener.actor_ref)
        self.links = shard.links
        self.runtime = runtime
        runtime.started()
        return True

    def _watch(self, what: str, about: Any) -> None:
        """As a runtime's watcher."""
        if isinstance(about, Promoted):
            self.clock.leads.add(self.shard)
        elif isinstance(about, Deposed):
            self.clock.leads.discard(self.shard)
        if self.observer is not None:
            self.observer.watch(self.node_id, what, about)

    def connect(self, stream: Stream) -> bool:
        """Open a client's connection; False if nobody listens."""
        if self.listener is None or self.runtime is None:
            return False
        stream.runtime = self.runtime
        limits = ConnectionLimits(request=self.request_limits)
        session = PROTOCOLS[stream.protocol].sessions()(self.request_limits, self.settings.facts)
        stream.connection = Connection(stream, self.listener, session, limits)
        stream.connection.protocol = stream.protocol
        strangers = self.world.strangers
        is_known = strangers is not None and strangers.random() < 0.5
        self.listener.admit(stream.connection, NEAR, tuple(KNOWN) if is_known else ())
        self.streams = [one for one in self.streams if not one.is_broken] + [stream]
        return True

    def _move_out(self, connection: Connection, shard: int) -> bool:
        """Another worker goes on with a client, whose stream it is given."""
        stream, target = connection.transport, self.network.nodes[self.name, PORT + shard]
        assert isinstance(stream, Stream)
        if target.listener is None or stream.is_broken:
            return False
        self.moved += 1
        self.streams.remove(stream)
        connection.lost()
        return target.connect(stream)

    def end(self, *, power_cut: bool) -> None:
        """kill -9, or a power cut, but for nodes that flush now and then: those may lose what they acknowledged."""
        assert self.runtime is not None
        self.runtime.end(power_cut=power_cut and self.settings.flush_interval_s is None)
        self.network.break_links_of(self.runtime)
        self.clock.leads.discard(self.shard)
        self.runtime = None
        self.listener = None
        self.links = None
        for stream in self.streams:
            stream.connection = None  # its process is gone, and notices nothing
            stream.break_off()
        self.streams = []

    def kept_in(self, partition: Partition) -> list[Kept]:
        """The messages of a partition of `state_on_disk`: those in blocks, and those in memory."""
        found: list[Kept] = []
        offset, end = partition.first, partition.held_from[0]
        while offset < end:
            wanted = Wanted(partition.number, partition.index, offset=offset)
            with self.tables.read() as transaction:
                stored = read_stored(transaction, wanted, 1000, 1 << 20)
            if not stored.kept:
                break
            found += [kept for kept in stored.kept if kept.offset < end]
            offset = stored.kept[-1].offset + 1
        partition.settle(1 << 62)
        return [*found, *partition.in_memory(offset)]

    def state_on_disk(self) -> ShardState:
        """What a restart would find now, with all that its log holds."""
        opened = open_shard(self.tables, self.folder, self.settings, lambda: 0.0, self.world.random.random)
        state = opened.state
        for stored in opened.recovered.unstored:
            if stored.last_trans_id > state.trans_id:
                entry = decode(stored.data, "the journal")
                for offset, record in enumerate(entry.records):
                    state.follow(entry.first_trans_id + offset, record, entry.time)
        state.check()
        return state
