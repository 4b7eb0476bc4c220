"""TLS: contexts for clients' and nodes' ports, and what a certificate says of who is there.

TLS 1.2 and later, with the defaults of Python's `ssl` for everything else: they follow OpenSSL's and the
distribution's. A context is made anew at each reload; connections that are open keep theirs.
"""

import contextlib
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

NODE_NAME: Final = "quorate-node"
"""The name that nodes ask for. Which node it is, is said by what the certificate names: see `nodes_of`."""

NODE_PREFIX: Final = "node-"
NODE_ID_DIGITS: Final = 7
HANDSHAKE_STEPS_MAX: Final = 10
"""A handshake with oneself takes three."""


class TlsError(Exception):
    """A certificate or a key can't be used; the text says which, and why."""


def server_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """For a port for clients. With `client_ca` a client may show a certificate of it. Raises `TlsError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, certificate, key)
    if client_ca is not None:
        _trust(context, client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(ca: Path | None, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """For a client, which checks the server's certificate and name; `ca` None: what the system trusts."""
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        _load(context, certificate, key or certificate)
    return context


def node_contexts(certificate: Path, key: Path, ca: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the nodes' port, and for dialling others: both sides show a certificate of `ca`. Raises `TlsError`."""
    contexts = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False  # a node is known by its number: the link compares it
        context.verify_mode = ssl.CERT_REQUIRED
        _load(context, certificate, key)
        _trust(context, ca)
        contexts.append(context)
    return contexts[0], contexts[1]


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    def no_password() -> str:
        raise TlsError(f"{key} is encrypted, and a node has nobody to ask for its password")

    try:
        context.load_cert_chain(certificate, key, no_password)
    except OSError as error:  # ssl.SSLError is one
        raise TlsError(f"the certificate {certificate} and its key {key} can't be used: {_why(error)}") from error


def _trust(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(ca)
    except OSError as error:
        raise TlsError(f"the authority's certificates {ca} can't be used: {_why(error)}") from error


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason is None or "PEM" in str(error).upper():
            return "there is no such thing in it (PEM is wanted)"
        return error.reason.lower().replace("_", " ")
    return error.strerror or str(error)


def names_of(certificate: dict[str, Any]) -> tuple[str, ...]:
    """Give the names of a certificate that was found right: its common name, then its DNS names."""
    common = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    dns = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return tuple(dict.fromkeys([*common, *dns]))


def nodes_of(certificate: dict[str, Any]) -> frozenset[int]:
    """Give the node_ids that a certificate is for: those of its names that are `node-N`, or begin with `node-N.`."""
    found: set[int] = set()
    for name in names_of(certificate):
        first = name.partition(".")[0].lower()
        digits = first.removeprefix(NODE_PREFIX)
        if first.startswith(NODE_PREFIX) and digits.isascii() and digits.isdigit() and len(digits) <= NODE_ID_DIGITS:
            found.add(int(digits))
    return frozenset(found)


class CertificateFacts(NamedTuple):
    """What an own certificate says: its names, and until when it is valid (Unix s; 0: that could not be read).

    `fault`: why nobody believes it now; "": nothing is known against it.
    """

    nodes: frozenset[int] = frozenset()
    ends_at: float = 0.0
    fault: str = ""


def facts_of(certificate: Path, key: Path) -> CertificateFacts:
    """Look at an own certificate as those will whom it is shown: in a handshake that trusts it itself. Raises
    `TlsError`.

    Python's `ssl` tells what is in a certificate of nobody but a peer that was found right.
    """
    shows = server_context(certificate, key)
    looks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    looks.check_hostname = False
    looks.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(looks, certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    looking = looks.wrap_bio(back, there)
    showing = shows.wrap_bio(there, back, server_side=True)
    for _ in range(HANDSHAKE_STEPS_MAX):
        try:
            looking.do_handshake()
            found: dict[str, Any] = looking.getpeercert() or {}
            ends_at = ssl.cert_time_to_seconds(str(found["notAfter"]))
            return CertificateFacts(nodes_of(found), ends_at)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as error:
            return CertificateFacts(fault=error.verify_message)
        with contextlib.suppress(ssl.SSLWantReadError):
            showing.do_handshake()
    return CertificateFacts()
