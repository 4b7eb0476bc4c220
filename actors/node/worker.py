"""A worker process: one shard, its clients, one event loop. The place where real sockets, clocks and disks meet actors.

Run by the supervisor in a process of its own. Ends with `EXIT_UNUSABLE` when its data can't be used as they are,
`EXIT_FAILED` when an actor raised, 0 when it was asked to stop.
"""

import asyncio
import gc
import logging
import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pykka
import uvloop

import quorate_compiled
from actors.gateway.auditing import Auditor
from actors.gateway.listener import Listener
from actors.gateway.reception import OwnSettings
from actors.messages.lifecycle import AccessChanged, HandedOver, HandOver, Reconfigure, ShardFaults, Stop
from actors.messages.mailboxes import ToStopper
from actors.messages.measures import ClientCounts
from actors.messages.peers import KeyringChanged
from actors.node import config as configuration
from actors.node.assembly import OpenShard, ShardActors, open_shard, start_shard
from actors.node.config import NodeConfig
from actors.node.control import EXIT_UNUSABLE, Control
from actors.node.logs import set_up_logging
from actors.node.own_port import own_port
from actors.node.ports import Dialler, Ports
from actors.node.security import Security, load_security
from actors.node.settings_from_config import (
    broker_limits,
    changed_value,
    listener_limits,
    settings_shown,
    shard_settings,
)
from actors.node.shard_settings import ShardSettings
from actors.runtime.asyncio_runtime import AsyncioRuntime, Collector
from actors.runtime.blocking import mark_loop_thread
from actors.runtime.loop_actor import LoopActor
from actors.shard.queue_owner import warn_of_hidden
from net.clients.connection import Connection
from net.peers.workers import SocketFolder
from storage.errors import DamagedError, DiskFullError, NoMembersError, StorageError
from storage.real_disk import RealFolder
from storage.recovery import paused_gc
from storage.renewal import members_of, others_can_elect, renew, set_aside, unfinished
from storage.tables import LmdbTables

log = logging.getLogger("quorate.worker")

EXIT_FAILED: Final = 70
EXIT_NO_SPACE: Final = 75
WARM_SHARE: Final = 0.25
"""Of the machine's memory, a node's workers read ahead so much of what they recover from."""

STOP_S: Final = 4.0
"""After this a stop that hangs is cut off; the log recovers what was open."""

WATCHDOG: Final = "QUORATE_WATCHDOG"
TURN_S_MAX: Final = 0.02
"""No turn of the loop should take longer: half an election time-out is enough for ten of them."""

WARN_S: Final = 3600.0
READY_S: Final = 0.05
"""A worker says that it is ready when it has run for so long."""


def run(sock: socket.socket) -> int:
    """Run until told to stop on `sock`, the channel; returns the exit code."""
    control = Control(sock)
    messages: list[dict[str, Any]] | None = []
    while messages == []:  # a long configuration comes in parts
        messages = control.receive()
    if messages is None:
        return 0
    config, shard = configuration.restored(messages[0]["config"]), int(messages[0]["shard"])
    set_up_logging(config, shard)
    try:
        bound = own_port(config, shard)
    except OSError as error:
        control.send({"trouble": f"can't listen on port {config['shard_port'] + shard}: {error.strerror}"})
        return EXIT_FAILED
    security, faults = load_security(config)
    if faults:  # they have come since the supervisor looked; somebody may mend them
        control.send({"trouble": "; ".join(faults)})
        return EXIT_FAILED
    settings = replace(shard_settings(config, shard, bound), keyring=security.keyring)
    try:
        opened, summary, settings = _open_or_renew(config, settings)
    except DiskFullError as error:
        control.send({"trouble": f"there is no space to start with: {error}"})
        return EXIT_NO_SPACE
    except (StorageError, OSError) as error:
        where = "" if config["shards"] == 1 else f" of shard {shard}"
        what = f"the data{where} in {config['data_dir']} can't be used: {error}"
        if isinstance(error, DamagedError):
            what += ". qctl log verify names all damage; what to do then: docs/operating.md, qctl log repair"
        log.critical("%s", what)
        control.send({"failed": what})
        return EXIT_UNUSABLE
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    node = Worker(
        loop, config, settings, own_port=bound, opened=opened, control=control, summary=summary, security=security
    )
    for message in messages[1:]:
        node.told(message)
    return node.run()


def _watchdog_s(config: NodeConfig) -> float:
    """Log a turn that takes longer (s): as `QUORATE_WATCHDOG` says (ms), or `TURN_S_MAX` where the log debugs."""
    asked = os.environ.get(WATCHDOG, "")
    if asked:
        return float(asked) / 1000
    return TURN_S_MAX if config["log_level"] == "debug" else 0.0


def _open_or_renew(config: NodeConfig, settings: ShardSettings) -> tuple[OpenShard, str, ShardSettings]:
    """Recover the shard; where its data are damaged and the other nodes go on without this one, begin anew, once.

    More than once is no accident, and somebody should look at the disk. What was begun and cut short goes on. The
    settings say so.
    """
    path = Path(config["data_dir"]) / f"shard-{settings.shard}"
    begun = unfinished(path)
    try:
        if begun is not None:
            raise DamagedError(path.name, "a part is put aside, and the node ended before all was")
        return *_open(config, settings), settings
    except DamagedError as error:
        where = path if begun is None or (path / "data.mdb").exists() else begun
        try:
            members = members_of(where, settings.shard)
        except NoMembersError:
            raise error from None  # it may be the one to found the shard: nobody else has anything
        listed = [one.node_id for one in settings.listed]
        if begun is None and (set_aside(path) or not others_can_elect(settings.own.node_id, members, listed)):
            raise
        try:
            aside = renew(path, settings.shard, members)
        except DamagedError:
            raise error from None
        what = f"the data were damaged ({error}), and put aside to {aside.name}: the other nodes have all"
        log.critical("%s; this one votes for nobody before it has it, too", what)
        renewed = replace(settings, renewed=what)
        return *_open(config, renewed), renewed


def _open(config: NodeConfig, settings: ShardSettings) -> tuple[OpenShard, str]:
    """Recover the shard. LMDB is opened afresh afterwards: the pages that recovery touched are given back."""
    path = Path(config["data_dir"]) / f"shard-{settings.shard}"
    begun = time.monotonic()
    gc.collect()  # before there are a million messages, which all stay: nobody is to look through them once
    tables = LmdbTables(path)
    folder = RealFolder(path / "journal")
    with paused_gc():
        try:
            tables.warm(WARM_SHARE / config["shards"])
            opened = open_shard(tables, folder, settings, time.time, random.random)
        finally:
            tables.close()
        opened.store.reopen(LmdbTables(path))
        opened.store.tables.give_back()
        state = opened.state
        gc.freeze()
    _warn_of_odd_data(config, settings, opened)
    if opened.recovered.torn:
        log.warning("cut off at the log's end: %s", opened.recovered.torn)
    took_s = time.monotonic() - begun
    summary = f"{len(state.messages)} messages in {len(state.queues)} queues recovered in {took_s:.2f} s"
    return opened, summary


def _warn_of_odd_data(config: NodeConfig, settings: ShardSettings, opened: OpenShard) -> None:
    """Say what is taken as it is, and may not be meant: data of another node, and nodes that are listed in vain."""
    own = settings.own.node_id
    writer = f"node {own} of cluster number {settings.node_type}"
    before = opened.store.sign(writer)
    if before is not None:
        log.warning("the data were written by %s, and this is %s: it goes on with them", before, writer)
    listed = ", ".join(str(one.node_id) for one in settings.listed if one.node_id != own)
    members = opened.state.facts.members
    if listed and members is not None and [member.node_id for member in members.members] == [own]:
        log.warning(
            "this node is a cluster of its own, and cluster_node_list names others: %s are no members of it "
            "(qctl cluster add-node makes one a member; a node that is to join theirs begins with an empty folder)",
            listed,
        )
    warn_of_hidden(opened.state, configuration.virtual_queues(config))


class _Stopper(LoopActor[ToStopper]):
    """Hears that another node leads, on the way to the stop."""

    def __init__(self, runtime: AsyncioRuntime, handed_over: Callable[[], None]) -> None:
        super().__init__(runtime)
        self._handed_over = handed_over
        self.handlers = {HandedOver: self._heard}

    def _heard(self, message: HandedOver) -> None:
        """Tell of it, once."""
        handed_over, self._handed_over = self._handed_over, lambda: None
        handed_over()


class Worker:
    """The running process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: NodeConfig,
        settings: ShardSettings,
        *,
        own_port: socket.socket | None,
        opened: OpenShard,
        control: Control,
        summary: str,
        security: Security,
    ) -> None:
        self._loop = loop
        self._config = config
        self._security = security
        sockets = SocketFolder(Path(config["data_dir"]))
        dialler = Dialler(loop, sockets, lambda: self._security.nodes_tls)
        self._control = control
        self._summary = summary
        self._code = 0
        collector = Collector()
        collector.begin()
        self._runtime = AsyncioRuntime(loop, self._actor_failed, _watchdog_s(config), collector)
        self._counts = counts = ClientCounts(self._runtime.monotonic())
        counts.warnings, counts.runs = list(security.warnings), quorate_compiled.running()
        counts.certificates = security.certificates
        self._shard: ShardActors = start_shard(
            self._runtime,
            dialler,
            opened,
            settings,
            broker_limits(config),
            configuration.virtual_queues(config),
            access=security.access,
            counts=counts,
        )
        audit_path = configuration.audit_path(config, settings.shard)
        self._auditor = None if audit_path is None else self._runtime.start_blocking(Auditor, audit_path)
        self._listener = Listener.start_object(
            self._runtime,
            self._shard.router.mailbox,
            listener_limits(config),
            on_stopped=self._replies_written,
            move=self._move_out,
            access=security.access,
            auditor=self._auditor,
            counts=counts,
            settings=OwnSettings(lambda: settings_shown(self._config), self._change),
        )
        self._shard.router.serve(self._listener.mailbox)
        self._ports = Ports(
            loop,
            config,
            settings.shard,
            self._listener,
            self._shard,
            sockets=sockets,
            security=lambda: self._security,
            facts=settings.facts,
            failed=self._actor_failed,
        )
        self._own_port = own_port
        self._stopper = _Stopper.start(self._runtime, self._handed_over)
        self._is_stopping = False

    def run(self) -> int:
        """Serve until stopped; returns the exit code."""
        try:
            self._loop.run_until_complete(self._ports.open(self._own_port))
        except OSError as error:
            log.critical("%s", error)
            self._control.send({"failed": str(error)})
            return EXIT_UNUSABLE
        self._control.sock.setblocking(False)
        self._loop.add_reader(self._control.sock.fileno(), self._control_readable)
        self._loop.call_later(READY_S, lambda: self._control.send({"ready": self._summary}))
        self._warn()
        self._loop.run_forever()
        mark_loop_thread(False)
        if self._code == 0:
            try:
                self._shard.end(STOP_S)
            except pykka.Timeout:
                log.warning("the disk does not answer; what it has not taken is recovered from the journal")
        return self._code

    def _move_out(self, connection: Connection, shard: int) -> bool:
        return self._ports.move_out(connection, shard)

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
        """Handle what the supervisor says."""
        if "stop" in message:
            self._stop()
        elif "reload" in message:
            answer = {"reloaded": message["serial"], "faults": self._reload(message["reload"])}
            self._loop.call_soon(self._control.send, answer)  # behind the turns of those who were told
        elif "faults" in message:
            self._shard.router.mailbox.tell(ShardFaults(message["faults"]))

    def _reload(self, values: dict[str, Any]) -> list[str]:
        """Go by these; why not by all of them."""
        before = configuration.virtual_queues(self._config)
        self._config = config = configuration.restored(values)
        hides = tuple(name for name in configuration.virtual_queues(config) if name not in before)
        logging.getLogger("quorate").setLevel(config["log_level"].upper())
        self._listener.mailbox.tell(Reconfigure(listener_limits(config)))
        self._shard.router.mailbox.tell(Reconfigure(configuration.virtual_queues(config)))
        self._shard.owner.tell(Reconfigure(broker_limits(config), hides))
        security, faults = load_security(config)
        if faults:  # they have come since the supervisor looked
            log.error("what keeps strangers out stays as it was: %s", "; ".join(faults))
            return faults
        security.access.follow(self._security.access)
        for warning in set(security.warnings) - set(self._security.warnings):
            log.warning("%s", warning)
        self._security = security
        self._counts.warnings, self._counts.certificates = list(security.warnings), security.certificates
        for ref in (self._listener.mailbox, self._shard.router.mailbox):
            ref.tell(AccessChanged(security.access))
        self._shard.links.mailbox.tell(KeyringChanged(security.keyring))
        log.info("the configuration that was read again holds here")
        return []

    def _change(self, name: str, text: str) -> str | None:
        """Somebody sets an option until the node starts again: all its workers are told by the supervisor."""
        try:
            value = changed_value(name, text)
        except ValueError as error:
            return str(error)
        self._control.send({"set": {name: value}})
        return None

    def _warn(self) -> None:
        """Say again and again what is less safe than it could be."""
        for warning in self._security.warnings:
            log.warning("%s", warning)
        self._loop.call_later(WARN_S, self._warn)

    def _stop(self) -> None:
        """Stop: a leader hands over, then no new clients, then what is open is finished, then `_replies_written`."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._loop.call_later(STOP_S, self._loop.stop)
        self._shard.replicator.tell(HandOver(self._stopper))

    def _handed_over(self) -> None:
        self._listener.expects_clients = self._ports.close()
        self._listener.mailbox.tell(Stop(self._listener.mailbox))

    def _replies_written(self) -> None:
        self._ports.close_datagrams()
        if self._auditor is not None:
            self._auditor.stop(block=False)
        self._loop.call_later(0.05, self._loop.stop)  # the sockets' last bytes leave in this time
