"""Mailbox: where messages of some kinds may be put. What each actor takes is in `actors.messages.mailboxes`."""

from typing import Protocol, TypeVar

M = TypeVar("M", contravariant=True)


class Mailbox(Protocol[M]):
    """An actor's reference, as those see it who send it messages; to a machine it is a key, and no more."""

    def tell(self, message: M) -> None:
        """Put a message there. Raises `pykka.ActorDeadError` if the actor has stopped."""
