"""A simulated node with its disk, and the streams of bytes between it and its clients."""

from collections import deque
from collections.abc import Callable
from functools import partial

from actors.assembly import ShardSettings, open_shard, start_shard
from actors.broker import Limits
from actors.listener import Listener, ListenerLimits
from actors.queries import NodeView
from net.connection import Connection, ConnectionLimits
from net.json_codec import CodecLimits
from storage.errors import DiskFullError
from storage.state import ShardState
from tests.simulation.world import SimulatedRuntime, World
from tests.storage.memory import MemoryFolder, MemoryTables


class Stream:
    """A client's connection: bytes go both ways with delay, in pieces of any size, until it breaks.

    `written_at` holds when the node wrote each reply that the client has not taken yet.
    """

    def __init__(self, world: World, on_bytes: Callable[[bytes], None], on_break: Callable[[], None]) -> None:
        self._world = world
        self._on_bytes = on_bytes
        self._on_break = on_break
        self._arrives_at = {"in": 0.0, "out": 0.0}
        self.connection: Connection | None = None
        self.is_broken = False
        self.written_at: deque[float] = deque()

    def send(self, data: bytes) -> None:
        """From the client to the node."""
        self._world.note("in", data)
        self._carry("in", data, lambda part: self.connection.receive(part) if self.connection else None)

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
        if not self.is_broken:
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


class SimulatedNode:
    """One node: its disk outlives its incarnations."""

    def __init__(self, world: World) -> None:
        random = world.random
        self.world = world
        self.folder = MemoryFolder()
        self.tables = MemoryTables(self._before_commit)
        self.is_disk_full = False
        self.settings = ShardSettings(
            log_records_max=random.choice([10, 100, 1000]),
            segment_bytes=random.choice([8, 16, 64]) * 1024,
            is_lease_committed=random.random() < 0.3,
        )
        self.limits = Limits(queue_size=0, data_bytes_max=500)
        self.codec = CodecLimits(request_bytes_max=1500)
        self.runtime: SimulatedRuntime | None = None
        self.listener: Listener | None = None
        self.streams: list[Stream] = []
        self.torn = 0

    def _before_commit(self) -> None:
        if self.is_disk_full:
            raise DiskFullError("no space (simulated)")

    def set_disk_full(self, is_full: bool) -> None:
        """The disk has no space for anything new (or has again)."""
        self.is_disk_full = self.folder.is_full = is_full

    @property
    def is_up(self) -> bool:
        """Whether it serves."""
        return self.runtime is not None

    def start(self) -> bool:
        """Recover and serve; False when the disk is too full to start."""
        assert self.runtime is None
        runtime = SimulatedRuntime(self.world, self.folder)
        try:
            opened = open_shard(self.tables, self.folder, self.settings, 0, runtime.now())
        except DiskFullError:
            return False
        self.folder.settle()
        opened.state.check()
        self.torn += opened.recovered.torn is not None
        shard = start_shard(runtime, opened, self.settings, self.limits, NodeView(), {"virtual": ["q0", "q1"]})
        limits = ListenerLimits(connection=ConnectionLimits(codec=self.codec))
        self.listener = Listener.start_object(runtime, shard.router, limits)
        self.runtime = runtime
        return True

    def connect(self, stream: Stream) -> bool:
        """Open a client's connection; False if nobody listens."""
        if self.listener is None or self.runtime is None:
            return False
        stream.connection = Connection(stream, self.listener, ConnectionLimits(codec=self.codec))
        self.listener.admit(stream.connection)
        self.streams = [one for one in self.streams if not one.is_broken] + [stream]
        return True

    def end(self, *, power_cut: bool) -> None:
        """kill -9, or a power cut."""
        assert self.runtime is not None
        self.runtime.end(power_cut=power_cut)
        self.runtime = None
        self.listener = None
        for stream in self.streams:
            stream.connection = None  # its process is gone, and notices nothing
            stream.break_off()
        self.streams = []

    def state_on_disk(self) -> ShardState:
        """What a restart would find now."""
        state = open_shard(self.tables, self.folder, self.settings, 0, 0.0).state
        state.check()
        return state
