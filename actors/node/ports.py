"""The ports of a worker: for clients, for nodes, and for its node's other workers. Where sockets meet actors."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from actors.gateway.client_identities import ClientIdentity
from actors.gateway.client_moves import ShardAffinity
from actors.gateway.listener import Listener
from actors.links.contact import shown_address
from actors.node import config as configuration
from actors.node.assembly import ShardActors
from actors.node.config import NodeConfig
from actors.node.options import ports_of
from actors.node.security import Security
from net.accepting import ALL, BURST, CROWD_BURST
from net.clients.connection import Connection
from net.clients.moving import MovedClient, MovedIn, MovingIn, move_out
from net.clients.tcp import Admit, TcpProtocol, TcpServer, listen_tcp
from net.clients.udp import listen_udp
from net.peers.link import Connected
from net.peers.tcp import PeerServer, dial_peer
from net.peers.workers import SocketFolder, dial_worker, listen_workers
from net.protocols import BESIDE, DATAGRAM_PROTOCOLS, PROTOCOLS, ListenerFacts, NodeFacts, SessionOf, spoken

log = logging.getLogger("quorate.worker")

ROOM_S: Final = 1.0
"""How often a worker that was full of clients looks whether it is still."""


class Dialler:
    """The network of a real node. `sockets`: the folder with the workers' sockets; `tls`: as in `Security`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: SocketFolder,
        tls: Callable[[], tuple[ssl.SSLContext, ssl.SSLContext] | None],
    ) -> None:
        self._loop = loop
        self._sockets = sockets
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    def dial(self, host: str, port: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """Open a TCP connection, with TLS if nodes have certificates."""
        contexts = self._tls()
        self._run(dial_peer(host, port, connected, failed, None if contexts is None else contexts[1]))

    def dial_sibling(self, shard: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """Open a connection to another worker's socket."""
        self._run(dial_worker(self._sockets, shard, connected, failed))

    def _run(self, dialling: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(dialling)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Ports:
    """Those of one worker, which has shard `number`. `security` is what holds at the moment; `facts`: see
    `NodeFacts`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: NodeConfig,
        number: int,
        listener: Listener,
        shard: ShardActors,
        *,
        sockets: SocketFolder,
        security: Callable[[], Security],
        facts: NodeFacts,
        failed: Callable[[object, BaseException], None],
    ) -> None:
        self._loop = loop
        self._config = config
        self._number = number
        self._listener = listener
        self._shard = shard
        self._sockets = sockets
        self._security = security
        self._facts = facts
        self._failed = failed
        self._servers: list[asyncio.Server | TcpServer | PeerServer] = []
        self._datagrams: list[asyncio.DatagramTransport] = []
        self._moving_in: MovingIn | None = None
        self._taking: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def open(self, own_port: socket.socket | None) -> None:
        """Open all of them. `own_port`: where clients reach this worker alone. Raises OSError."""
        config = self._config
        host, has_tls = config["host"], bool(config["tls"])
        clients = {"protocol": "json", "host": host, "port": config["port"], "tls": has_tls, "debug": False}
        for one in (clients, *config["listeners"]):
            ports = ports_of(one, config["shards"])
            port = ports[self._number % len(ports)]
            await _can_listen(one["host"], port, self._listen_to_clients(one, port))
        if own_port is not None:
            await self._listen_to_clients(clients, 0, bound=own_port)
        if self._config["shards"] > 1:
            self._servers.append(await listen_workers(self._sockets, self._number, self._shard.links.accepted_near))
            has_room = partial(getattr, self._listener, "has_room")
            self._moving_in = MovingIn(self._sockets.path(self._number, "move"), self._moved_in, has_room)
            self._loop.call_later(ROOM_S, self._see_room)
        nodes_port = configuration.nodes_port(config)
        if nodes_port is not None:
            at, port = nodes_port[0], nodes_port[1] + self._number
            await _can_listen(at, port, self._listen_to_peers(at, port))

    async def _listen_to_peers(self, host: str, port: int) -> None:
        def tls() -> ssl.SSLContext | None:
            contexts = self._security().nodes_tls
            return None if contexts is None else contexts[0]

        links, expected = self._shard.links, [node["host"] for node in self._config["cluster_node_list"]]
        self._servers.append(
            PeerServer(host, port, links.accepted, tls, expected=expected, turned_away=links.incoming.turned_away)
        )

    async def _listen_to_clients(
        self, listener: dict[str, Any], port: int, *, bound: socket.socket | None = None
    ) -> None:
        """On a port of a listener, datagrams too where its protocol has them; or on a stream's socket that is bound."""
        protocol, host, tls = listener["protocol"], listener["host"], listener["tls"]

        def context() -> ssl.SSLContext:
            found = self._security().clients_tls
            assert found is not None, "what speaks TLS has a certificate: see load_security"
            return found

        sessions = PROTOCOLS[protocol].sessions()
        name = protocol if tls == bool(self._config["tls"]) else protocol + BESIDE
        facts = ListenerFacts(
            listener["debug"],
            configuration.dialled_host(self._config, listener),
            port,
            self._number,
            self._loop.time,
            listener.get("auto_create", False),
            listener.get("auto_create_partitions", 1),
        )
        make = partial(self._protocol, name, partial(sessions, listener=facts), self._listener.admit)
        turned_away = self._listener.turned_away.note
        self._servers.append(
            await listen_tcp(host, port, make, context if tls else None, bound, turned_away, at_once=self._at_once)
        )
        if protocol in DATAGRAM_PROTOCOLS and bound is None and not tls:
            limits = partial(getattr, self._listener, "limits")
            factor = self._config["datagram_reply_factor"]
            self._datagrams.append(
                await listen_udp(
                    *(host, port, self._listener, sessions, lambda: limits().connection.request, factor), protocol=name
                )
            )

    def _at_once(self) -> float:
        """Say how many clients may come in at one moment: all, while that is nobody's loss who has shown a token."""
        turn = self._listener.turn
        if turn.strangers_wait:
            return CROWD_BURST
        return BURST if turn.look_for_others() and not self._security().access.is_open else ALL

    def _protocol(
        self,
        protocol: str,
        sessions: SessionOf,
        admit: Admit,
        affinity: ShardAffinity | None = None,
        state: bytes = b"",
    ) -> TcpProtocol:
        listener, make = self._listener, partial(sessions, facts=self._facts)
        return TcpProtocol(
            listener,
            make,
            lambda: listener.limits.connection,
            admit,
            protocol=protocol,
            affinity=affinity,
            state=state,
        )

    def close(self) -> bool:
        """Let nobody in any more but those who wait already; datagrams are still answered.

        Whether clients are being taken in: they are yet to ask.
        """
        self._is_closed = True
        are_coming = [server.close() for server in self._servers]
        if self._moving_in is not None:
            self._moving_in.close()
        return any(are_coming)

    def close_datagrams(self) -> None:
        """All is answered."""
        for datagrams in self._datagrams:
            datagrams.close()

    # -- clients that move between workers -----------------------------------------------------------------------

    def _see_room(self) -> None:
        """Clients of other workers may come again when some have left."""
        if self._moving_in is not None and not self._is_closed:
            try:
                self._moving_in.open()
            except OSError as error:  # no descriptor is left: later, then
                log.warning("clients of other workers can't be taken in: %s", error)
            self._loop.call_later(ROOM_S, self._see_room)

    def move_out(self, connection: Connection, shard: int) -> bool:
        """Give a quiet client to the worker of that shard; whether it is gone."""
        if self._is_closed:
            return False  # the others are about to close, too
        affinity: ShardAffinity | None = connection.affinity
        identity: ClientIdentity = connection.identity
        luggage = MovedClient(
            connection.protocol,
            1 if affinity is None else affinity.moves + 1,
            identity.known.principal.name,
            identity.known.proof,
            connection.session_state or b"",
        )
        return move_out(self._sockets.path(shard, "move"), connection.transport, luggage)

    def _moved_in(self, moved: MovedIn) -> None:
        """Another worker gives a client away that asks this one's shard."""
        luggage, listener = moved.luggage, self._listener
        protocol = spoken(luggage.protocol)
        if protocol not in PROTOCOLS:
            moved.sock.close()
            return

        def admit(connection: Connection, address: Any, names: tuple[str, ...]) -> str | None:
            return listener.admit_moved(connection, address, luggage.principal, luggage.proof)

        sessions = PROTOCOLS[protocol].sessions()
        affinity = ShardAffinity(moves=luggage.moves)
        make = partial(self._protocol, luggage.protocol, sessions, admit, affinity, luggage.state)
        taking = self._loop.create_task(self._loop.connect_accepted_socket(make, moved.sock))
        self._taking.add(taking)
        taking.add_done_callback(self._taken)

    def _taken(self, taking: "asyncio.Task[Any]") -> None:
        self._taking.discard(taking)
        error = None if taking.cancelled() else taking.exception()
        if isinstance(error, OSError):
            log.debug("a client that moved here was gone: %s", error)
        elif error is not None:
            self._failed("taking a client in", error)


async def _can_listen(host: str, port: int, listening: Awaitable[None]) -> None:
    try:
        await listening
    except OSError as error:
        raise OSError(error.errno, f"can't listen on {shown_address(host, port)}: {error.strerror or error}") from error
