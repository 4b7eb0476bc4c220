"""Taking in connections a few at a time: a flood of them is a loop's turn of many short steps, not one long one.

All ports take their connections so: clients' and nodes', with TLS and without. asyncio's own servers accept as many as
wait in one go, hundreds of them, and have one TLS context for ever.
"""

import asyncio
import contextlib
import logging
import math
import socket
import struct
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

log = logging.getLogger("quorate.clients")

ACCEPTED_IN_ONE_TURN: Final = 2
"""So many are taken before the loop's others have their turn: each takes some 0.1 ms before it is served."""

QUICK_S: Final = 0.0005
"""Where somebody came no longer ago and there is no flood, one is taken: a second is hardly ever there, and to ask for
it costs a fifth of taking one. It is there where the loop has long turns."""

PER_S: Final = 1000.0
BURST: Final = 100.0
"""So many a second, and at once. The rest wait in the system, or come again."""

CROWD_BURST: Final = 4.0
"""So many at once where a crowd is served: more of it comes in evenly."""

ALL: Final = math.inf
"""All may come, as soon as they do."""

PAUSE_S: Final = 0.004
"""How long none is taken when as many have come as may: until a burst may come again."""

BACKLOG: Final = 256
WAITING_MAX: Final = 1024
"""So many at most are taken in when a port is closed: what the largest backlog holds."""

REST_S: Final = 0.5
"""Without a descriptor for one more, none is taken for so long."""

_AT_ONCE_GONE: Final = struct.pack("ii", 1, 0)


class Acceptor:
    """Takes connections on a bound socket, which it listens on and closes in the end. `came` has the socket from then.

    The address is the other end's host, "" where it has none. `at_once` gives how many may come at one moment, asked
    at each: `CROWD_BURST`, `BURST`, or `ALL`, which may also be more than `PER_S`. The options that `sock` has are
    those of each that comes (tcp(7): the system hands them on).
    """

    def __init__(
        self,
        sock: socket.socket,
        came: Callable[[socket.socket, str], None],
        backlog: int = BACKLOG,
        at_once: Callable[[], float] = lambda: CROWD_BURST,
    ) -> None:
        self._sock = sock
        self._came = came
        self._at_once = at_once
        self._is_closed = False
        self._left = CROWD_BURST
        self._at = time.monotonic()
        self._loop = asyncio.get_running_loop()
        sock.listen(backlog)
        self._loop.add_reader(sock.fileno(), self._readable)

    def close(self) -> None:
        """Take no more; who waits is cut off."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def finish(self) -> None:
        """Take those who wait already, and no more."""
        waiting = [] if self._is_closed else take_waiting(self._sock)
        self.close()  # at once: whoever connects meanwhile is cut off
        for sock, address in waiting:
            self._came(sock, address)

    def _readable(self) -> None:
        now = time.monotonic()
        at_once = self._at_once()
        is_quick = now - self._at < QUICK_S
        self._left = min(self._left + (now - self._at) * PER_S, at_once) if at_once < ALL else ALL
        self._at = now
        for _ in range(1 if is_quick and self._left >= BURST / 2 else ACCEPTED_IN_ONE_TURN):
            if self._is_closed:
                return
            if self._left < 1:
                self._rest(PAUSE_S)
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no connection can be taken in: %s", error)
                self._rest(REST_S)
                return
            self._left -= 1
            sock.setblocking(False)
            self._came(sock, _host_of(address))

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._sock.fileno(), self._readable)


class Entering:
    """Does `taking`, which takes in `sock`, from now on, and without a task: its first step is done at once, and it has
    one more. `ended` is called behind the last. What the system refuses closes the socket; what else is raised goes to
    the loop's exception handler, and no further.
    """

    __slots__ = ("_ended", "_sock", "_taking")

    def __init__(self, taking: Coroutine[Any, Any, object], sock: socket.socket, ended: Callable[[], None]) -> None:
        self._taking = taking
        self._sock = sock
        self._ended = ended
        self._go_on(None)

    def _go_on(self, waited_for: object) -> None:
        try:
            future = self._taking.send(None)
        except StopIteration:
            self._ended()
        except OSError:
            self._sock.close()
            self._ended()
        except Exception as error:
            self._ended()
            asyncio.get_running_loop().call_exception_handler({"message": "taking a client in", "exception": error})
        else:
            future.add_done_callback(self._go_on)


class Intake:
    """Connections that are being taken in: `most` in all, `each` of one address; an older one makes room for the next.

    Whoever means it needs no time for that. One that had to make room is closed.
    """

    def __init__(self, most: int, each: int | None = None) -> None:
        self._most = most
        self._each = most if each is None else each
        self._loop = asyncio.get_running_loop()
        self._taking: dict[asyncio.Task[None], str] = {}

    def __len__(self) -> int:
        return len(self._taking)

    def begin(self, sock: socket.socket, address: str, taking: Coroutine[Any, Any, None]) -> None:
        """Take in `sock` of that address by doing `taking`."""
        mine = [] if self._each == self._most else [task for task, its in self._taking.items() if its == address]
        if len(mine) >= self._each or len(self._taking) >= self._most:
            oldest = (mine or list(self._taking))[0]
            del self._taking[oldest]
            oldest.cancel()
        task = self._loop.create_task(taking)
        self._taking[task] = address
        task.add_done_callback(partial(self._ended, sock))

    def _ended(self, sock: socket.socket, task: "asyncio.Task[None]") -> None:
        self._taking.pop(task, None)
        if task.cancelled():
            sock.close()


def take_waiting(listening: socket.socket) -> list[tuple[socket.socket, str]]:
    """Those who wait to be taken in, and their hosts: the system would cut them off when `listening` is closed."""
    taken: list[tuple[socket.socket, str]] = []
    while len(taken) < WAITING_MAX:
        try:
            sock, address = listening.accept()
        except OSError:  # nobody waits any more, or there is no descriptor for him
            break
        sock.setblocking(False)
        taken.append((sock, _host_of(address)))
    return taken


def _host_of(address: object) -> str:
    return str(address[0]) if isinstance(address, tuple) else ""


def turn_away(sock: socket.socket) -> None:
    """Close a connection so that nothing is left of it in the system, either."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE_GONE)
    sock.close()
