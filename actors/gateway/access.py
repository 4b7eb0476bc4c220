"""Access: who a client is, by its token, its certificate or its address, and what it may do. A table and a machine.

A node without an access file lets everybody do everything with queues, and changes the cluster for clients on its own
machine alone. With one, who proves nothing is `anonymous`, and may do what the file gives to that name: nothing, if it
gives nothing.

A request that another node forwards comes with its client's name. What that one may do is looked up here, in this
node's own table: a node can refuse for another, and never grant.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from actors.messages.rights import ANONYMOUS, EVERY_QUEUE, EVERY_RIGHT, Principal, Rights
from quorate.actions import OF_QUEUES, Right

NEAR: Final = "local"
FAR: Final = "remote"
RESERVED_NAMES: Final = frozenset({ANONYMOUS, NEAR, FAR})
"""Names that an access file can't give to anybody: who has proved nothing, with and without a file."""

NAME_MAX: Final = 64
SCHEME: Final = "sha256"
SALT_BYTES: Final = 16
TOKEN_BYTES: Final = 32
"""A token is drawn at random, so a fast hash is as good as a slow one: there is nothing to guess."""

NOBODY: Final = Rights({})


class TokenHash(NamedTuple):
    """What is kept of a token: salt and digest. Its text is `sha256:SALT:DIGEST`, in hexadecimal."""

    salt: bytes
    digest: bytes

    @property
    def text(self) -> str:
        """As a file holds it."""
        return f"{SCHEME}:{self.salt.hex()}:{self.digest.hex()}"

    @property
    def name(self) -> str:
        """By which one hash is told from another."""
        return self.digest[:8].hex()

    def fits(self, token: str) -> bool:
        """Whether it is this token's."""
        return hmac.compare_digest(_digest(self.salt, token), self.digest)

    @staticmethod
    def of(token: str) -> "TokenHash":
        """Make a token's, with a new salt."""
        salt = secrets.token_bytes(SALT_BYTES)
        return TokenHash(salt, _digest(salt, token))

    @staticmethod
    def read(text: str) -> "TokenHash":
        """Read what `text` wrote. Raises ValueError."""
        scheme, _, rest = text.partition(":")
        salt, _, digest = rest.partition(":")
        if scheme != SCHEME:
            raise ValueError(f"{text[:20]!r} is no hash of a token: {SCHEME}:SALT:DIGEST is wanted")
        found = TokenHash(bytes.fromhex(salt), bytes.fromhex(digest))
        if len(found.digest) != hashlib.sha256().digest_size or not found.salt:
            raise ValueError(f"{text[:20]!r}... is no hash of a token: its parts have the wrong length")
        return found


def _digest(salt: bytes, token: str) -> bytes:
    return hashlib.sha256(salt + token.encode("utf-8", "surrogatepass")).digest()


_NO_HASH: Final = TokenHash(bytes(SALT_BYTES), bytes(32))


def new_token(name: str) -> str:
    """Make a token for the principal of that name: `NAME.SECRET`."""
    return f"{name}.{secrets.token_urlsafe(TOKEN_BYTES)}"


@dataclass(frozen=True)
class Entry:
    """A principal as the file has it: its rights, its tokens' hashes, and the names that certificates know it by."""

    rights: Rights
    tokens: tuple[TokenHash, ...] = ()
    certificates: tuple[str, ...] = ()


class KnownClient(NamedTuple):
    """Who a client turned out to be, and by what: a token's name, a certificate's, or "" for nothing at all."""

    principal: Principal
    proof: str = ""


class AccessTable:
    """What one access file says; `entries` None: there is none."""

    def __init__(self, entries: Mapping[str, Entry] | None = None, anonymous: Rights = NOBODY) -> None:
        self.is_open = entries is None
        self.entries = dict(entries or {})
        self._anonymous = KnownClient(Principal(ANONYMOUS, anonymous))
        self._near = KnownClient(Principal(NEAR, EVERY_RIGHT))
        of_queues = {right: [EVERY_QUEUE] for right in OF_QUEUES}
        self._far = KnownClient(Principal(FAR, Rights(of_queues, [Right.LOG])))
        self._by_certificate = {name: who for who, entry in self.entries.items() for name in entry.certificates}

    def follow(self, before: "AccessTable") -> None:
        """Note what those had before who may do something else now: they may hold messages that they had then."""
        for name, entry in self.entries.items():
            old = before.entries.get(name)
            if old is not None:
                entry.rights.before = old.rights.before if old.rights == entry.rights else old.rights

    @property
    def has_operator(self) -> bool:
        """Whether somebody may operate the node."""
        everybody = [entry.rights for entry in self.entries.values()] + [self._anonymous.principal.rights]
        return any(rights.has(Right.OPERATE) for rights in everybody)

    @property
    def has_some(self) -> bool:
        """Whether somebody may do something."""
        return any(entry.rights.has_some for entry in self.entries.values()) or (
            self._anonymous.principal.rights.has_some
        )

    def stranger(self, *, is_near: bool) -> KnownClient:
        """Who has proved nothing; `is_near`: it is on this machine."""
        if not self.is_open:
            return self._anonymous
        return self._near if is_near else self._far

    def by_token(self, token: str) -> KnownClient | None:
        """Whose token that is; None: nobody's."""
        name, _, _ = token.rpartition(".")
        entry = self.entries.get(name)
        hashes = (_NO_HASH,) if entry is None else entry.tokens
        fitting = [one for one in hashes if one.fits(token)]
        if entry is None or not fitting:
            return None
        return KnownClient(Principal(name, entry.rights), fitting[0].name)

    def by_certificate(self, names: tuple[str, ...]) -> KnownClient | None:
        """Whom a certificate, which was found right, names; None: nobody that is known."""
        for certified in names:
            name = self._by_certificate.get(certified)
            if name is not None:
                return KnownClient(Principal(name, self.entries[name].rights), f"certificate {certified}")
        return None

    def forwarded(self, name: str) -> Principal:
        """Who another node says that it is asked by, as far as this one knows that name."""
        if self.is_open:
            return self._near.principal if name == NEAR else self._far.principal
        entry = self.entries.get(name)
        rights = self._anonymous.principal.rights if entry is None else entry.rights
        return Principal(name, rights)

    def named(self, name: str, proof: str, *, is_near: bool) -> KnownClient | None:
        """Who was known by that name, for that proof; None if that does not hold (any more)."""
        if name in RESERVED_NAMES:
            stranger = self.stranger(is_near=is_near)
            return stranger if stranger.principal.name == name else None
        entry = self.entries.get(name)
        if entry is None:
            return None
        proofs = {one.name for one in entry.tokens} | {f"certificate {one}" for one in entry.certificates}
        return KnownClient(Principal(name, entry.rights), proof) if proof in proofs else None


FAILURES_FREE: Final = 3
"""So many tokens that are none an address may show before it has to wait."""

FAILURE_STEP_S: Final = 0.5
FAILURE_WAIT_MAX_S: Final = 8.0
FORGOTTEN_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000


class Patience:
    """How long an address waits for the answer to a token that is none: longer with each. Times are monotonic seconds.

    A token that is one never waits, so nobody is locked out by his neighbours.
    """

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def failed(self, now: float, address: str) -> float | None:
        """One more was none: after how many seconds that may be said; None: not at all, too many wait already."""
        count, until = self._by_address.pop(address, (0, now))
        if now - until > FORGOTTEN_S:
            count, until = 0, now
        while len(self._by_address) >= ADDRESSES_MAX:
            self._by_address.popitem(last=False)
        if until - now > FAILURE_WAIT_MAX_S:
            self._by_address[address] = (count, until)
            return None  # as many wait as may
        until = max(until, now) + (0.0 if count < FAILURES_FREE else FAILURE_STEP_S)
        self._by_address[address] = (count + 1, until)
        return until - now
