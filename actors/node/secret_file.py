"""The cluster's secret: where it is kept, and how it is made and changed.

A file of one or two lines, for its owner alone: the present secret, and behind it the one before, as long as that is
valid, too. Or the environment variable `QUORATE_CLUSTER_SECRET`, with a comma between two. It is never an argument, and
never shown.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from actors.node.access_file import read_private, write_private
from net.peers.proof import KEYS_MAX, Key, key_of

VARIABLE: Final = "QUORATE_CLUSTER_SECRET"
SECRET_BYTES: Final = 32
FILE_BYTES_MAX: Final = 4096


class SecretError(Exception):
    """The secret can't be used. The text never holds it."""


def new_secret() -> str:
    """Drawn at random."""
    return secrets.token_hex(SECRET_BYTES)


def read_secrets(path: Path) -> list[str]:
    """Read the secrets in a file, the present one first. Raises `SecretError`."""
    try:
        lines = read_private(path, FILE_BYTES_MAX).split("\n")
    except OSError as error:
        raise SecretError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SecretError(str(error)) from error
    found = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    keys_of(found, str(path))
    return found


def write_secrets(path: Path, found: list[str]) -> None:
    """Keep these, the present one first; the file is there whole or not at all. Raises OSError."""
    write_private(path, "".join(f"{one}\n" for one in found))


def keys_of(found: list[str], source: str) -> tuple[Key, ...]:
    """Make the keys of these secrets. Raises `SecretError`, which names `source`."""
    if not 0 < len(found) <= KEYS_MAX:
        raise SecretError(f"{source} holds {len(found)} secrets: one is wanted, or two while it is changed")
    try:
        return tuple(key_of(one) for one in found)
    except ValueError as error:
        raise SecretError(f"{source}: {error}") from error


def valid_keys(path: str, environment: Mapping[str, str] | None = None) -> tuple[Key, ...]:
    """Make the keys of the cluster's secret, from the file at `path` or the environment; none if it is set nowhere.

    Raises `SecretError`.
    """
    text = (os.environ if environment is None else environment).get(VARIABLE, "")
    if text and path:
        raise SecretError(f"cluster_secret_file and {VARIABLE} are both set: one is wanted")
    if path:
        return keys_of(read_secrets(Path(path)), path)
    return keys_of([one.strip() for one in text.split(",")], VARIABLE) if text else ()
