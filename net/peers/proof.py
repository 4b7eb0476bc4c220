"""How two ends of a link prove the cluster's secret to each other, and how every frame after that is sealed.

| step | from | bytes |
|---|---|---|
| 1 | dialler | opening: `MAGIC`, the names of its keys (`KEYS_MAX` of 8 bytes, zeros for none), a nonce (32 bytes) |
| 2 | listener | its own opening, of the same form |
| 3 | dialler | frame: its hello, sealed by 32 bytes of HMAC-SHA256 |
| 4 | listener | frame: its hello, or why it refuses, sealed by 32 bytes of HMAC-SHA256 |
| 5 | either | frames, each sealed by 16 bytes of keyed BLAKE2b (RFC 7693) over its number, its length and its message |

Nothing is parsed before its seal was found right. The keys of a link come from the secret and both openings, so no
byte of one link fits another (Krawczyk, "SIGMA", 2003: fresh nonces of both, who speaks, and all that was said are in
what is proved); the hellos name the cluster, both nodes, their disks and versions. Each direction has keys of its own,
and frames are numbered from 0, so that none can be left out, repeated, moved or sent back. What is said is sealed, not
hidden: TLS hides it.

Which key: the first of the listener's that the dialler has as well. So a secret is changed in two steps, without a
moment in which two nodes share none: every node gets the new one in front of the old one, then every node drops the
old one.

No socket, no clock and no source of randomness here: the nonce is given.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MAGIC: Final = b"QPEER3\n"
KEYS_MAX: Final = 2
"""Secrets that are valid at a time: the present one, and the one before or after it."""

NAME_BYTES: Final = 8
NONCE_BYTES: Final = 32
OPENING_BYTES: Final = len(MAGIC) + KEYS_MAX * NAME_BYTES + NONCE_BYTES
SECRET_CHARACTERS_MIN: Final = 32
"""A secret is drawn at random, not thought up: what is shorter could be guessed from one link that was listened to."""

PROOF_BYTES: Final = 32
SEAL_BYTES: Final = 16
_NUMBER: Final = struct.Struct(">QI")
_NO_NAME: Final = bytes(NAME_BYTES)


class Key(NamedTuple):
    """A secret, and the name by which both ends find out that they share it. It can't be had from the name."""

    secret: bytes
    name: bytes

    def __repr__(self) -> str:
        return f"Key({self.name.hex()})"  # the secret belongs in no log


def key_of(secret: str) -> Key:
    """Make the key that a secret stands for. Raises ValueError if it is too short to be one."""
    if len(secret) < SECRET_CHARACTERS_MIN:
        reason = f"a secret has at least {SECRET_CHARACTERS_MIN} characters, drawn at random; this has {len(secret)}"
        raise ValueError(f"{reason}: qctl cluster secret makes one")
    raw = secret.encode()
    return Key(raw, hmac.digest(raw, b"quorate: the name of a cluster's secret", "sha256")[:NAME_BYTES])


@dataclass(frozen=True)
class Keyring:
    """What a node proves itself by, and what it asks of others. `keys` are valid now, the present one first.

    `is_required`: who proves nothing is not talked with. `draws_nonce` draws 32 bytes that were never drawn before.
    """

    keys: tuple[Key, ...] = ()
    is_required: bool = False
    draws_nonce: Callable[[], bytes] = field(default=lambda: bytes(NONCE_BYTES), repr=False)

    def opening(self) -> bytes:
        """Make this node's first bytes on a new link."""
        names = b"".join(key.name for key in self.keys[:KEYS_MAX])
        return MAGIC + names.ljust(KEYS_MAX * NAME_BYTES, b"\0") + self.draws_nonce()

    def named(self, name: bytes) -> Key | None:
        """Find the key of that name, if it is valid here."""
        return next((key for key in self.keys if key.name == name), None)


def _names(opening: bytes) -> list[bytes]:
    at = len(MAGIC)
    names = [opening[at + n * NAME_BYTES : at + (n + 1) * NAME_BYTES] for n in range(KEYS_MAX)]
    return [name for name in names if name != _NO_NAME]


def has_keys(opening: bytes) -> bool:
    """Whether whoever sent it has a secret at all."""
    return bool(_names(opening))


class Session:
    """One link's keys, for one of its ends. `key` is the secret that both have."""

    def __init__(self, key: Key, dialler: bytes, listener: bytes, *, is_dialler: bool) -> None:
        self.key = key
        base = hmac.digest(key.secret, b"quorate: a link's keys" + dialler + listener, "sha256")
        way_out, way_in = (b"dialler", b"listener") if is_dialler else (b"listener", b"dialler")
        self._proof_out = hmac.digest(base, b"proof of the " + way_out, "sha256")
        self._proof_in = hmac.digest(base, b"proof of the " + way_in, "sha256")
        key_out = hmac.digest(base, b"frames of the " + way_out, "sha256")
        key_in = hmac.digest(base, b"frames of the " + way_in, "sha256")
        self._out = hashlib.blake2b(digest_size=SEAL_BYTES, key=key_out)
        self._in = hashlib.blake2b(digest_size=SEAL_BYTES, key=key_in)
        self._heard = b""
        self._count_out = 0
        self._count_in = 0

    def proof(self, hello: bytes) -> bytes:
        """Make what proves this end's `hello`: the listener's answers the dialler's, and so proves that one, too."""
        return hmac.digest(self._proof_out, self._heard + hello, "sha256")

    def is_proved(self, hello: bytes | bytearray, proof: bytes | bytearray, *, answers: bytes = b"") -> bool:
        """Whether the other end has the secret. `answers`: the hello that its own answers, if it does."""
        self._heard = bytes(hello)
        return hmac.compare_digest(hmac.digest(self._proof_in, answers + self._heard, "sha256"), proof)

    def seal(self, message: bytes) -> bytes:
        """Make the seal of the next frame that leaves."""
        seal = self._out.copy()
        seal.update(_NUMBER.pack(self._count_out, len(message)))
        seal.update(message)
        self._count_out += 1
        return seal.digest()

    def is_sealed(self, message: bytes | bytearray, seal: bytes | bytearray) -> bool:
        """Whether the next frame that has come is the one that the other end sent."""
        wanted = self._in.copy()
        wanted.update(_NUMBER.pack(self._count_in, len(message)))
        wanted.update(message)
        self._count_in += 1
        return hmac.compare_digest(wanted.digest(), seal)


def shared_key(keyring: Keyring, own: bytes, other: bytes, *, is_dialler: bool) -> Key | None:
    """Find the key that both ends know which have sent these openings; None if they share none (any more)."""
    mine, its = _names(own), _names(other)
    listeners, diallers = (its, mine) if is_dialler else (mine, its)
    name = next((name for name in listeners if name in diallers), None)
    return None if name is None else keyring.named(name)
