"""The supervisor: a node's first process. Starts a worker for each shard, again when one dies, reloads, stops in order.

Run by `qctl node start` as `python -m quorate_server supervisor ARGUMENTS`, a JSON object: `config` (a path or null),
`flags` and `ready_fd` (where to say "ready" or why not, or null). It does little on purpose, since it must not be what
fails: of the workers' code, which they are forked with, it runs nothing itself.

SIGTERM and SIGINT stop, SIGHUP reads the configuration again.
"""

import gc
import hashlib
import json
import logging
import math
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import quorate_compiled
from actors.node import config as configuration
from actors.node.config import NodeConfig
from actors.node.config_file import ConfigError
from actors.node.data_folder import FoundingError, HeldError, NodeLock, Reload, founded, note_reload
from actors.node.launch import NOTIFY_READY, NOTIFY_STOPPING, notify, notify_reloading
from actors.node.logs import let_go_of_log, set_up_logging
from actors.node.options import ports_of
from actors.node.own_port import when_free
from actors.node.processes import TOLD, ConsoleProcess, WorkerProcess
from actors.node.security import load_security
from net.protocols import PROTOCOLS

log = logging.getLogger("quorate.node")

PATIENCE_S: Final = 10.0
"""Whoever waits for a node that has not come up by then is told why, while it goes on trying."""

READ_AGAIN: Final = ("access_file", "tls_cert", "tls_client_ca", "cluster_secret_file", "cluster_tls_cert")
"""Files that hold what may have changed, though their names have not."""

LOST: Final = {
    "cluster_secret_file": "this node has no secret any more: nodes that ask for one will not talk with it",
    "cluster_tls_cert": "this node has no certificate any more: nodes that ask for one will not talk with it",
    "access_file": "there is no access_file any more: everybody may do everything that a node without one lets them",
}
"""What it means when a setting is taken away."""

STREAM: Final = (socket.SOCK_STREAM,)
BOTH: Final = (socket.SOCK_STREAM, socket.SOCK_DGRAM)
"""What is opened of a port: datagrams only where there is no TLS."""

STOP_S: Final = 4.5
"""A worker that has not stopped by then is killed; the promise is 5 s."""


class Supervisor:
    """One node. `load` reads the configuration afresh."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._path = Path(arguments["config"]) if arguments.get("config") else None
        self._flags = arguments.get("flags") or {}
        self._ready_fd: int | None = arguments.get("ready_fd")
        self._config = self._load()
        self._lock = NodeLock(Path(self._config["data_dir"]))
        self._selector = selectors.DefaultSelector()
        self._signals = socket.socketpair()
        shards = self._config["shards"]
        names = ["the worker"] if shards == 1 else [f"the worker of shard {shard}" for shard in range(shards)]
        self._workers = [WorkerProcess(shard, name, self._let_go) for shard, name in enumerate(names)]
        self._console = ConsoleProcess(self._config)
        self._cluster_id = 0
        self._told_faults: dict[int, str] = {}
        self._kill_at: float | None = None
        self._is_stopping = False
        self._reloads = 0
        self._config.contents = contents_of(self._config)
        self._reload: Reload | None = None
        self._begun_at = time.monotonic()

    def _load(self) -> NodeConfig:
        """Load the configuration. Raises `ConfigError`, also for what the configuration names and can't be used."""
        config = configuration.load(self._path, flags=self._flags)
        _, faults = load_security(config)
        if faults:
            raise ConfigError(faults)
        return config

    def run(self) -> int:
        """Run the node; returns the exit code."""
        config = self._config
        set_up_logging(config)
        for warning in config.warnings:
            log.warning("%s", warning)
        about = {"pid": os.getpid(), "host": config["host"], "port": config["port"], "node_id": config["node_id"]}
        try:
            self._lock.take(about)
            _check_port(config["host"], config["port"], STREAM if config["tls"] else BOTH)
            for one in config["listeners"]:
                for port in ports_of(one, config["shards"]):
                    _check_port(one["host"], port, STREAM if one["tls"] else BOTH)
            for shard in range(config["shards"] if config["shards"] > 1 and config["shard_port"] else 0):
                _check_port(config["host"], config["shard_port"] + shard, STREAM)
            for one in config["http_listeners"]:
                _check_port(one["host"], one["port"], STREAM)
            nodes_port = configuration.nodes_port(config)
            for shard in range(0 if nodes_port is None else config["shards"]):
                assert nodes_port is not None
                _check_port(nodes_port[0], nodes_port[1] + shard, STREAM)
            self._cluster_id = founded(Path(config["data_dir"]), config["shards"]).cluster_id
        except (HeldError, FoundingError, OSError) as error:
            return self._fail(str(error))
        self._catch_signals()
        while True:
            now = time.monotonic()
            for worker in self._workers:
                if not worker.is_running and not worker.is_over and not self._is_stopping and now >= worker.start_at:
                    self._start(worker)
            if now >= self._console.start_at and not self._is_stopping and self._console.start(now):
                self._selector.register(self._console.descriptor, selectors.EVENT_READ, self._console)
            if not any(worker.is_running for worker in self._workers):
                if self._is_stopping:
                    self._stop_console()
                    log.info("stopped")
                    return 0
                if all(worker.is_over for worker in self._workers):
                    self._stop_console()
                    self._say(f"failed {self._workers[0].fault}")
                    return 1
            self._wait()

    def _wait(self) -> None:
        """Until something happens, or it is time for something; do what that is."""
        now = time.monotonic()
        times = [worker.start_at for worker in self._workers if not worker.is_running and not worker.is_over]
        if self._console.start_at < math.inf:
            times.append(self._console.start_at)
        if self._is_stopping:
            times = [] if self._kill_at is None else [self._kill_at]
        if self._reload is not None:
            times.append(self._reload.until)
        ready = self._selector.select(max(min(times) - now, 0.0) if times else None)
        for key, _ in ready:
            if key.fileobj is self._signals[0]:
                self._handle_signals()
            elif key.data is self._console:
                self._selector.unregister(self._console.descriptor)
                self._console.ended(time.monotonic())
            else:
                self._hear(key.data)
        self._see_whether_reloaded()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            for worker in self._workers:
                if worker.is_running:
                    log.warning("%s did not stop in %.1f s and is killed; its log recovers", worker.name, STOP_S)
                    worker.kill()

    def _stop_console(self) -> None:
        if self._console.is_running:
            self._selector.unregister(self._console.descriptor)
            self._console.stop()

    def _fail(self, reason: str) -> int:
        log.critical("%s", reason)
        self._say(f"failed {reason}")
        return 1

    def _say(self, text: str) -> None:
        """Tell whoever waits for the node to come up, once."""
        if self._ready_fd is not None:
            try:
                os.write(self._ready_fd, text.encode())
                os.close(self._ready_fd)
            except OSError:
                log.debug("nobody waits for the node any more")
            self._ready_fd = None

    def _catch_signals(self) -> None:
        self._signals[0].setblocking(False)
        self._signals[1].setblocking(False)
        signal.set_wakeup_fd(self._signals[1].fileno(), warn_on_full_buffer=False)
        for number in TOLD:
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else, where whoever starts us ignores it, nobody's code is told
        self._selector.register(self._signals[0], selectors.EVENT_READ)

    def _start(self, worker: WorkerProcess) -> None:
        config = {**self._config.plain(), "cluster_id": self._cluster_id}
        spoken = {"json", *(one["protocol"] for one in self._config["listeners"])}
        control = worker.start(time.monotonic(), config, _worker_code(frozenset(spoken)))
        if control is None:
            self._say_why_not(worker.fault)
            self._tell_faults()
            return
        control.send({"faults": self._told_faults})
        self._selector.register(control.sock, selectors.EVENT_READ, worker)

    def _let_go(self) -> None:
        """Close what is the supervisor's alone, in a process that was forked from it.

        A worker with another's channel would keep it open when the supervisor is gone; with the pipe of whoever waits
        for the node, that one waits for ever. The node's lock stays: it is held as long as any process lives.
        """
        let_go_of_log()
        self._selector.close()
        for sock in self._signals:
            sock.close()
        for worker in self._workers:
            if worker.control is not None:
                worker.control.sock.close()
        if self._console.is_running:
            os.close(self._console.descriptor)
        if self._ready_fd is not None:
            os.close(self._ready_fd)

    def _hear(self, worker: WorkerProcess) -> None:
        """Take what a worker says, or note that it has ended."""
        control = worker.control
        assert control is not None
        messages = control.receive()
        for message in messages or ():
            worker.hear(message)
            if "reloaded" in message and self._reload is not None:
                self._reload.answered(worker.name, message["reloaded"], message["faults"])
            if "set" in message:
                self._set_until_restart(message["set"])
            if "ready" in message:
                self._see_whether_ready()
        if messages is None:
            self._selector.unregister(control.sock)
            if self._reload is not None:
                self._reload.gone(worker.name)
            ending = worker.ended(time.monotonic(), is_stopping=self._is_stopping)
            if worker.is_over and not self._is_stopping:
                self._see_whether_ready()
            else:
                self._say_why_not(ending)
        self._tell_faults()

    def _say_why_not(self, why: str) -> None:
        """Tell whoever has waited long for the node."""
        if time.monotonic() - self._begun_at > PATIENCE_S:
            self._say(f"trying {why}")

    def _see_whether_ready(self) -> None:
        """Ready is: every worker runs, or never will, and one does."""
        if not all(worker.ready or worker.is_over for worker in self._workers):
            return
        running = [worker for worker in self._workers if worker.ready]
        if not running:
            return
        config = self._config
        said = (
            running[0].ready
            if len(self._workers) == 1
            else "; ".join(
                f"shard {worker.shard}: {worker.ready or 'DOWN: ' + worker.fault}" for worker in self._workers
            )
        )
        log.info(
            "node %d ready on %s:%d (%s), %s, data in %s: %s",
            config["node_id"], config["host"], config["port"], "TLS" if config["tls"] else "TCP, UDP",
            quorate_compiled.running(), config["data_dir"], said,
        )  # fmt: skip
        self._say("ready")
        notify(NOTIFY_READY, f"node {config['node_id']} on {config['host']}:{config['port']}")

    def _tell_faults(self) -> None:
        """Every worker is to know which of the others do not run, so that any of them can say it."""
        faults = {worker.shard: worker.fault for worker in self._workers if worker.fault}
        if faults == self._told_faults:
            return
        self._told_faults = faults
        for worker in self._workers:
            if worker.control is not None:
                worker.control.send({"faults": faults})

    def _handle_signals(self) -> None:
        for number in self._signals[0].recv(64):
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stop()
            elif number == signal.SIGHUP:
                self._begin_reload()

    def _stop(self) -> None:
        if self._is_stopping:
            return
        log.info("stopping")
        notify(NOTIFY_STOPPING)
        self._is_stopping = True
        self._kill_at = time.monotonic() + STOP_S
        for worker in self._workers:
            if worker.control is not None:
                worker.control.send({"stop": True})

    def _begin_reload(self) -> None:
        notify(notify_reloading())
        said: list[str] = []
        is_taken = self._take_configuration(said)
        self._reloads += 1
        told: list[str] = []
        for worker in self._workers:
            if is_taken and worker.control is not None:
                worker.control.send({"reload": self._config.plain(), "serial": self._reloads})
                told.append(worker.name)
        self._reload = Reload(self._reloads, said, told, time.monotonic(), is_taken=is_taken)

    def _set_until_restart(self, values: dict[str, Any]) -> None:
        """Set for all workers, until the node starts again, what a client that may operate the node has set."""
        self._config.until_restart |= values
        log.info("a client has set %s, until the node starts again", values)
        for worker in self._workers:
            if worker.control is not None:
                worker.control.send({"reload": self._config.plain(), "serial": 0})

    def _see_whether_reloaded(self) -> None:
        """Whoever asked for a reload hears what came of it."""
        outcome = None if self._reload is None else self._reload.outcome(time.monotonic())
        if outcome is None:
            return
        self._reload = None
        notify(NOTIFY_READY)
        if outcome.without:
            log.warning("%s", "; ".join(outcome.said[-len(outcome.without) :]))
        try:
            note_reload(Path(self._config["data_dir"]), outcome)
        except OSError as error:
            log.warning("what came of the reload can't be noted: %s", error)

    def _take_configuration(self, said: list[str]) -> bool:
        """Read the configuration again, and hand it on unless it has faults. Adds what is to be `said` of it."""
        try:
            new = self._load()
            new.until_restart = self._config.until_restart
            live, fixed = self._config.changes(new)
            for name in fixed:
                said.append(f"{name} was changed; that takes a restart")
                log.warning("%s", said[-1])
                new.values[name] = self._config.values[name]
            faults: list[str] = []
            configuration.check_together(new, faults)
            faults += load_security(new)[1]  # of what holds together, not of what was asked for
            if faults:
                raise ConfigError(faults)
        except ConfigError as error:
            said[:] = ["the configuration stays as it was, since the new one has faults:", *error.faults]
            log.error("%s", "\n".join(said))
            return False
        new.contents = contents_of(new)
        read = [name for name, content in new.contents.items() if content != self._config.contents.get(name)]
        self._config = new
        logging.getLogger("quorate").setLevel(new["log_level"].upper())
        said.append(f"configuration read again; changed: {', '.join(live) or 'nothing'}")
        for name, lost in LOST.items():
            if name in live and not new[name]:
                said.append(lost)
                log.warning("%s", lost)
        if read:
            said[0] += f"; read again, too: {', '.join(read)}"
        log.info("%s", said[-1])
        return True


def contents_of(config: NodeConfig) -> dict[str, bytes]:
    """Make a number for what each of the files holds that a reload reads again. One that can't be read has none."""
    found = {}
    for name in READ_AGAIN:
        with suppress(OSError):
            if config[name]:
                found[name] = hashlib.sha256(Path(config[name]).read_bytes()).digest()
    return found


@cache
def _worker_code(protocols: frozenset[str]) -> Callable[[socket.socket], int]:
    """Import what workers run: once for all of them, and behind what tells at once why a node can't start.

    All of ours: what a worker imported itself would be of another version where one was installed meanwhile. No
    collector looks at it any more, which would give each worker a copy of the pages that they share.
    """
    from actors.node.worker import run

    for protocol in protocols:
        PROTOCOLS[protocol].sessions()
    gc.freeze()
    return run


def _check_port(host: str, port: int, kinds: tuple[socket.SocketKind, ...]) -> None:
    """Raise OSError if anyone listens there: our workers share the port, so they would not notice another node."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for kind in kinds:
        with socket.socket(family, kind) as sock:
            if kind == socket.SOCK_STREAM:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                when_free(partial(sock.bind, (host, port)))
            except OSError as error:
                raise OSError(error.errno, f"can't listen on {host}:{port}: {error.strerror}") from error


def _open_standard_files() -> None:
    """Give 0, 1 and 2 to nothing where whoever starts the node has closed them: else sockets and logs get them."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def main() -> None:
    """Run the node that the arguments describe. What it keeps is for its own user alone."""
    os.umask(0o077)
    _open_standard_files()
    try:
        supervisor = Supervisor(json.loads(sys.argv[1]))
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    sys.exit(supervisor.run())
