"""Quorate's client library: `from quorate import Client`.

with Client("127.0.0.1", 1111) as client:
    client.produce("mail", {"to": "ada"}, delay=10, retry=60)
    message = client.consume("mail", wait=30)
    if message is not None:
        client.confirm(message)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quorate.errors import (
    ConnectionFailedError,
    ProtocolViolationError,
    QuorateError,
    RefusedError,
    UnknownOutcomeError,
)
from quorate.version import VERSION

if TYPE_CHECKING:
    from quorate.client import Client, Message, NewMessage

__version__ = VERSION
__all__ = [
    "Client",
    "ConnectionFailedError",
    "Message",
    "NewMessage",
    "ProtocolViolationError",
    "QuorateError",
    "RefusedError",
    "UnknownOutcomeError",
]


def __getattr__(name: str) -> Any:
    """The client's own module is read when it is asked for: a server needs the protocol's alone, and starts sooner."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module("quorate.client"), name)
    return value
