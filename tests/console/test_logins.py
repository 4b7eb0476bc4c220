"""Logins, with a clock of the test's own."""

from console.logins import COOKIE_BYTES, LASTS_S, LOGINS_MAX, PAUSE_MAX_S, PAUSE_S, Logins


def test_a_cookie_stands_for_a_token_until_its_time_is_over_or_it_is_ended() -> None:
    logins = Logins()
    cookie, other = logins.begin("t1", "ann", 0), logins.begin("t2", "bob", 0)
    assert len(cookie) > COOKIE_BYTES
    assert cookie != other
    found = logins.find(cookie, LASTS_S - 1)
    assert found is not None
    assert (found.token, found.name) == ("t1", "ann")
    assert logins.find(cookie, LASTS_S) is None
    assert logins.find(cookie, 0) is None, "it is over for good"
    logins.end(other)
    assert logins.find(other, 0) is None
    assert logins.find(None, 0) is logins.find("guessed", 0) is None


def test_the_oldest_login_ends_when_there_are_too_many() -> None:
    logins = Logins()
    cookies = [logins.begin(f"t{n}", "x", 0) for n in range(LOGINS_MAX + 1)]
    assert logins.find(cookies[0], 0) is None
    assert logins.find(cookies[1], 0) is not None


def test_who_fails_waits_longer_each_time_and_is_forgiven_in_the_end() -> None:
    logins = Logins()
    pauses = []
    for _ in range(8):
        pauses.append(logins.pause_s("a", 0))
        logins.failed("a", 0)
    assert pauses[:4] == [0, PAUSE_S, PAUSE_S * 2, PAUSE_S * 4]
    assert max(pauses) == logins.pause_s("a", 0) == PAUSE_MAX_S
    assert logins.pause_s("b", 0) == 0
    assert logins.pause_s("a", 61) <= PAUSE_MAX_S
    assert logins.pause_s("a", 60 * 9) == 0
