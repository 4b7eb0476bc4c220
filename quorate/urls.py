"""Where a client finds its nodes: `quorate://[:token@]host[:port][,host:port...][?tls=1&ca=FILE&cert=FILE&key=FILE]`.

What is not given is taken from the environment: QUORATE_URL, or QUORATE_HOST and QUORATE_PORT; QUORATE_TOKEN, _TLS and
_CA stand for what the URL leaves out.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from quorate.credentials import Credentials
from quorate.nodes import Address, node_address

DEFAULT_PORT: Final = 1111
SCHEME: Final = "quorate"
URL_VARIABLE: Final = "QUORATE_URL"
HOST_VARIABLE: Final = "QUORATE_HOST"
PORT_VARIABLE: Final = "QUORATE_PORT"
OPTIONS: Final = ("tls", "ca", "cert", "key")
NO: Final = ("", "0", "false")


def parse_url(url: str) -> tuple[list[Address], Credentials]:
    """The nodes and credentials that an URL names. Raises ValueError, which says what part of it is wrong."""
    shown = f"{url.partition('@')[0].split(':')[0]}:..." if "@" in url else url  # no token in a message
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ValueError(f"{shown!r}: {error}") from error
    if parts.scheme != SCHEME:
        raise ValueError(f"{shown!r}: an URL of Quorate begins with {SCHEME}://")
    if parts.path not in ("", "/") or parts.fragment:
        raise ValueError(f"{shown!r}: behind the hosts comes nothing but options, and there is {parts.path!r}")
    who, at, hosts = parts.netloc.rpartition("@")
    user, _, token = who.partition(":")
    if at and (user or not token):
        raise ValueError(f"{shown!r}: a token stands behind a colon, as in {SCHEME}://:TOKEN@host")
    if not hosts:
        raise ValueError(f"{shown!r}: a host is missing")
    try:
        nodes = [node_address(host, DEFAULT_PORT) for host in hosts.split(",")]
    except ValueError as error:
        raise ValueError(f"{shown!r}: host {error}") from error
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in OPTIONS:
            raise ValueError(f"{shown!r}: there is no option {name!r}, but {', '.join(OPTIONS)}")
        options[name] = value
    tls = options.pop("tls", "").lower() not in NO
    return nodes, Credentials.of(unquote(token) or None, tls=tls, **{n: v for n, v in options.items() if v})


def found(
    host: str | None, port: int | None, nodes: Sequence[Address | str] | None, shown: Credentials
) -> tuple[list[Address], Credentials]:
    """The nodes that a client is to ask, and how: what it was given, or else what the environment says.

    `host` may be an URL, which brings its own credentials, or have a port behind a colon. Raises TypeError, ValueError.
    """
    if isinstance(nodes, str):
        raise TypeError(f"nodes is {nodes!r}: a list of nodes is wanted")
    if nodes is not None:
        if not nodes:
            raise ValueError("nodes is empty: at least one is wanted")
        return [node_address(node, DEFAULT_PORT) for node in nodes], shown
    if host is None:
        if port is None and (url := os.environ.get(URL_VARIABLE)):
            return _with(shown, *parse_url(url))
        host = os.environ.get(HOST_VARIABLE) or "127.0.0.1"
        if port is None and (text := os.environ.get(PORT_VARIABLE)):
            return [node_address(f"[{host.strip('[]')}]:{text}")], shown
    if not isinstance(host, str):
        raise TypeError(f"host is a {type(host).__name__}, and a text is wanted: {host!r}")
    if "://" in host:
        if port is not None:
            raise ValueError(f"port is {port}, and an URL has its own")
        return _with(shown, *parse_url(host))
    if port is None:
        return [node_address(host, DEFAULT_PORT)], shown
    if isinstance(port, bool) or not isinstance(port, int):
        raise TypeError(f"port is {port!r}, and a number is wanted")
    name, colon, behind = host.rpartition(":")
    if colon and name and behind.isdigit() and ":" not in name.strip("[]"):
        raise ValueError(f"host is {host!r}, and port {port}: one of them has a port too many")
    return [(host.strip("[]"), port)], shown


def _with(shown: Credentials, nodes: list[Address], own: Credentials) -> tuple[list[Address], Credentials]:
    """What an URL says, and of what it leaves out what was given beside it."""
    if not own.has_tls and shown.has_tls:
        own = replace(shown, token=own.token)
    return nodes, own if own.token is not None else replace(own, token=shown.token)
