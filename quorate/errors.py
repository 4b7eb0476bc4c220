"""What the client library raises; every error carries the reply's fixed word and the sentence for a person."""


class QuorateError(Exception):
    """Base of all that the client library raises."""


class ConnectionFailedError(QuorateError):
    """The node could not be reached, or went away; `outcome_unknown` says whether a request may have been done."""

    def __init__(self, reason: str, *, outcome_unknown: bool) -> None:
        super().__init__(reason)
        self.outcome_unknown = outcome_unknown


class RefusedError(QuorateError):
    """The node answered with an error: `error` is the fixed word, `reason` the sentence, `reply` all of it."""

    def __init__(self, error: str, reason: str, reply: dict[str, object]) -> None:
        super().__init__(f"{error}: {reason}")
        self.error = error
        self.reason = reason
        self.reply = reply


class ProtocolViolationError(QuorateError):
    """What came back is not a reply of the protocol."""
