"""Who is logged in: a cookie of 32 random bytes stands for a token, in memory alone. A machine: the clock comes in."""

import secrets
from collections import OrderedDict
from typing import Final, NamedTuple

LASTS_S: Final = 12 * 3600.0
LOGINS_MAX: Final = 1000
COOKIE_BYTES: Final = 32
PAUSE_S: Final = 0.25
"""After the first token that is none; each more doubles it, up to `PAUSE_MAX_S`, and a minute without halves it."""

PAUSE_MAX_S: Final = 8.0
FORGIVEN_S: Final = 60.0
FAILED_MAX: Final = 10_000
WAITING_MAX: Final = 32
"""Log-ins that wait for their pauses, of all addresses; `WAITING_EACH`: of one. More are refused."""

WAITING_EACH: Final = 4


class Login(NamedTuple):
    """Somebody's: their token, and until when it holds (monotonic s)."""

    token: str
    name: str
    until: float


class Failed(NamedTuple):
    """Of one address: so many tokens were none, the last of them `at` (monotonic s)."""

    tokens: int
    at: float


class Logins:
    """All that there are, and which addresses have shown tokens that are none."""

    def __init__(self) -> None:
        self._logins: OrderedDict[str, Login] = OrderedDict()
        self._failed: OrderedDict[str, Failed] = OrderedDict()
        self._waiting: dict[str, int] = {}

    def begin(self, token: str, name: str, now: float) -> str:
        """Make the cookie's value. When there are too many, the oldest ends."""
        cookie = secrets.token_urlsafe(COOKIE_BYTES)
        self._logins[cookie] = Login(token, name, now + LASTS_S)
        while len(self._logins) > LOGINS_MAX:
            self._logins.popitem(last=False)
        return cookie

    def find(self, cookie: str | None, now: float) -> Login | None:
        """Whose cookie that is; None: nobody's, or not any more."""
        login = None if cookie is None else self._logins.get(cookie)
        if login is not None and now >= login.until:
            assert cookie is not None
            del self._logins[cookie]
            return None
        return login

    def end(self, cookie: str | None) -> None:
        """Log out."""
        if cookie is not None:
            self._logins.pop(cookie, None)

    def has_token(self, token: str, now: float) -> bool:
        """Whether somebody is logged in with it."""
        return any(login.token == token and now < login.until for login in self._logins.values())

    # -- tokens that are none ----------------------------------------------------------------------------------

    def wait(self, address: str, now: float) -> float | None:
        """For how long a token that comes from there now has to wait before it is looked at; None: it is refused.

        Those that come while others of that address wait stand behind them, as if those had failed.
        Followed by `waited`, once it has been looked at.
        """
        before = self._waiting.get(address, 0)
        pause_s = self.pause_s(address, now, before)
        if pause_s and (before >= WAITING_EACH or sum(self._waiting.values()) >= WAITING_MAX):
            return None
        self._waiting[address] = before + 1
        return pause_s

    def waited(self, address: str) -> None:
        """Note that it was looked at."""
        self._waiting[address] -= 1
        if not self._waiting[address]:
            del self._waiting[address]

    def pause_s(self, address: str, now: float, more: int = 0) -> float:
        """Reckon what failing has earned that address by now, and what so many failures more would."""
        failed = self._failed.get(address)
        count = more + (0 if failed is None else max(failed.tokens - int((now - failed.at) / FORGIVEN_S), 0))
        return min(PAUSE_S * 2.0 ** min(count - 1, 10), PAUSE_MAX_S) if count > 0 else 0.0

    def is_barred(self, address: str, now: float) -> bool:
        """Whether its last token that was none is not longer ago than the pause that it has earned."""
        failed = self._failed.get(address)
        return failed is not None and now < failed.at + self.pause_s(address, now)

    def failed(self, address: str, now: float) -> None:
        """Count a token from there that was none."""
        before = self._failed.pop(address, None) or Failed(0, now)
        count = max(before.tokens - int((now - before.at) / FORGIVEN_S), 0)
        self._failed[address] = Failed(count + 1, now)
        while len(self._failed) > FAILED_MAX:
            self._failed.popitem(last=False)
