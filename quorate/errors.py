"""What the client library raises; every error carries the reply's fixed word and the sentence for a person."""


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


class ProtocolViolationError(QuorateError):
    """What came back is not a reply of the protocol."""
