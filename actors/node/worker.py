"""A worker process: one shard, its clients, one event loop. The place where real sockets, clocks and disks meet actors.

Run by the supervisor as `python -m quorate_server worker CONTROL_FD`. Ends with `EXIT_UNUSABLE` when its data can't be
used as they are, `EXIT_FAILED` when an actor raised, 0 when it was asked to stop.
"""

import asyncio
import gc
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

import pykka
import uvloop

from actors.cluster.peer_node import shown_address
from actors.gateway.homing import Habit
from actors.gateway.listener import Listener
from actors.messages.lifecycle import HandOver, Reconfigure, ShardFaults, Stop
from actors.node import config as configuration
from actors.node.assembly import OpenShard, ShardActors, ShardSettings, open_shard, start_shard
from actors.node.config import NodeConfig
from actors.node.control import EXIT_UNUSABLE, Control
from actors.node.logs import set_up_logging
from actors.node.portions import broker_limits, listener_limits, shard_settings
from actors.runtime.asyncio_runtime import AsyncioRuntime
from actors.runtime.contract import mark_loop_thread
from actors.runtime.loop_actor import LoopActor
from net.clients.connection import Connection
from net.clients.moving import MovedIn, MovingIn, move_out
from net.clients.tcp import TcpProtocol, listen_tcp
from net.clients.udp import listen_udp
from net.peers.link import PeerLink, PeerTransport
from net.peers.tcp import dial_peer, listen_peers
from net.peers.workers import SocketFolder, dial_worker, listen_workers
from net.protocols import DATAGRAM_PROTOCOLS, PROTOCOLS
from net.sockets import listening_socket
from storage.disk import RealFolder
from storage.errors import DamagedError, DiskFullError, StorageError
from storage.tables import LmdbTables

log = logging.getLogger("quorate.worker")

EXIT_FAILED: Final = 70
EXIT_NO_SPACE: Final = 75
STOP_S: Final = 4.0
"""After this a stop that hangs is cut off; the log recovers what was open."""

ROOM_S: Final = 1.0
"""How often a worker that was full of clients looks whether it is still."""

READY_S: Final = 0.05
"""A worker says that it is ready when it has run for so long."""


def main() -> None:
    """Run until told to stop."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a terminal signals the whole group; the supervisor says what it means
    control = Control(socket.socket(fileno=int(sys.argv[1])))
    messages = control.receive()
    if not messages:
        sys.exit(0)
    config, shard = configuration.restored(messages[0]["config"]), int(messages[0]["shard"])
    set_up_logging(config, shard)
    try:
        own_port = _own_port(config, shard)
    except OSError as error:
        control.send({"trouble": f"can't listen on port {config['shard_port'] + shard}: {error.strerror}"})
        sys.exit(EXIT_FAILED)
    settings = shard_settings(config, shard, own_port)
    try:
        opened, summary = _open(config, settings)
    except DiskFullError as error:
        control.send({"trouble": f"there is no space to start with: {error}"})
        sys.exit(EXIT_NO_SPACE)
    except (StorageError, OSError) as error:
        where = "" if config["shards"] == 1 else f" of shard {shard}"
        what = f"the data{where} in {config['data_dir']} can't be used: {error}"
        if isinstance(error, DamagedError):
            what += ". qctl log verify names all damage, qctl log repair keeps what can be read"
        log.critical("%s", what)
        control.send({"failed": what})
        sys.exit(EXIT_UNUSABLE)
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    node = Worker(loop, config, settings, own_port, opened, control, summary)
    for message in messages[1:]:
        node.told(message)
    code = node.run()
    logging.shutdown()
    os._exit(code)  # threads may wait on a disk that does not answer; nothing here is needed any more


def _own_port(config: NodeConfig, shard: int) -> socket.socket | None:
    """Where clients that know the map reach this worker alone; None where it is the only one. Raises OSError."""
    if config["shards"] == 1:
        return None
    first = config["shard_port"]
    return listening_socket(config["host"], first + shard if first else 0, socket.SOCK_STREAM, shares=False)


def _open(config: NodeConfig, settings: ShardSettings) -> tuple[OpenShard, str]:
    """Recover the shard. LMDB is opened afresh afterwards: the pages that recovery touched are given back."""
    path = Path(config["data_dir"]) / f"shard-{settings.shard}"
    begun = time.monotonic()
    tables = LmdbTables(path)
    folder = RealFolder(path / "journal")
    try:
        opened = open_shard(tables, folder, settings, time.time(), random.random)
    finally:
        tables.close()
    opened.store.reopen(LmdbTables(path))
    state = opened.state
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    if opened.recovered.torn:
        log.warning("cut off at the log's end: %s", opened.recovered.torn)
    took_s = time.monotonic() - begun
    summary = f"{len(state.messages)} messages in {len(state.queues)} queues recovered in {took_s:.2f} s"
    return opened, summary


class _Dialler:
    """The network of a real node. `sockets`: the folder with the workers' sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sockets: SocketFolder) -> None:
        self._loop = loop
        self._sockets = sockets
        self._tasks: set[asyncio.Task[None]] = set()

    def dial(
        self, host: str, port: int, connected: Callable[[PeerTransport], PeerLink], failed: Callable[[str], None]
    ) -> None:
        """Open a TCP connection."""
        self._run(dial_peer(host, port, connected, failed))

    def dial_sibling(
        self, shard: int, connected: Callable[[PeerTransport], PeerLink], failed: Callable[[str], None]
    ) -> None:
        """Open a connection to another worker's socket."""
        self._run(dial_worker(self._sockets, shard, connected, failed))

    def _run(self, dialling: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(dialling)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Stopper(LoopActor):
    """Hears that another node leads, on the way to the stop."""

    def __init__(self, runtime: AsyncioRuntime, handed_over: Callable[[], None]) -> None:
        super().__init__(runtime)
        self._handed_over = handed_over

    def on_receive(self, message: Any) -> None:
        """`HandedOver`, the first time."""
        handed_over, self._handed_over = self._handed_over, lambda: None
        handed_over()


class Worker:
    """The running process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: NodeConfig,
        settings: ShardSettings,
        own_port: socket.socket | None,
        opened: OpenShard,
        control: Control,
        summary: str,
    ) -> None:
        self._loop = loop
        self._config = config
        self._number = settings.shard
        self._own_port = own_port
        self._sockets = SocketFolder(Path(config["data_dir"]))
        dialler = _Dialler(loop, self._sockets)
        self._control = control
        self._summary = summary
        self._code = 0
        self._runtime = AsyncioRuntime(loop, self._actor_failed)
        self._shard: ShardActors = start_shard(
            self._runtime,
            dialler,
            opened,
            settings,
            broker_limits(config),
            configuration.virtual_queues(config),
            dialler,
        )
        self._listener = Listener.start_object(
            self._runtime,
            self._shard.router,
            listener_limits(config),
            on_stopped=self._replies_written,
            move=self._move_out,
        )
        self._stopper = _Stopper.start(self._runtime, self._handed_over)
        self._servers: list[asyncio.Server] = []
        self._datagrams: list[asyncio.DatagramTransport] = []
        self._moving_in: MovingIn | None = None
        self._taking: set[asyncio.Task[Any]] = set()
        self._is_stopping = False

    def run(self) -> int:
        """Serve until stopped; returns the exit code."""
        try:
            self._loop.run_until_complete(self._listen())
        except OSError as error:
            log.critical("%s", error)
            self._control.send({"failed": str(error)})
            return EXIT_UNUSABLE
        self._control.sock.setblocking(False)
        self._loop.add_reader(self._control.sock.fileno(), self._control_readable)
        self._loop.call_later(READY_S, lambda: self._control.send({"ready": self._summary}))
        self._loop.run_forever()
        mark_loop_thread(False)
        if self._code == 0:
            try:
                self._shard.end(STOP_S)
            except pykka.Timeout:
                log.warning("the disk does not answer; what it has not taken is recovered from the journal")
        return self._code

    async def _listen(self) -> None:
        """Open all ports. Raises OSError that says which one can't be."""
        config = self._config
        clients = {"protocol": "json", "host": config["host"], "port": config["port"]}
        for one in (clients, *config["listeners"]):
            await _can_listen(one["host"], one["port"], self._listen_to_clients(**one))
        if self._own_port is not None:
            await self._listen_to_clients("json", config["host"], 0, self._own_port)
        if self._shard.siblings is not None:
            self._servers.append(await listen_workers(self._sockets, self._number, self._shard.siblings.accepted))
            has_room = partial(getattr, self._listener, "has_room")
            self._moving_in = MovingIn(self._sockets.path(self._number, "move"), self._moved_in, has_room)
            self._loop.call_later(ROOM_S, self._see_room)
        nodes_port = configuration.nodes_port(config)
        if nodes_port is not None:
            host, port = nodes_port[0], nodes_port[1] + self._number
            await _can_listen(host, port, self._listen_to_peers(host, port))

    async def _listen_to_clients(self, protocol: str, host: str, port: int, bound: socket.socket | None = None) -> None:
        """On host and port, datagrams too where the protocol has them; or on a stream's socket that is bound."""
        listener, make_codec = self._listener, PROTOCOLS[protocol]
        limits = partial(getattr, listener, "limits")
        self._servers.append(
            await listen_tcp(
                host, port, listener, make_codec, lambda: limits().connection, listener.admit, bound, protocol
            )
        )
        if protocol in DATAGRAM_PROTOCOLS and bound is None:
            self._datagrams.append(
                await listen_udp(host, port, listener, make_codec, lambda: limits().connection.codec)
            )

    def _see_room(self) -> None:
        """Clients of other workers may come again when some have left."""
        if self._moving_in is not None and not self._is_stopping:
            try:
                self._moving_in.open()
            except OSError as error:  # no descriptor is left: later, then
                log.warning("clients of other workers can't be taken in: %s", error)
            self._loop.call_later(ROOM_S, self._see_room)

    def _move_out(self, connection: Connection, shard: int) -> bool:
        if self._is_stopping:
            return False  # the others are, too
        habit = connection.habit
        moves = 0 if habit is None else habit.moves
        return move_out(self._sockets.path(shard, "move"), connection.transport, connection.protocol, moves + 1)

    def _moved_in(self, moved: MovedIn) -> None:
        """Another worker gives a client away that asks this one's shard."""
        make_codec = PROTOCOLS.get(moved.protocol)
        if make_codec is None:
            moved.sock.close()
            return
        listener, limits = self._listener, partial(getattr, self._listener, "limits")
        protocol = TcpProtocol(
            listener,
            make_codec,
            lambda: limits().connection,
            listener.admit_moved,
            moved.protocol,
            Habit(moves=moved.moves),
        )
        taking = self._loop.create_task(self._loop.connect_accepted_socket(lambda: protocol, moved.sock))
        self._taking.add(taking)
        taking.add_done_callback(self._taken)

    def _taken(self, taking: "asyncio.Task[Any]") -> None:
        self._taking.discard(taking)
        error = None if taking.cancelled() else taking.exception()
        if isinstance(error, OSError):
            log.debug("a client that moved here was gone: %s", error)
        elif error is not None:
            self._actor_failed("taking a client in", error)

    async def _listen_to_peers(self, host: str, port: int) -> None:
        self._servers.append(await listen_peers(host, port, self._shard.peers.accepted))

    def _actor_failed(self, who: object, error: BaseException) -> None:
        name = who if isinstance(who, str) else type(who).__name__
        log.critical("%s failed, and this worker ends: %r", name, error)
        self._control.send({"trouble": f"{name} failed: {error!r}"})
        self._code = EXIT_FAILED
        self._loop.stop()

    def _control_readable(self) -> None:
        messages = self._control.receive()
        if messages is None:
            self._loop.remove_reader(self._control.sock.fileno())
            if not self._is_stopping:
                log.warning("the supervisor is gone; stopping")
            self._stop()
            return
        for message in messages:
            self.told(message)

    def told(self, message: dict[str, Any]) -> None:
        """What the supervisor says."""
        if "stop" in message:
            self._stop()
        elif "reload" in message:
            self._reload(message["reload"])
        elif "faults" in message and self._shard.siblings is not None:
            self._shard.router.tell(ShardFaults(message["faults"]))

    def _reload(self, values: dict[str, Any]) -> None:
        self._config = config = configuration.restored(values)
        logging.getLogger("quorate").setLevel(config["log_level"].upper())
        self._listener.actor_ref.tell(Reconfigure(listener_limits(config)))
        self._shard.router.tell(Reconfigure(configuration.virtual_queues(config)))
        self._shard.owner.tell(Reconfigure(broker_limits(config)))

    def _stop(self) -> None:
        """A leader hands over, then no new clients, then what is open is finished, then `_replies_written`."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._loop.call_later(STOP_S, self._loop.stop)
        self._shard.replicator.tell(HandOver(self._stopper))

    def _handed_over(self) -> None:
        for server in self._servers:
            server.close()
        if self._moving_in is not None:
            self._moving_in.close()
        self._listener.actor_ref.tell(Stop(self._listener.actor_ref))

    def _replies_written(self) -> None:
        for datagrams in self._datagrams:
            datagrams.close()
        self._loop.call_later(0.05, self._loop.stop)  # the sockets' last bytes leave in this time


async def _can_listen(host: str, port: int, listening: Awaitable[None]) -> None:
    try:
        await listening
    except OSError as error:
        raise OSError(error.errno, f"can't listen on {shown_address(host, port)}: {error.strerror or error}") from error
