"""Auditing: what of the requests is written down, a machine; and the Auditor, which writes it.

Everything that manages a queue or operates a node and may have changed something, and everything that is refused for
want of a right. Of refusals so many lines a second at most, and of what was allowed so many for each principal: nobody
fills the disk by being refused, and nobody moves the others' lines out of the file. What is left out is counted. Lines
are JSON objects, written by a thread of their own.
"""

import json
import logging
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET

from actors.messages.call import Call
from actors.messages.calls import Audit
from actors.messages.rights import RIGHTS
from actors.runtime.blocking import BlockingActor
from actors.runtime.contract import Runtime
from quorate.actions import AUDITED, CLUSTER_LOOKS, NAMES, OF_COMMAND, Right
from quorate.protocol import Action, Request, TransactionRequest

LINES_PER_S: Final = 50.0
LINES_MAX: Final = 500
"""So many may come at once."""

ALLOWED_PER_S: Final = 2.0
ALLOWED_MAX: Final = 1000
"""The same for what one principal was allowed. At this rate the files that are kept hold two days of it."""

SET: Final = (
    *("max_size", "default_ttl", "default_retry", "max_deliveries", "dead_letter", "paused", "expires_after"),
    *("command", "queue", "to", "node_id", "shard", "reader", "key", "value", "msg_id", "count", "consumer"),
    *("topic", "group", "partition", "offset", "time", "partitions", "keep_s", "keep_bytes", "keep_for_groups"),
    *("keep_for_groups_bytes", "accept_append", "accept_read", "closed", "filters", "force"),
)
"""The fields that say what was set, moved or ended; `consumer` is what the client calls itself, or for whom it asks."""

TEXT_MAX: Final = 100
NAME_MAX: Final = 100
QUEUES_MAX: Final = 3
"""Of long names and lists a line has the beginning."""

Line = dict[str, Any]
"""One JSON object."""

log = logging.getLogger("quorate.audit")

FILE_BYTES_MAX: Final = 16 << 20
"""Then it is moved to the same name with .1 behind it, that to .2, and so on."""

FILES_KEPT: Final = 5
QUIET_S: Final = 60.0
"""After it was logged that a file can't be written, so long it is not again."""


def is_audited(request: Request) -> bool:
    """Whether it is written down though it is allowed."""
    if request.action not in AUDITED:
        return False
    rights = OF_COMMAND.get(request.action)
    if rights is not None:
        return rights.get(request.command, RIGHTS[request.action]) in (Right.MANAGE, Right.OPERATE)
    return request.action != Action.CLUSTER or request.command not in CLUSTER_LOOKS


class _Lines:
    """How many lines may be written, as of a moment (monotonic s), and how many were not."""

    def __init__(self, now: float, most: float, per_s: float) -> None:
        self._most = most
        self._per_s = per_s
        self._at = now
        self._left = most
        self.unsaid = 0

    def may_say(self, now: float) -> bool:
        """Whether one more may be; counts it where it may not."""
        self._left = min(self._left + (now - self._at) * self._per_s, self._most)
        self._at = now
        if self._left < 1:
            self.unsaid += 1
            return False
        self._left -= 1
        return True

    def take_unsaid(self) -> int:
        """How many were left out since this was asked last."""
        unsaid, self.unsaid = self.unsaid, 0
        return unsaid


class Auditing:
    """For one worker."""

    def __init__(self) -> None:
        self._refused = _Lines(0.0, LINES_MAX, LINES_PER_S)
        self._allowed: dict[str, _Lines] = {}

    def line(
        self, now: float, monotonic: float, call: Call, address: str, missing: str | None, error: str | None = None
    ) -> Line | None:
        """Write of a request at `now` (Unix s), which was refused with the word `error`; None: it was done.

        None if too much was written already.
        """
        request = call.request
        what: Line = {"action": NAMES.get(request.action, str(request.action))}
        for name in SET:
            value = getattr(request, name)
            if value is not None and value is not UNSET:
                what[name] = value[:NAME_MAX] if isinstance(value, str) else value
        if request.dead_letter is None:
            what["dead_letter"] = ""
        if request.msg_ids is not None:
            what["messages"] = len(request.msg_ids)
        if missing is None:
            what["done"] = error is None
            if error is not None:
                what["error"] = error
        names = request.queues
        if isinstance(request, TransactionRequest):
            names = list(dict.fromkeys(its for one in request.operations if (its := one.topic or one.queue)))
        if names is not None:
            what["queues"] = [name[:NAME_MAX] for name in names[:QUEUES_MAX]]
        return self.noted(now, monotonic, call.principal.name, address, what, missing)

    def noted(
        self, now: float, monotonic: float, name: str, address: str, what: Line, missing: str | None
    ) -> Line | None:
        """As `line`, of anything."""
        lines = self._refused
        if missing is None:
            lines = self._allowed.setdefault(name, _Lines(monotonic, ALLOWED_MAX, ALLOWED_PER_S))
        if not lines.may_say(monotonic):
            return None
        line: Line = {"at": round(now, 3), "principal": name, "from": address[:TEXT_MAX], **what}
        line["allowed"] = missing is None
        if missing is not None:
            line["missing"] = missing
        if unsaid := lines.take_unsaid():
            line["left_out_before"] = unsaid
        return line

    def left_out(self, now: float, monotonic: float) -> list[Line]:
        """Write a line for each principal of whose allowed requests some were left out, as far as lines may be
        written."""
        found: list[Line] = []
        for name, lines in self._allowed.items():
            if lines.unsaid:
                unsaid = lines.take_unsaid()
                if lines.may_say(monotonic):
                    line = {"at": round(now, 3), "principal": name, "action": "left out", "left_out_before": unsaid}
                    found.append({**line, "allowed": True})
                else:
                    lines.unsaid = unsaid
        return found


class _File(RotatingFileHandler):
    """Says that it can't be written to, once a minute at most, however many lines are lost. `clock`: monotonic s."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        super().__init__(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT, encoding="utf-8")
        self._clock = clock
        self._quiet_until = 0.0
        self._lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's
        """Note that the disk is full, or the folder is gone."""
        self._lost += 1
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET_S
            lost, self._lost = self._lost, 0
            log.exception("the audit log %s can't be written: %d lines are lost", self.baseFilename, lost)


class Auditor(BlockingActor):
    """Appends what was allowed to the file at `path`, and what was refused to one beside it (`audit.refused.log`).

    So nobody who is refused often enough moves the other on. Both are for the node's user alone. Lines that can't be
    written are lost.
    """

    def __init__(self, runtime: Runtime, path: Path) -> None:
        super().__init__(runtime)
        path.parent.mkdir(parents=True, exist_ok=True)
        refused = path.with_name(f"{path.stem}.refused{path.suffix}")
        self._allowed, self._refused = (_File(one, runtime.monotonic_clock) for one in (path, refused))

    def on_receive(self, message: Any) -> None:
        """`Audit`."""
        assert isinstance(message, Audit)
        for line in message.lines:
            file = self._allowed if line["allowed"] else self._refused
            text = json.dumps(line, ensure_ascii=True, separators=(",", ":"))
            file.emit(logging.LogRecord("", logging.INFO, "", 0, text, None, None))

    def on_stop(self) -> None:
        """All is written."""
        self._allowed.close()
        self._refused.close()
