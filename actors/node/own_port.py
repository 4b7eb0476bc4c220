"""The port at which clients that know the map reach one worker alone: as it is set, else chosen once and kept.

Firewalls, containers' rules and the maps that clients hold stay true over a restart. A port that a killed node gives
up is waited for: it does that a moment after it gives up the lock of its folder.
"""

import errno
import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from actors.node.config import NodeConfig
from net.sockets import listening_socket
from storage.real_disk import write_whole

T = TypeVar("T")

GOING_S: Final = 0.5
"""Who has a port for longer than that is somebody else."""

log = logging.getLogger("quorate.worker")

NAME: Final = "clients.port"
"""In the shard's folder: the port that was chosen."""

PORT_MAX: Final = 65_535


def when_free(bind: Callable[[], T]) -> T:
    """Bind it, again and again while somebody has it. Raises OSError."""
    until = time.monotonic() + GOING_S
    while True:
        try:
            return bind()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
        time.sleep(GOING_S / 50)


def own_port(config: NodeConfig, shard: int) -> socket.socket | None:
    """Bind the socket of the worker of that shard; None where it is the node's only one. Raises OSError."""
    if config["shards"] == 1:
        return None
    if config["shard_port"]:
        return _bound(config, config["shard_port"] + shard)
    path = Path(config["data_dir"]) / f"shard-{shard}" / NAME
    kept = _kept(path)
    if kept:
        try:
            return _bound(config, kept)
        except OSError as error:
            log.warning("port %d, which clients that know the map had, can't be had again: %s", kept, error.strerror)
    sock = _bound(config, 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{sock.getsockname()[1]}\n")
    except OSError as error:
        log.warning("the port that was chosen for clients that know the map can't be noted: %s", error)
    return sock


def _bound(config: NodeConfig, port: int) -> socket.socket:
    return when_free(partial(listening_socket, config["host"], port, socket.SOCK_STREAM, shares=False))


def _kept(path: Path) -> int:
    """Read the port that was chosen before; 0 if there is none, or what stands there is none."""
    try:
        with path.open("rb") as file:
            said = file.read(16)
    except OSError:
        return 0
    number = int(said) if said.strip().isdigit() else 0
    return number if number <= PORT_MAX else 0
