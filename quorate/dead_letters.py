"""How a task queue rejects a message: to its queue's dead letters, also where these are not set yet, or may not be."""

from typing import Final

from quorate.client import Client
from quorate.errors import NotInFlightError, RefusedError, UnavailableError
from quorate.messages import Message, reason_of
from quorate.protocol import NAME_BYTES_MAX, ErrorWord
from quorate.shards import has_tag

NAME_MAX: Final = 60
"""Characters of a queue's name that are kept where it would be too long with its ending: 240 bytes at most."""


def dead_letters_of(queue: str, ending: str) -> str:
    """Make the name of a queue's dead letter queue: in the same shard, by what stands in braces, where that can be
    said."""
    name = f"{queue}{ending}" if has_tag(queue) else f"{{{queue}}}{ending}"
    return name if len(name.encode()) <= NAME_BYTES_MAX else f"{queue[:NAME_MAX]}{ending}"


def reject(client: Client, message: Message, reason: str, dead_letter: str) -> None:
    """Bury the message, in `dead_letter` if its queue has no dead letter queue; one that is another's is left alone.

    Where that may not be set, or lies in another shard, the message is copied there and confirmed: a crash in between
    doubles it. Raises `ConnectionFailedError` and `UnavailableError`, and `RefusedError` where not even a copy is
    taken: then it comes again when its lease ends.
    """
    try:
        _bury(client, message, reason, dead_letter)
    except UnavailableError:
        raise
    except NotInFlightError:
        pass  # its lease was over: it comes again, or somebody else has it
    except RefusedError:
        headers = {**message.headers, "reason": reason_of(reason) or ""}
        client.produce(dead_letter, message.data, headers=headers)
        client.confirm(message)


def _bury(client: Client, message: Message, reason: str, dead_letter: str) -> None:
    try:
        client.bury(message, reason)
    except RefusedError as error:
        if error.error != ErrorWord.FIELD:
            raise
        client.configure(message.queue, dead_letter=dead_letter)
        client.bury(message, reason)
