"""The supervisor: a node's first process. Starts the worker, starts it again when it dies, reloads, stops in order.

Run by `qctl node start` as `python -m quorate_server supervisor ARGUMENTS`, a JSON object: `config` (a path or null),
`flags` and `ready_fd` (where to say "ready" or why not, or null). Small on purpose: it must not be what fails.

SIGTERM and SIGINT stop, SIGHUP reads the configuration again.
"""

import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from actors.node import config as configuration
from actors.node.config import ConfigError, NodeConfig
from actors.node.control import Control
from actors.node.logs import set_up_logging
from actors.node.node_lock import HeldError, NodeLock

log = logging.getLogger("quorate.node")

PATIENCE_S: Final = 10.0
"""Whoever waits for a node that has not come up by then is told why, while it goes on trying."""

SAME_TROUBLE: Final = 20
"""The same ending, again and again, is logged at the first time and then at each so many-th."""

STOP_S: Final = 4.5
"""A worker that has not stopped by then is killed; the promise is 5 s."""

BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
HEALTHY_S: Final = 30.0
"""A worker that ran this long begins with the shortest back-off again."""

EXIT_UNUSABLE: Final = 65


class Supervisor:
    """One node. `load` reads the configuration afresh."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._path = Path(arguments["config"]) if arguments.get("config") else None
        self._flags = arguments.get("flags") or {}
        self._ready_fd: int | None = arguments.get("ready_fd")
        self._config = self._load()
        self._lock = NodeLock(Path(self._config["data_dir"]))
        self._selector = selectors.DefaultSelector()
        self._signals, self._signal_end = socket.socketpair()
        self._worker: subprocess.Popen[bytes] | None = None
        self._control: Control | None = None
        self._started_at = 0.0
        self._backoff_s = BACKOFF_MIN_S
        self._is_stopping = False
        self._begun_at = time.monotonic()
        self._trouble = ""
        self._same_trouble = 0
        self._last_ending = ""

    def _load(self) -> NodeConfig:
        return configuration.load(self._path, flags=self._flags)

    def run(self) -> int:
        """Run the node; returns the exit code."""
        config = self._config
        set_up_logging(config)
        for warning in config.warnings:
            log.warning("%s", warning)
        about = {"pid": os.getpid(), "host": config["host"], "port": config["port"], "node_id": config["node_id"]}
        try:
            self._lock.take(about)
            _check_port(config["host"], config["port"])
            for one in config["listeners"]:
                _check_port(one["host"], one["port"])
            nodes_port = configuration.nodes_port(config)
            if nodes_port is not None:
                _check_port(*nodes_port, (socket.SOCK_STREAM,))
        except (HeldError, OSError) as error:
            return self._fail(str(error))
        self._catch_signals()
        while True:
            self._start_worker()
            code = self._watch()
            if self._is_stopping:
                log.info("stopped")
                return 0
            if code == EXIT_UNUSABLE:
                return 1
            if time.monotonic() - self._started_at > HEALTHY_S:
                self._backoff_s = BACKOFF_MIN_S
            self._note_ending(code)
            if not self._pause(self._backoff_s):
                return 0
            self._backoff_s = min(self._backoff_s * 2, BACKOFF_MAX_S)

    def _note_ending(self, code: int) -> None:
        """Log why the worker ended, not each time that it is the same; tell who waits, if it waits for long."""
        ending = f"{_ending(code)}{self._trouble and ': ' + self._trouble}"
        self._same_trouble = self._same_trouble + 1 if ending == self._last_ending else 0
        self._last_ending = ending
        if self._same_trouble % SAME_TROUBLE == 0:
            log.error("the worker ended with %s; starting it again in %.1f s", ending, self._backoff_s)
        if time.monotonic() - self._begun_at > PATIENCE_S:
            self._say(f"trying {ending}")

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
        self._signals.setblocking(False)
        self._signal_end.setblocking(False)
        signal.set_wakeup_fd(self._signal_end.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self._selector.register(self._signals, selectors.EVENT_READ)

    def _start_worker(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "quorate_server", "worker", str(theirs.fileno())]
        self._worker = subprocess.Popen(command, pass_fds=(theirs.fileno(), self._lock.fd), stdin=subprocess.DEVNULL)
        theirs.close()
        self._started_at = time.monotonic()
        self._control = Control(ours)
        self._control.send({"config": self._config.plain()})
        self._selector.register(ours, selectors.EVENT_READ)

    def _watch(self) -> int:
        """Serve signals and the worker until the worker has ended; returns its exit code."""
        assert self._control is not None
        assert self._worker is not None
        kill_at: float | None = None
        while True:
            timeout = None if kill_at is None else max(kill_at - time.monotonic(), 0.0)
            ready = self._selector.select(timeout)
            if kill_at is not None and time.monotonic() >= kill_at:
                log.warning("the worker did not stop in %.1f s and is killed; its log recovers", STOP_S)
                self._worker.kill()
                kill_at = None
            for key, _ in ready:
                if key.fileobj is self._signals:
                    self._handle_signals()
                    if self._is_stopping and kill_at is None:
                        kill_at = time.monotonic() + STOP_S
                        self._control.send({"stop": True})
                elif not self._hear():
                    self._selector.unregister(self._control.sock)
                    self._control.sock.close()
                    return self._wait(kill_at)

    def _wait(self, kill_at: float | None) -> int:
        """The worker has closed its channel: it ends now, or is made to."""
        assert self._worker is not None
        try:
            return self._worker.wait(STOP_S if kill_at is None else max(kill_at - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self._worker.kill()
            return self._worker.wait()

    def _hear(self) -> bool:
        """Take what the worker says; False when it has ended."""
        assert self._control is not None
        messages = self._control.receive()
        for message in messages or ():
            if "ready" in message:
                config = self._config
                log.info(
                    "node %d ready on %s:%d (TCP, UDP), data in %s: %s",
                    config["node_id"], config["host"], config["port"], config["data_dir"], message["ready"],
                )  # fmt: skip
                self._say("ready")
                self._trouble = ""
            elif "trouble" in message:
                self._trouble = message["trouble"]
            elif "failed" in message:
                self._say(f"failed {message['failed']}")
        return messages is not None

    def _handle_signals(self) -> None:
        for number in self._signals.recv(64):
            if number in (signal.SIGTERM, signal.SIGINT):
                if not self._is_stopping:
                    log.info("stopping")
                self._is_stopping = True
            elif number == signal.SIGHUP:
                self._reload()

    def _reload(self) -> None:
        try:
            new = self._load()
            live, fixed = self._config.changes(new)
            for name in fixed:
                log.warning("%s was changed; that takes a restart", name)
                new.values[name] = self._config.values[name]
            faults: list[str] = []
            configuration.check_together(new, faults)
            if faults:
                raise ConfigError(faults)
        except ConfigError as error:
            log.error("the configuration stays as it was, since the new one has faults:\n%s", error)
            return
        self._config = new
        logging.getLogger("quorate").setLevel(new["log_level"].upper())
        log.info("configuration read again; changed: %s", ", ".join(live) or "nothing")
        if self._control is not None:
            self._control.send({"reload": new.plain()})

    def _pause(self, seconds: float) -> bool:
        """Wait; False if a stop was asked for meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._is_stopping:
            if self._selector.select(left):
                self._handle_signals()
        return not self._is_stopping


def _check_port(
    host: str, port: int, kinds: tuple[socket.SocketKind, ...] = (socket.SOCK_STREAM, socket.SOCK_DGRAM)
) -> None:
    """Raise OSError if anyone listens there: our workers share the port, so they would not notice another node."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for kind in kinds:
        with socket.socket(family, kind) as sock:
            if kind == socket.SOCK_STREAM:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((host, port))
            except OSError as error:
                raise OSError(error.errno, f"can't listen on {host}:{port}: {error.strerror}") from error


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def main() -> None:
    """Run the node that the arguments describe. What it keeps is for its own user alone."""
    os.umask(0o077)
    try:
        supervisor = Supervisor(json.loads(sys.argv[1]))
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    sys.exit(supervisor.run())
