"""MetaQ's transactions before they are committed: a worker holds their puts, and nothing of them is in the log.

| transaction | lives |
|---|---|
| local | as long as its connection, and at most its time-out, if it has one |
| a branch of a distributed one (XA) | on any connection, at most its time-out or a minute; prepared it is in the log |

What is over is let go of when somebody uses the worker's transactions. Times are monotonic seconds.
"""

import re
from typing import Final

from net.protocols.metaq_framing import MalformedError
from quorate.protocol import BATCH_MAX, Request

TIMEOUT_S_MAX: Final = 60
OPEN_MAX: Final = 10_000
"""So many may be open in a worker, and so many of one connection."""

OPEN_OF_ONE_MAX: Final = 100
BYTES_MAX: Final = 64 << 20
"""Of all puts that a worker holds."""

OVERHEAD_BYTES: Final = 500
"""What a put takes in memory beside its data."""

LOOK_S: Final = 1.0
NEVER: Final = float("inf")
LOCAL: Final = "TX:"
BRANCH: Final = "XID:"

_BRANCH: Final = re.compile(r"XID:(-?[0-9]{1,10}):([0-9a-fA-F]{0,128}):([0-9a-fA-F]{0,128})(?::(.{0,128}))?", re.ASCII)
_LOCAL: Final = re.compile(r"TX:.{0,255}:-?[0-9]{1,19}")


def check_key(key: str) -> None:
    """Raise `MalformedError` for what is no key of a transaction."""
    if not (_LOCAL.fullmatch(key) or _BRANCH.fullmatch(key)):
        raise MalformedError


def qualifier_of(key: str) -> str:
    """Give the transaction manager's name in the key of a branch."""
    found = _BRANCH.fullmatch(key)
    return "" if found is None else found[4] or ""


def not_begun(key: str) -> str:
    """Say that there is no such transaction."""
    kind = "XA" if key.startswith(BRANCH) else "Local"
    return f"{kind} transaction '{key}' has not been started."


class Staged:
    """An open transaction among those in `of`: its puts, which are requests to append. `until`: when it is over.

    `unchecked`: so many of its puts are not answered yet. `is_closed`: it takes no more, since it is being committed or
    prepared; `is_sent`: the shard has been asked for that.
    """

    __slots__ = ("bytes", "is_closed", "is_sent", "key", "of", "puts", "unchecked", "until")

    def __init__(self, of: "dict[str, Staged]", key: str, until: float) -> None:
        self.of = of
        self.key = key
        self.until = until
        self.puts: list[Request] = []
        self.bytes = self.unchecked = 0
        self.is_closed = self.is_sent = False


class Staging:
    """Those of one worker. `held`: the bytes of all puts.

    `branches`: those of distributed ones that are not prepared, by key.
    """

    def __init__(self) -> None:
        self.held = 0
        self.branches: dict[str, Staged] = {}
        self._open: dict[Staged, None] = {}
        self._provisional = 0
        self._looked_at = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, of: dict[str, Staged], key: str, timeout_s: int, now: float) -> str | None:
        """Begin one among those in `of`, unless it has begun. Says why not."""
        self._let_go(now)
        if self.find(of, key, now) is not None:
            return None
        if len(self._open) >= OPEN_MAX:
            return f"limit_reached: {OPEN_MAX} transactions are open"
        if of is not self.branches and len(of) >= OPEN_OF_ONE_MAX:
            return f"limit_reached: {OPEN_OF_ONE_MAX} transactions are open on this connection"
        longest = TIMEOUT_S_MAX if of is self.branches else NEVER
        staged = of[key] = Staged(of, key, now + (min(timeout_s, TIMEOUT_S_MAX) if timeout_s > 0 else longest))
        self._open[staged] = None
        return None

    def find(self, of: dict[str, Staged], key: str, now: float) -> Staged | None:
        """Find an open one; None: it has not begun, or is over."""
        staged = of.get(key)
        if staged is not None and staged.until <= now:
            self.end(staged)
            return None
        return staged

    def why_not(self, staged: Staged, put: Request, bytes_max: int, now: float) -> str | None:
        """Why a put can't be added to a transaction of so many bytes at most; None: it can."""
        if len(staged.puts) >= BATCH_MAX:
            return f"limit_reached: a transaction has at most {BATCH_MAX} messages"
        size = _size(put)
        if staged.bytes + size > bytes_max:
            return f"limit_reached: a transaction has at most {bytes_max} bytes"
        if self.held + size > BYTES_MAX:
            self._let_go(now)
        if self.held + size > BYTES_MAX:
            return f"overloaded: transactions that are open hold {BYTES_MAX} bytes already"
        return None

    def add(self, staged: Staged, put: Request) -> int:
        """Add a put; returns the id that its client gets, which no message has."""
        size = _size(put)
        staged.puts.append(put)
        staged.bytes += size
        self.held += size
        self._provisional -= 1
        return self._provisional

    def is_open(self, staged: Staged) -> bool:
        """Whether it has not ended."""
        return staged in self._open

    def take_back(self, staged: Staged, put: Request) -> None:
        """Take a put back that can't be done."""
        for index, one in enumerate(staged.puts):
            if one is put:
                del staged.puts[index]
                if staged in self._open:
                    staged.bytes -= _size(put)
                    self.held -= _size(put)
                return

    def end(self, staged: Staged) -> None:
        """End one: nothing is held for it any more."""
        if staged in self._open:
            del self._open[staged]
            del staged.of[staged.key]
            self.held -= staged.bytes

    def end_all(self, of: dict[str, Staged]) -> None:
        """End all of a connection."""
        for staged in [*of.values()]:
            self.end(staged)

    def _let_go(self, now: float) -> None:
        """End those that are over; looked for once a second."""
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            for staged in [staged for staged in self._open if staged.until <= now]:
                self.end(staged)


def _size(put: Request) -> int:
    return len(bytes(put.data)) + len(put.attribute or "") + OVERHEAD_BYTES
