"""The Unix sockets between the workers of one node, in its data folder, which only the node's user can open.

A socket's path may have some hundred bytes at most, and a data folder's may have more: the folder is opened, and named
by its descriptor.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from net.peers.link import Connected
from net.peers.tcp import DIAL_S, PeerProtocol


class SocketFolder:
    """The folder of the sockets. Open for as long as its worker runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def path(self, shard: int, kind: str = "sock") -> str:
        """Where the worker of a shard listens, as short as the system needs it. `kind` "move": for connections."""
        name = f"shard-{shard}.{kind}"
        long = str(self._folder / name)
        return long if len(os.fsencode(long)) < 100 else f"/proc/self/fd/{self._fd}/{name}"


async def dial_worker(folder: SocketFolder, shard: int, connected: Connected, failed: Callable[[str], None]) -> None:
    """Open a stream to the worker of a shard; one of the two is called."""

    def protocol() -> PeerProtocol:
        return PeerProtocol(connected, is_trusted=True)

    loop = asyncio.get_running_loop()
    try:
        path = folder.path(shard)
        await asyncio.wait_for(loop.create_unix_connection(protocol, path), DIAL_S)
    except (OSError, TimeoutError) as error:
        failed(f"can't be reached: {error!r}")


async def listen_workers(folder: SocketFolder, shard: int, accepted: Connected) -> asyncio.Server:
    """Let the other workers in. What an earlier worker has left of its socket goes. Raises OSError."""
    path = folder.path(shard)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind(path)
    except BaseException:
        sock.close()
        raise
    os.chmod(path, 0o600)

    def protocol() -> PeerProtocol:
        return PeerProtocol(accepted, is_trusted=True)

    return await asyncio.get_running_loop().create_unix_server(protocol, sock=sock)
