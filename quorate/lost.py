"""What the library's parts tell each other of a try that failed; none of it leaves the library."""

from quorate.errors import QuorateError


class Lost(Exception):  # noqa: N818  # it never leaves the library
    """The connection broke; `was_sent`: the request, or a part of it, may have arrived."""

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class NotLetInError(Exception):
    """A node does not let this client in, or is not to be believed; `why` is what its user is told if none does."""

    def __init__(self, why: QuorateError) -> None:
        super().__init__(str(why))
        self.why = why
