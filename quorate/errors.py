"""What the client library raises; every error carries the reply's fixed word and the sentence for a person."""

from typing import Final

from quorate.protocol import ErrorWord

CLOSED: Final = "the client was closed"
"""What is said of a request that comes after `close`."""


class QuorateError(Exception):
    """Base of all that the client library raises."""


class ConnectionFailedError(QuorateError):
    """No node could be reached, or the one that was went away. `outcome_unknown`: see `UnknownOutcomeError`."""

    outcome_unknown = False


class UnknownOutcomeError(ConnectionFailedError):
    """The request may have been done or not: its answer is lost, or the node that did it could not say.

    Raised only for what can't safely be asked again; `reply` is the node's, None if the connection broke.
    """

    outcome_unknown = True

    def __init__(self, reason: str, reply: dict[str, object] | None = None) -> None:
        super().__init__(reason)
        self.reply = reply

    def __reduce__(self) -> tuple[type["UnknownOutcomeError"], tuple[object, ...]]:
        """With the reply: a process pool sends what its workers raise."""
        return type(self), (*self.args, self.reply)


class RefusedError(QuorateError):
    """The node answered with an error: `error` is the fixed word, `reason` the sentence, `reply` all of it."""

    def __init__(self, error: str, reason: str, reply: dict[str, object]) -> None:
        super().__init__(f"{error}: {reason}")
        self.error = error
        self.reason = reason
        self.reply = reply

    def __reduce__(self) -> tuple[type["RefusedError"], tuple[object, ...]]:
        """With all three: a process pool sends what its workers raise."""
        return type(self), (self.error, self.reason, self.reply)


class DuplicateKeyError(RefusedError):
    """A live message of the queue has the key; `msg_id` is its id."""

    @property
    def msg_id(self) -> int:
        """Of the message that has the key."""
        msg_id = self.reply.get("msg_id")
        return msg_id if isinstance(msg_id, int) else 0


class QueueFullError(RefusedError):
    """The queue holds as many messages as it may (`max_size`)."""


class NotAllowedError(RefusedError):
    """The client lacks a right, or the node does not know its token."""


class TooLargeError(RefusedError):
    """The request or its message has more bytes than the node takes."""


class NotInFlightError(RefusedError):
    """The message is not there, not in flight, or in flight for another consumer by now."""


class UnavailableError(RefusedError):
    """No node led for as long as the request could wait, or the node takes no more for now: later it may be done."""


REFUSALS: Final[dict[str, type[RefusedError]]] = {
    ErrorWord.DUPLICATE_KEY: DuplicateKeyError,
    ErrorWord.QUEUE_FULL: QueueFullError,
    ErrorWord.NOT_ALLOWED: NotAllowedError,
    ErrorWord.NOT_AUTHENTICATED: NotAllowedError,
    ErrorWord.TOO_LARGE: TooLargeError,
    ErrorWord.NOT_IN_FLIGHT: NotInFlightError,
    ErrorWord.NO_SUCH_MESSAGE: NotInFlightError,
    ErrorWord.NO_LEADER: UnavailableError,
    ErrorWord.STOPPING: UnavailableError,
    ErrorWord.OVERLOADED: UnavailableError,
}


HOPELESS: Final = (ErrorWord.FIELD, ErrorWord.NOT_ALLOWED, ErrorWord.NOT_AUTHENTICATED)
"""What is refused so is refused again, however often it is tried."""


def refused(reply: dict[str, object]) -> RefusedError:
    """Make what a reply that is an error is raised as."""
    error = str(reply.get("error", ""))
    return REFUSALS.get(error, RefusedError)(error, str(reply.get("reason", "")), reply)


class ProtocolViolationError(QuorateError):
    """What came back is not a reply of the protocol."""
