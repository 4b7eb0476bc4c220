"""Results of tasks, kept in a queue: for the result backends of the task queues.

One queue for each application. A result is a message with a key that nobody takes: it replaces the one before, expires,
and is dropped then. The queue gives nothing out, and lists leave it out unless asked.
"""

import hashlib
import logging
from typing import Any, Final

from quorate.client import Client
from quorate.errors import NotAllowedError, RefusedError
from quorate.messages import NEVER, Message, ShownMessage
from quorate.packing import packed, unpacked
from quorate.protocol import NAME_BYTES_MAX, ErrorWord

log = logging.getLogger("quorate.results")

EXPIRES_S: Final = 86_400.0
"""A result lives so long unless its framework says otherwise."""

UNMARKED: Final = (ErrorWord.FIELD, ErrorWord.NOT_SUPPORTED)
"""What nodes answer that do not know system queues yet."""


def key_of(key: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """Give the key under which a result is kept: the same, or a hash of one that is no key of so many bytes."""
    data = key.encode("utf-8", "surrogatepass")
    if 0 < len(data) <= bytes_max and key.isprintable():
        return key
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def ttl_of(expires: float | None) -> float:
    """Give the `ttl` of a result that expires after so many seconds; None and 0: never."""
    return expires or NEVER


def configure_system(client: Client, queue: str, **settings: Any) -> None:
    """Give the queue these settings, and have lists leave it out. Raises `QuorateError`.

    On nodes that know no system queues it gets the settings alone.
    """
    try:
        client.configure(queue, system=True, **settings)
    except RefusedError as refused:
        if refused.error not in UNMARKED:
            raise
        if settings:
            client.configure(queue, **settings)


def mark_system(client: Client, queue: str, **settings: Any) -> bool:
    """As `configure_system`, if this client has the right to: whether it has."""
    try:
        configure_system(client, queue, **settings)
    except NotAllowedError as refused:
        log.debug("%s is not marked as a system queue: %s", queue, refused.reason)
        return False
    return True


class Results:
    """The results in one queue of the node or cluster that `client` asks. Any thread may use it."""

    def __init__(self, client: Client, queue: str) -> None:
        self.client = client
        self.queue = queue
        self._is_marked = False

    def store(self, key: str, data: bytes, expires_s: float | None) -> None:
        """Keep `data` under the key, in place of what was there; returns when it is on disk."""
        self.store_value(key, packed(data), expires_s)

    def store_value(self, key: str, value: Any, expires_s: float | None) -> None:
        """As `store`, of a value that JSON can say."""
        self._mark()
        self.client.produce(
            self.queue, value, key=key_of(key), ttl=ttl_of(expires_s), expire="drop", on_duplicate="replace"
        )

    def _mark(self) -> None:
        if not self._is_marked:
            mark_system(self.client, self.queue, paused="out")
            self._is_marked = True

    def look(self, key: str, wait: float = 0.0, unless: Message | None = None) -> ShownMessage | None:
        """Return what is kept under the key, as soon as something is, or something else than `unless`; else None."""
        return self.client.result(self.queue, key_of(key), wait=wait, unless=unless)

    def get(self, key: str) -> bytes | None:
        """Return the data that are kept under the key."""
        found = self.look(key)
        return None if found is None else unpacked(found.data)

    def delete(self, key: str) -> None:
        """Remove what is kept under the key."""
        found = self.look(key)
        if found is not None:
            self.client.confirm(found.msg_id)
