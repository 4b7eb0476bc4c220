"""Quorate's client library: `from quorate import Client`.

with Client("127.0.0.1", 1111) as client:
    client.produce("mail", {"to": "ada"}, delay=10)
    message = client.consume("mail", wait=30)
    if message is not None:
        client.confirm(message)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quorate.errors import (
    ConnectionFailedError,
    DuplicateKeyError,
    NotAllowedError,
    NotInFlightError,
    ProtocolViolationError,
    QueueFullError,
    QuorateError,
    RefusedError,
    TooLargeError,
    UnavailableError,
    UnknownOutcomeError,
)
from quorate.version import VERSION

if TYPE_CHECKING:
    from quorate.async_client import AsyncClient, AsyncMessage
    from quorate.client import Client, DeliveredMessage
    from quorate.interrupt import Interrupt
    from quorate.messages import NEVER, Key, Message, Moved, NewMessage, Produced, ShownMessage
    from quorate.queue_replies import QueueRow, QueueSettings
    from quorate.streams import Appended, NewTopicMessage, TopicMessage
    from quorate.topic_reader import TopicReader
    from quorate.topic_worker import TopicWorker
    from quorate.transaction import AsyncTransaction, Planned, Transaction
    from quorate.worker import Reject, Retry, Worker

__version__ = VERSION
_MODULES = (
    "actions",
    "client",
    "connection",
    "credentials",
    "payload",
    "pool",
    "protocol",
    "shard_map",
)
"""What the client is made of."""

_HOME = {
    "Appended": "streams",
    "NewTopicMessage": "streams",
    "TopicMessage": "streams",
    "TopicReader": "topic_reader",
    "TopicWorker": "topic_worker",
    "AsyncTransaction": "transaction",
    "Planned": "transaction",
    "Transaction": "transaction",
    "AsyncClient": "async_client",
    "AsyncMessage": "async_client",
    "Client": "client",
    "DeliveredMessage": "client",
    "Interrupt": "interrupt",
    "Key": "messages",
    "NEVER": "messages",
    "Message": "messages",
    "Moved": "messages",
    "NewMessage": "messages",
    "Produced": "messages",
    "QueueRow": "queue_replies",
    "QueueSettings": "queue_replies",
    "Reject": "worker",
    "Retry": "worker",
    "ShownMessage": "messages",
    "Worker": "worker",
}
"""Where what is not read at once comes from."""

__all__ = [
    "NEVER",
    "Appended",
    "AsyncClient",
    "AsyncMessage",
    "AsyncTransaction",
    "Client",
    "ConnectionFailedError",
    "DeliveredMessage",
    "DuplicateKeyError",
    "Interrupt",
    "Key",
    "Message",
    "Moved",
    "NewMessage",
    "NewTopicMessage",
    "NotAllowedError",
    "NotInFlightError",
    "Planned",
    "Produced",
    "ProtocolViolationError",
    "QueueFullError",
    "QueueRow",
    "QueueSettings",
    "QuorateError",
    "RefusedError",
    "Reject",
    "Retry",
    "ShownMessage",
    "TooLargeError",
    "TopicMessage",
    "TopicReader",
    "TopicWorker",
    "Transaction",
    "UnavailableError",
    "UnknownOutcomeError",
    "Worker",
]


if not TYPE_CHECKING:  # or no wrong name would be found by those who check types

    def __getattr__(name: str) -> Any:
        """Read the client's own modules when they are asked for: a server needs but the protocol's."""
        if name in _HOME:
            value = globals()[name] = getattr(import_module(f"quorate.{_HOME[name]}"), name)
            return value
        if name in _MODULES:
            return import_module(f"quorate.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """With what is not read yet."""
        return sorted({*globals(), *__all__, *_MODULES})
