"""The connections of a client: those that are idle are kept for the next request, to the node that is asked now."""

import threading
from typing import Final

from quorate.after_fork import forget_after_fork
from quorate.connection import Connection
from quorate.credentials import NOTHING, Credentials
from quorate.errors import QuorateError
from quorate.lost import Lost, NotLetInError
from quorate.nodes import Address, Nodes

IDLE_MAX: Final = 16
"""Connections that are kept open for the next requests."""


class Pool:
    """Connections to one of `nodes` at a time. Any thread may use it."""

    def __init__(self, nodes: Nodes, credentials: Credentials = NOTHING) -> None:
        self._credentials = credentials
        self._nodes = nodes
        self._idle: list[Connection] = []
        self.is_closed = False
        self._lock = threading.Lock()
        forget_after_fork(self)

    def after_fork(self) -> None:
        """In a child: the connections are its parent's, which goes on with them. They are closed here, not there."""
        self._lock = threading.Lock()
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close those that are idle, and the others when they are given back."""
        self.is_closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close those that are idle; the next request opens one again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def take(self, address: Address) -> Connection | None:
        """One to that node that is idle; None: there is none."""
        while True:
            with self._lock:
                idle = self._idle
                if idle and idle[-1].address == address:  # nearly always
                    connection = idle.pop()
                else:
                    found = next((one for one in reversed(idle) if one.address == address), None)
                    if found is None:
                        return None
                    connection = found
                    idle.remove(connection)
            if not connection.is_stale:
                return connection
            connection.close()

    def connect(self, address: Address, timeout_s: float) -> Connection:
        """Open a new one to that node. Raises `Lost` when it can't be reached, `NotLetInError`."""
        try:
            return Connection(address, timeout_s, self._credentials)
        except Lost:
            self._nodes.ask_elsewhere(address)
            raise
        except QuorateError as error:
            self._nodes.ask_elsewhere(address)
            raise NotLetInError(error) from error

    def give_back(self, connection: Connection) -> None:
        """Take back a connection on which nothing is expected any more."""
        with self._lock:
            unused: Connection | None = connection
            if not self.is_closed:
                self._idle.append(connection)
                unused = self._idle.pop(0) if len(self._idle) > IDLE_MAX else None
        if unused is not None:
            unused.close()
