"""The simulated world: virtual time, a network of bytes, a disk that forgets, all drawn from one seed.

`World` owns time and the order of events. `SimulatedRuntime` is the runtime of one incarnation of a node: when the
node is killed or its power is cut, nothing of that incarnation happens any more. The actors on it are the real ones.
"""

import hashlib
import heapq
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

import pykka
from pykka._envelope import Envelope

from actors.messages.disk import SaveIdentity, WriteBytes
from actors.runtime.blocking import GuardedFuture
from actors.runtime.contract import Runtime, Timer, Turn, Watcher
from actors.runtime.loop_actor import LoopActor, LoopInbox
from storage.disk import DiskFile
from tests.storage.memory import SECTOR, MemoryFolder, MemoryWrites

START = 1_800_000_000.0
SLOW_DISK = [0.0001, 0.0002, 0.001, 0.02]
QUICK_DISK = [0.0001, 0.0002, 0.0003] * 33 + [0.02]
"""How long a write takes (s), each as likely as any other.

On a quick disk the loop waits for small writes if the system does not finish them."""

WRITES_HERE = "writes by the loop"
CRASHES_HERE = "crashes while the loop wrote"
QUICK_THREADS = "starts with quick threads"
CUT_TURNS = "turns cut"
WRITES_BEGUN = "writes that the system finished"
WRITES_FAILED = "writes that the system did not finish"


class Event:
    """Something that will happen; `cancel` keeps it from that."""

    __slots__ = ("action", "is_cancelled")

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.is_cancelled = False

    def cancel(self) -> None:
        """It does not happen."""
        self.is_cancelled = True


class World:
    """Time and order. `trace` hashes everything that crosses the network: one seed, one trace.

    `starts`: draws after which starts of a node its threads are quicker than its loop; None: they never are, and wait
    while the loop waits. `strangers`: draws which clients are strangers, who have a part of each turn; None: none is.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.time = 0.0
        self.rate_max = 1.0
        self._latest_wall = (START, 0.0)
        self.trace = hashlib.sha256()
        self.reached: Counter[str] = Counter()
        disk = Random(~seed)
        self.latencies = QUICK_DISK if disk.random() < 0.4 else SLOW_DISK
        self.has_async_writes = disk.random() < 0.6
        self.starts = Random(seed ^ 0x57A2) if disk.random() < 0.4 else None
        self.late = Random(seed ^ 0x1A7E) if disk.random() < 0.5 else None
        strangers = Random(seed ^ 0x57A46)
        self.strangers = strangers if strangers.random() < 0.3 else None
        self._heap: list[tuple[float, float, int, Event]] = []
        self._serial = 0

    def later(self, delay_s: float, action: Callable[[], None]) -> Event:
        """Let something happen; things at the same moment happen in an order drawn from the seed."""
        event = Event(action)
        self._serial = serial = self._serial + 1
        at = self.time + delay_s if delay_s > 0.0 else self.time
        heapq.heappush(self._heap, (at, self.random.random(), serial, event))
        return event

    def run_until(self, until: float, is_done: Callable[[], bool] | None = None) -> None:
        """Let things happen up to virtual time `until`, or until `is_done`."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until and (is_done is None or not is_done()):
            at, _, _, event = pop(heap)
            if at > self.time:
                self.time = at
            if not event.is_cancelled:
                event.action()
        if is_done is None or not is_done():
            self.time = max(self.time, until)

    @property
    def latest_wall(self) -> float:
        """The most that any leader's clock can show: it goes on from the most that any has shown (Unix seconds)."""
        wall, at = self._latest_wall
        return wall + (self.time - at) * self.rate_max

    def shown(self, wall: float) -> None:
        """A leader's clock has shown this."""
        if wall > self.latest_wall:
            self._latest_wall = (wall, self.time)

    def note(self, *what: object) -> None:
        """Into the trace."""
        self.trace.update(repr((round(self.time, 9), what)).encode())


class Clock:
    """A node's clocks: the monotonic one runs `rate` times as fast as the world's; the other is `offset` beside it.

    `leads`: the shards that the node leads. What another's clock says counts for nothing, and may be what it likes.
    """

    def __init__(self, world: World, rate: float) -> None:
        self._world = world
        self.rate = rate
        world.rate_max = max(world.rate_max, rate)
        self.offset = START
        self.leads: set[int] = set()

    def monotonic(self) -> float:
        """Seconds."""
        return self._world.time * self.rate

    def wall(self) -> float:
        """Unix seconds; the latest that any leader has shown is what a message may have been due by."""
        wall = self.monotonic() + self.offset
        if self.leads:
            self._world.shown(wall)
        return wall


class CrashedError(Exception):
    """The node died in the middle of what it did."""


class SimulatedRuntime(Runtime):
    """The runtime of one incarnation of a node. `on_write` is called once, when the next journal write is under way.

    A write that the loop waits for itself is under way while no actor of the loop has a turn: `_write_here`. In some
    seeds the threads go on then, and after a start they do at once what they are told: `threads_first`.
    """

    def __init__(self, world: World, folder: MemoryFolder, clock: Clock, watcher: Watcher | None = None) -> None:
        super().__init__()
        self.watcher = watcher
        self.world = world
        self.folder = folder
        self.clock = clock
        self.is_paused = False
        self.disk_slowness = 1.0
        self._paused: list[Callable[[], None]] = []
        self.is_alive = True
        self.threads_first = world.starts is not None and world.starts.random() < 0.5
        self.on_write: Callable[[], None] | None = None
        self.blocking: list[SimulatedBlocking] = []
        self._woken: set[int] = set()
        self._is_in_lane = False
        self._busy_s = 0.0
        self._torn_off: tuple[DiskFile, int, bytes] | None = None
        folder.on_durable_write = self._write_here
        folder.writes = self._writes = MemoryWrites(self._begin_write) if world.has_async_writes else None
        self._watched: dict[int, Callable[[], None]] = {}

    def now(self) -> float:
        """The wall clock, which jumps when the world lets it."""
        return self.clock.wall()

    def monotonic(self) -> float:
        """Virtual time, as this node's clock measures it; what the loop waits for the disk has passed already."""
        return self.clock.monotonic() + self._busy_s * self.clock.rate

    def random(self) -> float:
        """From the seed."""
        return self.world.random.random()

    def process(self) -> tuple[int, int]:
        """Always the same."""
        return 1, 0

    def usage(self) -> tuple[float, float, int]:
        """Always the same."""
        return 0.0, 0.0, 0

    def worked(self) -> float:
        """As the monotonic clock."""
        return self.monotonic()

    def is_late(self) -> bool:
        """Now and then, in some seeds: no virtual time passes in a turn."""
        is_late = self.world.late is not None and self.world.late.random() < 0.1
        self.world.reached[CUT_TURNS] += is_late
        return is_late

    def rest(self) -> None:
        """Nobody else is there: virtual time has passed before."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """As long as this incarnation lives."""
        return self.world.later(max(delay_s / self.clock.rate, 5e-5), lambda: self.run(callback))

    def watch(self, descriptor: int, callback: Callable[[], None], expects: Callable[[], bool]) -> None:
        """The system's descriptors are those of its writes."""
        self._watched[descriptor] = callback

    def wake(self, turn: Turn) -> None:
        """At this moment, but in any order with what else is at this moment."""
        if not isinstance(turn, SimulatedBlocking):
            self.world.later(0.0, lambda: self.run(turn.take_turn))
        elif self.threads_first:
            turn.take_turn()
        else:
            self.world.later(0.0, lambda: self.run_thread(turn.take_turn))

    def started(self) -> None:
        """The actors are there. Their threads are the quicker ones for a while yet, or are not."""
        if self.threads_first:
            self.world.reached[QUICK_THREADS] += 1
            self.world.later(self.world.random.choice([0.001, 0.1, 1.0]), self._slow_down)

    def _slow_down(self) -> None:
        self.threads_first = False

    def run(self, callback: Callable[[], None]) -> None:
        """Let something happen on this node, when it is not stopped (SIGSTOP), and unless it is dead."""
        if self.is_paused or self._busy_s:
            self._paused.append(callback)
        elif self.is_alive:
            callback()

    def run_thread(self, callback: Callable[[], None]) -> None:
        """Let something happen on a thread beside the loop, when the node is not stopped, and unless it is dead."""
        if self.is_paused or (self._busy_s and self.world.starts is None):
            self._paused.append(callback)
        elif self.is_alive:
            callback()

    def resume(self) -> None:
        """SIGCONT: all that waited happens now, in order."""
        self.is_paused = False
        self._go_on()

    def _go_on(self) -> None:
        paused, self._paused = self._paused, []
        for callback in paused:
            self.run(callback)

    def _write_here(self, file: DiskFile, offset: int, data: bytes) -> bool:
        """The loop waits for the disk: nothing else happens meanwhile, but that the node may die in it."""
        if self._is_in_lane or not self.is_alive:
            return False
        on_write, self.on_write = self.on_write, None
        if on_write is not None:
            self._torn_off = (file, offset, data)
            self.is_alive = False
            self.world.reached[CRASHES_HERE] += 1
            self.world.later(0.0, on_write)
            raise CrashedError
        self.world.reached[WRITES_HERE] += 1
        self._busy_s = self.world.random.choice(self.world.latencies) * self.disk_slowness
        self.world.later(self._busy_s, self._waited)
        return True

    def _waited(self) -> None:
        self._busy_s = 0.0
        self._go_on()

    def _begin_write(self, token: int) -> bool:
        """The system takes most writes, and finishes most of those, in any order."""
        world = self.world
        if world.random.random() < 0.02:
            return False
        on_write, self.on_write = self.on_write, None
        if on_write is not None:
            world.later(0.0, on_write)
        self.call_later(world.random.choice(world.latencies) * self.disk_slowness, lambda: self._end_write(token))
        return True

    def _end_write(self, token: int) -> None:
        assert self._writes is not None
        is_durable = self.world.random.random() < 0.99
        self.world.reached[WRITES_BEGUN if is_durable else WRITES_FAILED] += 1
        self.handle_in_lane(lambda: self._finish(token, is_durable))
        self.folder.settle()
        self._watched[self._writes.descriptor]()

    def _finish(self, token: int, is_durable: bool) -> None:
        assert self._writes is not None
        if not is_durable:  # some of it is there all the same
            file, offset, data = self._writes.under_way[token]
            self._write_some(file, offset, data)
        self._writes.finish(token, is_durable=is_durable)

    def handle_in_lane(self, handle: Callable[[], None]) -> None:
        """What a thread of its own does, whose time has passed already."""
        self._is_in_lane = True
        try:
            handle()
        finally:
            self._is_in_lane = False

    def actor_failed(self, who: object, error: BaseException) -> None:
        """A failure is a failed test, but for what died in a write."""
        if isinstance(error, CrashedError):
            return
        raise AssertionError(f"{type(who).__name__} failed: {error!r}") from error

    def start_blocking(self, actor_class: type[pykka.ThreadingActor], *arguments: Any) -> pykka.ActorRef[Any]:
        """The same class, its thread replaced by virtual time that passes before each message is handled."""
        simulated = type(f"Simulated{actor_class.__name__}", (SimulatedBlocking, actor_class), {})
        ref: pykka.ActorRef[Any] = simulated.start(self, *arguments)  # type: ignore[attr-defined]  # from actor_class
        return ref

    def end(self, *, power_cut: bool) -> None:
        """Nothing of this incarnation happens any more; what the disk was doing may be done, half done or not."""
        self.is_alive = False
        for actor in self.blocking:
            write = actor.in_progress
            if isinstance(write, WriteBytes):
                self._tear(write.write.file, write.write.offset, write.write.data, power_cut)
            elif isinstance(write, SaveIdentity) and self.world.random.random() < 0.5:
                actor.save_at_once(write)
        if self._writes is not None:
            for begun in self._writes.under_way.values():
                self._tear(*begun, power_cut)
        if self._torn_off is not None:
            self._tear(*self._torn_off, power_cut)
        if power_cut:
            self.folder.power_cut(self.world.random)
        for ref in list(pykka.ActorRegistry.get_all()):
            pykka.ActorRegistry.unregister(ref)

    def _tear(self, file: DiskFile, offset: int, data: bytes, power_cut: bool) -> None:
        random = self.world.random
        if not power_cut:
            if random.random() < 0.5:
                file.write_at(offset, data)
                file.flush()
            return
        self._write_some(file, offset, data)

    def _write_some(self, file: DiskFile, offset: int, data: bytes) -> None:
        for at in range(0, len(data), SECTOR):
            if self.world.random.random() < 0.5:
                file.write_at(offset + at, data[at : at + SECTOR])


class SimulatedBlocking:
    """Stands before a blocking actor's class and takes the thread out of it."""

    runtime: SimulatedRuntime
    actor_inbox: LoopInbox
    in_progress: Any = None
    _has_started = False
    _create_actor_inbox = staticmethod(LoopActor._create_actor_inbox)
    _create_future = staticmethod(GuardedFuture)

    def _start_actor_loop(self) -> None:
        self.runtime.blocking.append(self)
        self._waiting: deque[Any] = deque()
        self.actor_inbox.attach(self, self.runtime)

    def take_turn(self) -> None:
        """Begin the next message, whose effect comes after the disk's latency."""
        inbox = self.actor_inbox
        while not inbox.empty():
            self._waiting.append(inbox.get())
        inbox.rest()
        self._begin()

    def save_at_once(self, write: SaveIdentity) -> None:
        """The write was with the disk already; a power cut may still tear it."""
        self._vote_file.save(write.identity)  # type: ignore[attr-defined]  # only a DiskLane is asked

    def _begin(self) -> None:
        if self.in_progress is None and self._waiting:
            envelope: Envelope[Any] = self._waiting.popleft()
            if self.runtime.threads_first and self.runtime.on_write is None:
                self._finish(envelope)
                return
            self.in_progress = envelope.message
            on_write = self.runtime.on_write
            if on_write is not None and isinstance(self.in_progress, WriteBytes | SaveIdentity):
                self.runtime.on_write = None
                self.runtime.world.later(0.0, on_write)
            latency_s = self.runtime.world.random.choice(self.runtime.world.latencies)
            after_s = max(latency_s * self.runtime.disk_slowness / self.runtime.clock.rate, 5e-5)
            self.runtime.world.later(after_s, lambda: self.runtime.run_thread(lambda: self._finish(envelope)))

    def _finish(self, envelope: Envelope[Any]) -> None:
        self.in_progress = None
        try:
            receive = self._handle_receive  # type: ignore[attr-defined]  # pykka's, in the class behind
            self.runtime.handle_in_lane(lambda: receive(envelope.message))
        except Exception as error:
            self.runtime.actor_failed(self, error)
        self.runtime.folder.settle()
        self._begin()
