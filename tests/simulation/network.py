"""The network between simulated nodes: streams that break, and messages that are lost, doubled, late or out of order.

A real link is TCP, which does none of these within a connection; the protocol must stand them all the same, since a
link may break and come back between any two messages. Each write holds whole frames. The introduction goes in order.
Where nodes prove a secret, a link whose frames are lost breaks: they are numbered, and one that is missing is noticed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from net.peers.link import Connected, Origin, PeerLink, PeerTransport
from net.peers.proof import NONCE_BYTES, Keyring, key_of
from tests.simulation.world import SimulatedRuntime, World

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedNode


INTRODUCTION = 2


@dataclass
class Weather:
    """What the network does to messages, drawn once a seed; it is `calm` in the end."""

    loss: float = 0.0
    double: float = 0.0
    late: float = 0.0
    latency_s: float = 0.0005


class Network:
    """All nodes and who can hear whom. `blocked` holds (from, to)."""

    def __init__(self, world: World) -> None:
        random = world.random
        self.world = world
        self.nodes: dict[tuple[str, int], SimulatedNode] = {}
        self.blocked: set[tuple[str, str]] = set()
        self.streams: list[LinkStream] = []
        self.is_sealed = Random(world.random.random()).random() < 0.5
        secret = key_of("a secret of the simulated cluster's nodes")
        self.keyring = Keyring((secret,), True, self._nonce) if self.is_sealed else Keyring()
        is_rough = random.random() < 0.5
        self.weather = Weather(
            loss=random.choice([0.0, 0.01, 0.1]) if is_rough else 0.0,
            double=random.choice([0.0, 0.05]) if is_rough else 0.0,
            late=random.choice([0.0, 0.1]) if is_rough else 0.0,
            latency_s=random.choice([0.0002, 0.001, 0.01]),
        )

    def _nonce(self) -> bytes:
        return self.world.random.randbytes(NONCE_BYTES)

    def calm(self) -> None:
        """No more faults."""
        self.weather = Weather()
        self.blocked.clear()

    def can_hear(self, sender: str, receiver: str) -> bool:
        """Whether what `sender` says reaches `receiver` now."""
        return (sender, receiver) not in self.blocked

    def break_links(self, name: str | None = None) -> None:
        """Break every link between nodes, or every one of that node."""
        for stream in list(self.streams):
            if not stream.is_local and (name is None or name in (stream.near, stream.far)):
                stream.break_off()

    def break_links_of(self, runtime: SimulatedRuntime) -> None:
        """That incarnation of a worker is gone."""
        for stream in list(self.streams):
            if runtime in stream.runtimes:
                stream.break_off()

    def dial(
        self,
        dialler: str,
        host: str,
        runtime: SimulatedRuntime,
        connected: Connected,
        failed: Callable[[str], None],
        port: int = 1,
    ) -> None:
        """A node dials another."""

        def arrive() -> None:
            target = self.nodes.get((host, port))
            links = target.links if target is not None else None
            both_ways = self.can_hear(dialler, host) and self.can_hear(host, dialler)
            if target is None or links is None or target.runtime is None or target.runtime.is_paused or not both_ways:
                self.world.later(0.2, lambda: runtime.run(lambda: failed("unreachable (simulated)")))
                return
            if not runtime.is_alive:
                return
            LinkStream(self, dialler, host, runtime, target.runtime, connected, links.accepted)

        self.world.later(self.weather.latency_s * 2, arrive)

    def dial_sibling(
        self,
        name: str,
        port: int,
        runtime: SimulatedRuntime,
        connected: Connected,
        failed: Callable[[str], None],
    ) -> None:
        """A worker dials another of its node, over a socket that loses nothing."""

        def arrive() -> None:
            target = self.nodes.get((name, port))
            if target is None or target.links is None or target.runtime is None:
                runtime.run(lambda: failed("nobody listens (simulated)"))
            elif runtime.is_alive:
                LinkStream(self, name, name, runtime, target.runtime, connected, target.links.accepted_near)

        self.world.later(1e-5, arrive)


class LinkStream:
    """One stream between two nodes, dialled by `near`."""

    def __init__(
        self,
        network: Network,
        near: str,
        far: str,
        near_runtime: SimulatedRuntime,
        far_runtime: SimulatedRuntime,
        connected: Connected,
        accept: Callable[[PeerTransport, Origin], PeerLink],
    ) -> None:
        self.network = network
        self.near, self.far = near, far
        self.is_local = near == far
        self.runtimes = (near_runtime, far_runtime)
        self.is_broken = False
        network.streams.append(self)
        self.ends = (_End(self, 0), _End(self, 1))
        is_trusted = self.is_local or not network.is_sealed
        accepted = accept(self.ends[1], Origin(near, is_trusted=is_trusted))
        self.links = [accepted, accepted]
        self.links[0] = connected(self.ends[0], Origin(far, is_trusted=is_trusted))

    def break_off(self) -> None:
        """Both ends notice in their own time."""
        if self.is_broken:
            return
        self.is_broken = True
        if self in self.network.streams:
            self.network.streams.remove(self)
        for index in (0, 1):
            self.network.world.later(self.network.world.random.random() * 0.05, partial(self._notice, index))

    def _notice(self, index: int) -> None:
        self.runtimes[index].run(lambda: self.links[index].lost("the link broke (simulated)"))


class _End:
    """One end's transport."""

    def __init__(self, stream: LinkStream, index: int) -> None:
        self._stream = stream
        self._index = index
        self._writes = 0
        self._arrives_at = 0.0

    def write(self, data: bytes) -> None:
        """To the other end; the first two writes of each end, opening and hello, arrive in order or break it all."""
        stream = self._stream
        network = stream.network
        world = network.world
        weather = network.weather
        sender, receiver = (stream.near, stream.far) if self._index == 0 else (stream.far, stream.near)
        if stream.is_broken:
            return
        world.note(sender, receiver, data)
        if stream.is_local:
            self._arrives_at = max(self._arrives_at, world.time + world.random.choice([2e-5, 2e-4])) + 1e-7
            world.later(self._arrives_at - world.time, lambda: self._arrive(data))
            return
        delay_s = weather.latency_s * (0.5 + world.random.random())
        self._writes += 1
        is_lost = not network.can_hear(sender, receiver)
        if self._writes <= INTRODUCTION or network.is_sealed:
            is_lost = is_lost or (self._writes > INTRODUCTION and world.random.random() < weather.loss / 10)
            if is_lost:
                stream.break_off()
                return
            self._arrives_at = max(self._arrives_at + 1e-7, world.time + delay_s)
            world.later(self._arrives_at - world.time, lambda: self._arrive(data))
            return
        if is_lost or world.random.random() < weather.loss:
            return
        if world.random.random() < weather.late:
            delay_s += world.random.random() * 0.3
        else:
            self._arrives_at = max(self._arrives_at, world.time + delay_s) + 1e-7
            delay_s = self._arrives_at - world.time
        world.later(delay_s, lambda: self._arrive(data))
        if world.random.random() < weather.double:
            world.later(delay_s + world.random.random() * 0.1, lambda: self._arrive(data))

    def _arrive(self, data: bytes) -> None:
        stream = self._stream
        other = 1 - self._index
        if not stream.is_broken:
            stream.runtimes[other].run(lambda: None if stream.is_broken else stream.links[other].receive(data))

    def get_write_buffer_size(self) -> int:
        """Not modelled: whatever is written is on its way."""
        return 0

    def close(self) -> None:
        """What was written arrives first."""
        self._stream.network.world.later(0.4, self._stream.break_off)

    def abort(self) -> None:
        """At once."""
        self._stream.break_off()
