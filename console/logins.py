"""Who is logged in: a cookie of 32 random bytes stands for a token, in memory alone. A machine: the clock comes in."""

import secrets
from collections import OrderedDict
from typing import Final, NamedTuple

LASTS_S: Final = 12 * 3600.0
LOGINS_MAX: Final = 1000
COOKIE_BYTES: Final = 32
PAUSE_S: Final = 0.25
"""After the first log-in that fails; each more doubles it, up to `PAUSE_MAX_S`, and a minute without halves it."""

PAUSE_MAX_S: Final = 8.0
FORGIVEN_S: Final = 60.0
FAILED_MAX: Final = 10_000


class Login(NamedTuple):
    """Somebody's: their token, and until when it holds (monotonic s)."""

    token: str
    name: str
    until: float


class Logins:
    """All that there are."""

    def __init__(self) -> None:
        self._logins: OrderedDict[str, Login] = OrderedDict()
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def begin(self, token: str, name: str, now: float) -> str:
        """The cookie's value. When there are too many, the oldest ends."""
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

    def pause_s(self, address: str, now: float) -> float:
        """For how long who asks from there has to wait before a log-in is looked at."""
        count, at = self._failed.get(address, (0, now))
        count -= int((now - at) / FORGIVEN_S)
        return 0.0 if count <= 0 else min(PAUSE_S * 2.0 ** (count - 1), PAUSE_MAX_S)

    def failed(self, address: str, now: float) -> None:
        """A log-in from there was none."""
        count, at = self._failed.pop(address, (0, now))
        count = max(count - int((now - at) / FORGIVEN_S), 0)
        self._failed[address] = (count + 1, now)
        while len(self._failed) > FAILED_MAX:
            self._failed.popitem(last=False)
