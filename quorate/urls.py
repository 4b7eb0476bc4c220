"""Where a client finds its nodes: `quorate://[:token@]host[:port][,host:port...][?tls=1&ca=FILE&cert=FILE&key=FILE]`.

What is not given is taken from the environment: QUORATE_URL, or QUORATE_HOST and QUORATE_PORT; QUORATE_TOKEN, _TLS and
_CA stand for what the URL leaves out.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, unquote

from quorate.credentials import Credentials
from quorate.nodes import Address, node_address

DEFAULT_PORT: Final = 1111
SCHEME: Final = "quorate"
URL_VARIABLE: Final = "QUORATE_URL"
HOST_VARIABLE: Final = "QUORATE_HOST"
PORT_VARIABLE: Final = "QUORATE_PORT"
OPTIONS: Final = ("tls", "ca", "cert", "key")
YES: Final = ("1", "true", "yes", "on")
NO: Final = ("0", "false", "no", "off")


def parse_url(url: str) -> tuple[list[Address], Credentials]:
    """Read the nodes and credentials that an URL names. Raises ValueError, which says what part of it is wrong."""
    return _parsed(url)[:2]


def _parsed(url: str) -> tuple[list[Address], Credentials, bool | None]:
    """Also whether it wants TLS; None: it leaves that open."""
    shown = f"{SCHEME}://...{url.rpartition('@')[2]}" if "@" in url else url  # no token in a message
    scheme, slashes, rest = url.partition("://")
    if not slashes or scheme != SCHEME:
        raise ValueError(f"{shown!r}: an URL of Quorate begins with {SCHEME}://")
    who, at, where = rest.rpartition("@")
    if at and ("/" in who or "?" in who or "#" in who):
        raise ValueError(f"{shown!r}: the token has a character that an URL writes as %2F, %3F or %23")
    user, _, token = who.partition(":")
    if at and (user or not token):
        raise ValueError(f"{shown!r}: a token stands behind a colon, as in {SCHEME}://:TOKEN@host")
    hosts, _, query = where.partition("?")
    hosts = hosts.removesuffix("/")
    if not hosts:
        raise ValueError(f"{shown!r}: a host is missing")
    if "/" in hosts or "#" in where:
        raise ValueError(f"{shown!r}: behind the hosts comes nothing but options")
    try:
        nodes = [node_address(host, DEFAULT_PORT) for host in hosts.split(",")]
    except ValueError as error:
        raise ValueError(f"{shown!r}: host {error}") from error
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS:
            raise ValueError(f"{shown!r}: there is no option {name!r}, but {', '.join(OPTIONS)}")
        options[name] = value
    wanted = options.pop("tls", "").lower()
    if wanted not in (*YES, *NO, ""):
        raise ValueError(f"{shown!r}: tls is {wanted!r}, and 1 or 0 is wanted")
    tls = None if wanted == "" else wanted in YES
    files = {name: value for name, value in options.items() if value}
    return nodes, Credentials(unquote(token) or None, tls is True or (tls is None and bool(files)), **files), tls


def found(
    host: str | None, port: int | None, nodes: Sequence[Address | str] | None, shown: Credentials
) -> tuple[list[Address], Credentials]:
    """Choose the nodes that a client is to ask, and how: what it was given, or else what the environment says.

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
            return _with(shown, *_parsed(url))
        host = os.environ.get(HOST_VARIABLE) or "127.0.0.1"
        if port is None and (text := os.environ.get(PORT_VARIABLE)):
            return [node_address(f"[{host.strip('[]')}]:{text}")], shown
    if not isinstance(host, str):
        raise TypeError(f"host is a {type(host).__name__}, and a text is wanted: {host!r}")
    if "://" in host:
        if port is not None:
            raise ValueError(f"port is {port}, and an URL has its own")
        return _with(shown, *_parsed(host))
    if port is None:
        return [node_address(host, DEFAULT_PORT)], shown
    if isinstance(port, bool) or not isinstance(port, int):
        raise TypeError(f"port is {port!r}, and a number is wanted")
    if not 0 < port < 65536:
        raise ValueError(f"port is {port}: from 1 to 65535")
    name, colon, behind = host.rpartition(":")
    if colon and name and behind.isdigit() and ":" not in name.strip("[]"):
        raise ValueError(f"host is {host!r}, and port {port}: one of them has a port too many")
    return [(host.strip("[]"), port)], shown


def _with(
    shown: Credentials, nodes: list[Address], own: Credentials, tls: bool | None
) -> tuple[list[Address], Credentials]:
    """Join what an URL says, and of what it leaves out what was given beside it, or stands in the environment."""
    if tls is False:
        return nodes, replace(own, token=own.token if own.token is not None else shown.token)
    return nodes, Credentials(
        own.token if own.token is not None else shown.token,
        own.has_tls or shown.has_tls,
        own.ca or shown.ca,
        own.cert or shown.cert,
        own.key or shown.key,
    )
