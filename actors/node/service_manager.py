"""What the node tells the service manager that started it (systemd's `Type=notify-reload`, by sd_notify(3))."""

import logging
import os
import socket
import time

log = logging.getLogger("quorate.node")

READY = "READY=1"
STOPPING = "STOPPING=1"


def reloading() -> str:
    """Say that a reload begins; READY ends it."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def tell(state: str, status: str = "") -> None:
    """Send `state` to the socket that NOTIFY_SOCKET names, with a `status` for people; nothing if there is none.

    A manager that does not listen is its own fault, and told in the log alone.
    """
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    text = f"{state}\nSTATUS={status}" if status else state
    address = "\0" + where[1:] if where.startswith("@") else where
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            sock.sendto(text.encode(), address)
    except OSError as error:
        log.warning("the service manager at %s can't be told %r: %s", where, state.splitlines()[0], error.strerror)
