"""How long a client may say nothing, or read nothing. A machine; its times are seconds.

It is asked at every sweep, some seconds apart, with what has passed since the last: a limit is kept to within that.
"""

from typing import Final

from net.clients.connection_contract import ConnectionLimits
from quorate.protocol import ErrorWord, Reply

LINGER_S: Final = 3.0
"""For so long bytes are read and dropped: to close with some unread would throw away the refusal that was just sent."""

OWED_S: Final = 10.0
"""A client that is refused as a whole is answered for so long what it has asked before."""

LINGER_BYTES_MAX: Final = 128 << 20


class Patience:
    """With one client. `was_heard`: it has sent something since the last sweep.

    `farewell`: why it is refused as a whole, to be sent behind all that it is owed.
    """

    __slots__ = ("_dropped", "_limits", "_owed_s", "_owes_s", "_quiet_s", "farewell", "was_heard")

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.was_heard = True
        self._quiet_s = 0.0
        self._owes_s = 0.0
        self._dropped = 0
        self._owed_s = 0.0
        self.farewell: Reply | None = None

    def is_unanswered_long(self, passed_s: float) -> bool:
        """Whether a client that is refused was not answered in time: what it asked may have been done, or not."""
        farewell = self.farewell
        if farewell is None:
            return False
        self._owed_s += passed_s
        if self._owed_s < OWED_S:
            return False
        reason = f"{farewell.reason}; what is not answered may have been done, or not"
        self.farewell = Reply(action=0, code=farewell.code, error=ErrorWord.UNKNOWN_OUTCOME, reason=reason)
        return True

    def begin(self) -> None:
        """Count the time from here on: it has asked something, or reads again."""
        self._quiet_s = 0.0

    def drops(self, size: int) -> bool:
        """So many bytes more come that nobody looks at: whether that is too much."""
        self._dropped += size
        return self._dropped > LINGER_BYTES_MAX

    def has_lingered(self, passed_s: float) -> bool:
        """Whether a client that was told all has had the time to notice it."""
        self._quiet_s += passed_s
        return self._quiet_s > LINGER_S

    def owes_long(self, passed_s: float, unsent: int, before: int) -> bool:
        """Whether it has read nothing for too long of what it was answered: bytes that it has not read, now and at the
        sweep before.

        It has read if there are less now; one that asks on meanwhile, so that more comes than it reads, is stalled
        before long, and then less comes.
        """
        self._owes_s = self._owes_s + passed_s if unsent and unsent >= before else 0.0
        return self._owes_s > self._limits.stalled_s_max

    def is_stalled_long(self, passed_s: float) -> bool:
        """Whether it has been stalled for too long."""
        self.was_heard = False
        self._quiet_s += passed_s
        return self._quiet_s > self._limits.stalled_s_max

    def too_slow(self, passed_s: float, *, is_paused: bool, has_partial: bool, has_open: bool) -> str:
        """Why it is refused, or an empty string. `is_paused`: it is us who do not read."""
        limits = self._limits
        if is_paused or (self.was_heard and not has_partial):
            self._quiet_s = 0.0
        else:
            self._quiet_s += passed_s
            if has_partial:
                if self._quiet_s > limits.partial_s_max:
                    return f"the request was not whole after {limits.partial_s_max:g} s"
            elif limits.idle_s_max and not has_open and self._quiet_s > limits.idle_s_max:
                return f"no request for {limits.idle_s_max:g} s"
        self.was_heard = False
        return ""
