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

from actors.node.access_file import check_mode
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
    """The secrets in a file, the present one first. Raises `SecretError`."""
    try:
        fault = check_mode(path)
        if fault is not None:
            raise SecretError(fault)
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SecretError(f"{path} has more than {FILE_BYTES_MAX} bytes")
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SecretError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SecretError(f"{path} is not UTF-8") from error
    found = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    keys_of(found, str(path))
    return found


def write_secrets(path: Path, found: list[str]) -> None:
    """Keep these, the present one first; the file is there whole or not at all. Raises OSError."""
    beside = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write("".join(f"{one}\n" for one in found))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def keys_of(found: list[str], source: str) -> tuple[Key, ...]:
    """The keys of these secrets. Raises `SecretError`, which names `source`."""
    if not 0 < len(found) <= KEYS_MAX:
        raise SecretError(f"{source} holds {len(found)} secrets: one is wanted, or two while it is changed")
    try:
        return tuple(key_of(one) for one in found)
    except ValueError as error:
        raise SecretError(f"{source}: {error}") from error


def valid_keys(path: str, environment: Mapping[str, str] | None = None) -> tuple[Key, ...]:
    """The keys of the cluster's secret, from the file at `path` or the environment; none if it is set nowhere.

    Raises `SecretError`.
    """
    text = (os.environ if environment is None else environment).get(VARIABLE, "")
    if text and path:
        raise SecretError(f"cluster_secret_file and {VARIABLE} are both set: one is wanted")
    if path:
        return keys_of(read_secrets(Path(path)), path)
    return keys_of([one.strip() for one in text.split(",")], VARIABLE) if text else ()
