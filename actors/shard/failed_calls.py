"""Calls that raised before a record was made: how the owner's host logs and counts them. A part of the QueueOwner.

The Broker answers such a call with `internal_error`; nothing else has changed. The log gets one traceback a minute,
with the action and the names of the request's fields; not their values, which are the client's.
"""

import logging
from typing import Final

from actors.messages.call import Call
from quorate.actions import NAMES
from quorate.protocol import Request

log = logging.getLogger("quorate.queues")

QUIET_S: Final = 60.0
"""After a traceback was logged, so long none is: the same request may come ten thousand times a second."""

FAILED: Final = "the node failed to do this because of an error of its own, and did nothing; its log has the details"
"""The reason of such a reply."""


class Failure:
    """A call that raised, and what it raised. No NamedTuple: mypyc makes none of exceptions."""

    def __init__(self, call: Call, error: Exception) -> None:
        self.call = call
        self.error = error


class FailedCalls:
    """Logs the failures of one owner; `count` is how many there were since the worker began."""

    def __init__(self) -> None:
        self.count = 0
        self._quiet_until = 0.0
        self._unlogged = 0

    def note(self, now: float, failures: list[Failure]) -> None:
        """Count these failures, and log the first unless one was logged less than a minute ago (monotonic s)."""
        self.count += len(failures)
        if now < self._quiet_until:
            self._unlogged += len(failures)
            return
        self._quiet_until = now + QUIET_S
        unlogged, self._unlogged = self._unlogged + len(failures) - 1, 0
        error = failures[0].error
        request = failures[0].call.request
        log.error(
            "internal error: action %d (%s) with the fields %s raised, and was answered internal_error; %d more since "
            "the last such line",
            request.action,
            NAMES.get(request.action, "unknown"),
            ", ".join(fields_in(request)),
            unlogged,
            exc_info=error,
        )


def fields_in(request: Request) -> list[str]:
    """List the names of the fields that a request has."""
    defaults = Request(action=0)
    return [name for name in Request.__struct_fields__ if getattr(request, name) != getattr(defaults, name)]
