"""How a task queue rejects a message: to its queue's dead letters, also where these are not set yet, or may not be."""

import logging
from contextlib import suppress
from typing import Final

from quorate.client import Client
from quorate.errors import DuplicateKeyError, NotInFlightError, RefusedError, UnavailableError
from quorate.hands import Backoff
from quorate.messages import Message, reason_of
from quorate.protocol import NAME_BYTES_MAX, ErrorWord
from quorate.shards import has_tag

log = logging.getLogger("quorate")

NAME_MAX: Final = 60
"""Characters of a queue's name that are kept where it would be too long with its ending: 240 bytes at most."""

DEAD: Final = ".XQ"
"""The ending of a dead letter queue's name where no other is usual."""

LAPSES_MAX: Final = 10
"""A message is dead when so many of its deliveries have lapsed, unless a worker is told otherwise."""


def dead_letters_of(queue: str, ending: str = DEAD) -> str:
    """Make the name of a queue's dead letter queue: in the same shard, by what stands in braces, where that can be
    said."""
    name = f"{queue}{ending}" if has_tag(queue) else f"{{{queue}}}{ending}"
    return name if len(name.encode()) <= NAME_BYTES_MAX else f"{queue[:NAME_MAX]}{ending}"


def lapsed(message: Message, lapses_max: int | None) -> str | None:
    """Say why a message is not to be worked on any more; None: it is.

    Who works on it is killed by it, or so busy that it can't extend its lease, and it would be so for ever. What was
    given back is not counted, so that no stop of a worker is held against a message that it had fetched.
    """
    if lapses_max is None or message.lapses < lapses_max:
        return None
    return (
        f"{message.lapses} of its deliveries have lapsed: its worker ended, could not extend its lease of "
        f"{message.retry:g} s, or wanted it run again"
    )


def check_lapses(lapses_max: int | None) -> int | None:
    """Check how many deliveries may lapse. Raises ValueError."""
    if lapses_max is not None and (isinstance(lapses_max, bool) or not isinstance(lapses_max, int) or lapses_max < 1):
        raise ValueError(f"max_lapses is {lapses_max!r}: 1 or more, or None for no limit")
    return lapses_max


def have_dead_letters(client: Client, queue: str, ending: str = DEAD) -> None:
    """Give the queue a dead letter queue, if it has none. Raises `QuorateError`."""
    try:
        if client.settings(queue).dead_letter is not None:
            return
    except RefusedError as refused:
        if refused.error != ErrorWord.NO_SUCH_QUEUE:
            raise
    client.configure(queue, dead_letter=dead_letters_of(queue, ending))


def reject(client: Client, message: Message, reason: object, dead_letter: str | None) -> int:
    """Bury the message, in `dead_letter` if its queue has no dead letter queue; one that is another's is left alone: 0.
    `dead_letter` None: it is dropped then.

    Where that may not be set, or lies in another shard, the message is copied there and confirmed. Where not even a
    copy is taken it is given back, and rests. Raises `ConnectionFailedError` and `UnavailableError`: it may be asked
    again, and comes again when its lease ends.
    """
    try:
        return _bury(client, message, reason, dead_letter)
    except UnavailableError:
        raise
    except NotInFlightError:
        return 0  # its lease was over: it comes again, or somebody else has it
    except RefusedError as error:
        if dead_letter is None:
            raise
        log.debug("message %d is copied to %s, not moved: %s", message.msg_id, dead_letter, error)
        return _copy(client, message, reason, dead_letter)


def _bury(client: Client, message: Message, reason: object, dead_letter: str | None) -> int:
    try:
        return client.bury(message, reason_of(reason))
    except RefusedError as error:
        if error.error != ErrorWord.FIELD:
            raise
        if dead_letter is None:
            log.warning("message %d of %s is dropped: %s", message.msg_id, message.queue, reason)
            return client.confirm(message)
        client.configure(message.queue, dead_letter=dead_letter)
        return client.bury(message, reason_of(reason))


def _copy(client: Client, message: Message, reason: object, dead_letter: str) -> int:
    """Its key lets it stand there once, however often that is asked."""
    try:
        headers = {**message.headers, "reason": reason_of(reason) or ""}
        client.produce(dead_letter, message.data, headers=headers, key=f"rejected.{message.msg_id}")
    except DuplicateKeyError:
        pass
    except UnavailableError:
        raise
    except (RefusedError, TypeError, ValueError) as error:  # the latter: of more headers or levels than may be said
        rest(client, message, error)
        return 1
    return client.confirm(message)


def rest(client: Client, message: Message, why: object, *, nack: bool | None = None) -> None:
    """Give a message back for which nothing else can be done now: longer each time that it came.

    With `nack` False that delivery counts as one that has lapsed.
    """
    rest_s = Backoff().rest_s(message.deliveries_here)
    log.error("message %d of %s rests for %.1f s: %s", message.msg_id, message.queue, rest_s, why)
    with suppress(NotInFlightError):  # it is another's by now
        client.release(message, delay=rest_s, nack=nack)
