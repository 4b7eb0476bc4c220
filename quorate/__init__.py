"""Quorate's client library: `from quorate import Client`.

with Client("127.0.0.1", 1111) as client:
    client.produce("mail", {"to": "ada"}, delay=10, retry=60)
    message = client.consume("mail", wait=30)
    if message is not None:
        client.confirm(message)
"""

from quorate.client import Client, Message, NewMessage
from quorate.errors import (
    ConnectionFailedError,
    ProtocolViolationError,
    QuorateError,
    RefusedError,
    UnknownOutcomeError,
)
from quorate.version import VERSION

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
