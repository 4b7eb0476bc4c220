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
OF_ONE_BYTES_MAX: Final = 16 << 20
"""Of all puts that a worker holds, and of those of one connection, or of all branches that are not prepared."""

OVERHEAD_BYTES: Final = 800
CHARACTER_BYTES: Final = 4
"""What a put takes in memory beside its data; and a character of its topic's name or its attribute, at most."""

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


class Holder:
    """Whose transactions are open, by their keys: a connection's, or all branches that are not prepared.

    `held`: the bytes of all puts; `bytes_max`, `count_max`: so many at most. `longest_s`: so long each is open at most.
    """

    __slots__ = ("by_key", "bytes_max", "count_max", "held", "longest_s")

    def __init__(
        self, bytes_max: int = OF_ONE_BYTES_MAX, count_max: int = OPEN_OF_ONE_MAX, longest_s: float = NEVER
    ) -> None:
        self.by_key: dict[str, Staged] = {}
        self.held = 0
        self.bytes_max = bytes_max
        self.count_max = count_max
        self.longest_s = longest_s


class Staged:
    """An open transaction of that holder's: its puts, which are requests to append. `until`: when it is over.

    `unchecked`: so many of its puts are not answered yet. `is_closed`: it takes no more, since it is being committed or
    prepared; `is_sent`: the shard has been asked for that.
    """

    __slots__ = ("bytes", "is_closed", "is_sent", "key", "of", "puts", "unchecked", "until")

    def __init__(self, of: Holder, key: str, until: float) -> None:
        self.of = of
        self.key = key
        self.until = until
        self.puts: list[Request] = []
        self.bytes = self.unchecked = 0
        self.is_closed = self.is_sent = False


class Staging:
    """Those of one worker. `held`: the bytes of all puts. `branches`: those of distributed ones."""

    def __init__(self) -> None:
        self.held = 0
        self.branches = Holder(BYTES_MAX // 2, OPEN_MAX, TIMEOUT_S_MAX)
        self._open: dict[Staged, None] = {}
        self._provisional = 0
        self._looked_at = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, of: Holder, key: str, timeout_s: int, now: float) -> str | None:
        """Begin one of that holder's, unless it has begun. Says why not."""
        self._let_go(now)
        if self.find(of, key, now) is not None:
            return None
        if len(self._open) >= OPEN_MAX:
            return f"limit_reached: {OPEN_MAX} transactions are open"
        if len(of.by_key) >= of.count_max:
            return f"limit_reached: {of.count_max} transactions are open on this connection"
        staged = Staged(of, key, now + (min(timeout_s, TIMEOUT_S_MAX) if timeout_s > 0 else of.longest_s))
        of.by_key[key] = staged
        self._open[staged] = None
        return None

    def find(self, of: Holder, key: str, now: float) -> Staged | None:
        """Find an open one; None: it has not begun, or is over."""
        staged = of.by_key.get(key)
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
        of = staged.of
        if self.held + size > BYTES_MAX or of.held + size > of.bytes_max:
            self._let_go(now)
        if of.held + size > of.bytes_max:
            whose = "branches that are not prepared" if of is self.branches else "open transactions of this connection"
            return f"overloaded: {whose} hold {of.held} bytes already, and {of.bytes_max} are allowed"
        if self.held + size > BYTES_MAX:
            return f"overloaded: transactions that are open hold {BYTES_MAX} bytes already"
        return None

    def add(self, staged: Staged, put: Request) -> int:
        """Add a put; returns the id that its client gets, which no message has."""
        staged.puts.append(put)
        self._hold(staged, _size(put))
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
                    self._hold(staged, -_size(put))
                return

    def _hold(self, staged: Staged, size: int) -> None:
        staged.bytes += size
        staged.of.held += size
        self.held += size

    def end(self, staged: Staged) -> None:
        """End one: nothing is held for it any more."""
        if staged in self._open:
            del self._open[staged]
            del staged.of.by_key[staged.key]
            self._hold(staged, -staged.bytes)

    def end_all(self, of: Holder) -> None:
        """End all of a connection."""
        for staged in [*of.by_key.values()]:
            self.end(staged)

    def _let_go(self, now: float) -> None:
        """End those that are over; looked for once a second."""
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            for staged in [staged for staged in self._open if staged.until <= now]:
                self.end(staged)


def _size(put: Request) -> int:
    return len(bytes(put.data)) + (len(put.attribute or "") + len(put.topic or "")) * CHARACTER_BYTES + OVERHEAD_BYTES
