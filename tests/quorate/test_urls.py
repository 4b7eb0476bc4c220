"""Where a client finds its nodes, and what is said of an URL that is wrong."""

import pytest

from quorate import Client
from quorate.credentials import Credentials
from quorate.urls import found, parse_url

NONE = Credentials()


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "HOST", "PORT", "TOKEN", "TLS", "CA"):
        monkeypatch.delenv(f"QUORATE_{name}", raising=False)


@pytest.mark.parametrize(
    ("url", "nodes", "shown"),
    [
        ("quorate://localhost", [("localhost", 1111)], NONE),
        ("quorate://h:5/", [("h", 5)], NONE),
        ("quorate://a:1,b,[::1]:3,[::2]", [("a", 1), ("b", 1111), ("::1", 3), ("::2", 1111)], NONE),
        ("quorate://:to%2Fken@h", [("h", 1111)], Credentials("to/ken")),
        ("quorate://h?tls=1", [("h", 1111)], Credentials(has_tls=True)),
        ("quorate://h?tls=0", [("h", 1111)], NONE),
        ("quorate://h?ca=/x.pem&cert=c&key=k", [("h", 1111)], Credentials(None, True, "/x.pem", "c", "k")),
    ],
)
def test_an_url_names_nodes_and_credentials(url: str, nodes: list[tuple[str, int]], shown: Credentials) -> None:
    assert parse_url(url) == (nodes, shown)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h", "begins with quorate://"),
        ("quorate://", "a host is missing"),
        ("quorate://h:port", "HOST:PORT is wanted"),
        ("quorate://h:99999", "HOST:PORT is wanted"),
        ("quorate://h/queue", "nothing but options"),
        ("quorate://h?tsl=1", "no option 'tsl'"),
        ("quorate://user:secret@h", "a token stands behind a colon"),
        ("quorate://secret@h", "a token stands behind a colon"),
        ("quorate://:sec/ret@h", "%2F"),
        ("quorate://:secret@h:port", "HOST:PORT is wanted"),
        ("quorate://h?tls=maybe", "1 or 0 is wanted"),
    ],
)
def test_an_url_that_is_wrong_says_which_part_is(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        parse_url(url)
    assert "secret" not in str(raised.value)


def test_what_an_url_leaves_open_is_taken_from_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Credentials("t", True, "/ca", "/cert", "/key")
    assert found("quorate://h?tls=1", None, None, beside)[1] == beside
    assert found("quorate://:u@h?ca=/own", None, None, beside)[1] == Credentials("u", True, "/own", "/cert", "/key")
    assert found("quorate://h?tls=0", None, None, beside)[1] == Credentials("t"), "said out loud"
    with pytest.raises(ValueError, match="from 1 to 65535"):
        Client("h", 99999)


def test_what_is_not_given_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(None, None, None, NONE) == ([("127.0.0.1", 1111)], NONE)
    assert found("h:5", None, None, NONE) == ([("h", 5)], NONE)
    assert found("::1", 7, None, NONE) == ([("::1", 7)], NONE)
    assert found(None, 7, None, NONE) == ([("127.0.0.1", 7)], NONE)
    monkeypatch.setenv("QUORATE_HOST", "::1")
    monkeypatch.setenv("QUORATE_PORT", "9")
    assert found(None, None, None, NONE) == ([("::1", 9)], NONE)
    assert found(None, 7, None, NONE) == ([("::1", 7)], NONE)
    monkeypatch.setenv("QUORATE_URL", "quorate://:t@u1,u2:2")
    assert found(None, None, None, NONE) == ([("u1", 1111), ("u2", 2)], Credentials("t"))
    assert found("h", None, None, NONE) == ([("h", 1111)], NONE)


def test_what_is_given_beside_an_url_stands_for_what_it_leaves_out() -> None:
    assert found("quorate://h", None, None, Credentials("t", True, "ca")) == (
        [("h", 1111)],
        Credentials("t", True, "ca"),
    )
    assert found("quorate://:own@h", None, None, Credentials("t"))[1].token == "own"
    with pytest.raises(ValueError, match="an URL has its own"):
        Client("quorate://h", 5)
