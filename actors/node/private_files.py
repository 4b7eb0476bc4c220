"""Files for the node's owner alone: who may do what, and the cluster's secret.

The access file is TOML. The node reads it; `qctl access` changes it, and leaves comments alone.

[principals.worker]
tokens = ["sha256:SALT:DIGEST"]
certificates = ["worker.example"]
allow = ["produce", "consume:jobs*", "look"]

[anonymous]
allow = ["look:public*"]

The cluster's secret is a file of one or two lines, for its owner alone: the present secret, and behind it the one
before, as long as that is valid, too. Or the environment variable `QUORATE_CLUSTER_SECRET`, with a comma between two.
It is never an argument, and never shown.
"""

import os
import secrets
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from actors.gateway.access import NAME_MAX, RESERVED_NAMES, AccessTable, Entry, TokenHash
from actors.messages.rights import ANONYMOUS, Rights
from net.peers.proof import KEYS_MAX, Key, key_of
from quorate.actions import OF_NODE, OF_QUEUES
from quorate.protocol import name_fault
from storage.real_disk import flush_folder

ACCESS_BYTES_MAX: Final = 4 << 20
PATTERNS_MAX: Final = 1000
TOKENS_MAX: Final = 2
"""Of one principal: the present one, and the one before it while its owner changes."""

PRINCIPALS: Final = "principals"
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-@")


VARIABLE: Final = "QUORATE_CLUSTER_SECRET"

SECRET_BYTES: Final = 32

SECRET_BYTES_MAX: Final = 4096


class AccessFileError(Exception):
    """The file can't be used; `faults` are all that is wrong with it, a line each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def read_private(path: Path, bytes_max: int) -> str:
    """Read the text of a file that nobody else can read or change. Raises ValueError that says why not; OSError."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is no file")
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError(f"{path} can be read or changed by others than its owner (chmod 600 {path})")
        if os.geteuid() != 0 and found.st_uid not in (os.geteuid(), 0):
            raise ValueError(f"{path} belongs to another user than the node's")
        if found.st_size > bytes_max:
            raise ValueError(f"{path} has more than {bytes_max} bytes")
        try:
            return file.read().decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from error


def write_private(path: Path, text: str) -> None:
    """Put a file in its place, whole or not at all, for its owner alone: the one of before, or the folder's.

    Raises OSError.
    """
    path = path.resolve()
    owner = (path if path.exists() else path.parent).stat()
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        if os.geteuid() == 0:
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    flush_folder(path.parent)


def read_access(path: Path) -> AccessTable:
    """Read what the file says. Raises `AccessFileError` with every fault."""
    try:
        found = tomllib.loads(read_private(path, ACCESS_BYTES_MAX))
    except OSError as error:
        raise AccessFileError([f"{path}: {error.strerror or error}"]) from error
    except tomllib.TOMLDecodeError as error:
        raise AccessFileError([f"{path}: {error}"]) from error
    except ValueError as error:
        raise AccessFileError([str(error)]) from error
    faults: list[str] = []
    table = _table(found, lambda fault: faults.append(f"{path}: {fault}"))
    if not faults and not table.has_some:
        faults.append(f"{path}: it gives nobody any right, so nobody could ask this node for anything")
    if faults:
        raise AccessFileError(faults)
    return table


def _table(found: dict[str, Any], wrong: Callable[[str], None]) -> AccessTable:
    for name in set(found) - {PRINCIPALS, ANONYMOUS}:
        wrong(f"there is no section {name!r}: {PRINCIPALS}.NAME and {ANONYMOUS} there may be")
    sections = found.get(PRINCIPALS, {})
    if not isinstance(sections, dict):
        wrong(f"{PRINCIPALS} has to be sections, one a name")
        sections = {}
    entries: dict[str, Entry] = {}
    for name, section in sections.items():
        fault = principal_fault(name)
        if fault is not None:
            wrong(f"the name {name!r} {fault}")
        entry = _entry(name, section, wrong)
        taken = {one for other in entries.values() for one in other.certificates}
        for certificate in entry.certificates:
            if certificate in taken:
                wrong(f"{name}: the certificate name {certificate!r} is another principal's")
        entries[name] = entry
    section = found.get(ANONYMOUS, {})
    if isinstance(section, dict) and set(section) - {"allow"}:
        wrong(f"{ANONYMOUS} has `allow` and nothing else")
    return AccessTable(entries, _entry(ANONYMOUS, section, wrong).rights)


def principal_fault(name: str) -> str | None:
    """Say what is wrong with a principal's name; None if it may be used."""
    if name in RESERVED_NAMES:
        return "is taken: it is what somebody is called who has proved nothing"
    if not 0 < len(name) <= NAME_MAX or not NAME_CHARACTERS.issuperset(name):
        return f"has to be 1 to {NAME_MAX} of A-Z, a-z, 0-9, _, - and @"
    return None


def _entry(name: str, section: Any, wrong: Callable[[str], None]) -> Entry:
    if not isinstance(section, dict):
        wrong(f"{name} has to be a section")
        return Entry(Rights({}))
    for field in set(section) - {"allow", "tokens", "certificates"}:
        wrong(f"{name}: there is no {field!r}: allow, tokens and certificates there may be")
    lists: dict[str, list[str]] = {}
    for field in ("allow", "tokens", "certificates"):
        value = section.get(field, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            wrong(f"{name}: {field} has to be a list of texts")
            value = []
        lists[field] = value
    hashes: list[TokenHash] = []
    for text in lists["tokens"]:
        try:
            hashes.append(TokenHash.read(text))
        except ValueError as error:
            wrong(f"{name}: tokens: {error}")
    try:
        rights = rights_of(lists["allow"])
    except ValueError as error:
        wrong(f"{name}: allow: {error}")
        rights = Rights({})
    return Entry(rights, tuple(hashes), tuple(lists["certificates"]))


def rights_of(allow: list[str]) -> Rights:
    """Give the rights that `RIGHT` (over all queues) and `RIGHT:PATTERN` name. Raises ValueError."""
    queues: dict[str, list[str]] = {}
    node: list[str] = []
    if len(allow) > PATTERNS_MAX:
        raise ValueError(f"{len(allow)} rights, and {PATTERNS_MAX} are allowed")
    for text in allow:
        right, colon, pattern = text.partition(":")
        if right in OF_NODE:
            if colon:
                raise ValueError(f"{text!r}: {right} is a right over the node, so no queues are named with it")
            node.append(right)
        elif right not in OF_QUEUES:
            raise ValueError(f"{text!r}: there is no right {right!r}: {', '.join((*OF_QUEUES, *OF_NODE))} there are")
        elif colon and not pattern:
            raise ValueError(f"{text!r}: which queues? {right} alone is for all of them")
        elif (fault := name_fault(pattern)) is not None:
            raise ValueError(f"{text!r}: the pattern {fault}")
        else:
            queues.setdefault(right, []).append(pattern or "*")
    return Rights(queues, node)


class AccessFile:
    """The file, to be changed: comments stay. One that is not there begins empty. Raises `AccessFileError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists():
            read_access(path)
            try:
                self._document = tomlkit.parse(path.read_text(encoding="utf-8"))
            except TOMLKitError as error:
                raise AccessFileError([f"{path}: {error}"]) from error
        else:
            self._document = tomlkit.document()
            self._document.add(tomlkit.comment("Who may do what: see docs/security.md. Changed by qctl access."))

    @property
    def _principals(self) -> Any:
        if PRINCIPALS not in self._document:
            self._document.add(PRINCIPALS, tomlkit.table(is_super_table=True))
        return self._document[PRINCIPALS]

    def has(self, name: str) -> bool:
        """Whether there is a principal of that name."""
        return name in self._document.get(PRINCIPALS, {})

    def add(self, name: str, allow: list[str], token: TokenHash | None, certificates: list[str]) -> None:
        """Add a new principal."""
        section = tomlkit.table()
        if token is not None:
            section.add("tokens", [token.text])
        if certificates:
            section.add("certificates", certificates)
        section.add("allow", allow)
        self._principals.add(name, section)

    def allow(self, name: str, allow: list[str]) -> None:
        """Let a principal (or who has proved nothing) do this from now on, and nothing else."""
        if name == ANONYMOUS and ANONYMOUS not in self._document:
            self._document.add(ANONYMOUS, tomlkit.table())
        section: Any = self._document[ANONYMOUS] if name == ANONYMOUS else self._principals[name]
        section["allow"] = allow

    def add_token(self, name: str, token: TokenHash, *, is_only: bool) -> None:
        """One more token, in front; of the others the newest stays, or none."""
        section = self._principals[name]
        kept = [] if is_only else list(section.get("tokens", []))[: TOKENS_MAX - 1]
        section["tokens"] = [token.text, *kept]

    def count_tokens(self, name: str) -> int:
        """How many are valid."""
        return len(self._principals[name].get("tokens", []))

    def remove(self, name: str) -> None:
        """Forget it; who has proved nothing may do nothing any more."""
        if name != ANONYMOUS:
            self._principals.remove(name)
        elif ANONYMOUS in self._document:
            self._document.remove(ANONYMOUS)

    def write(self) -> None:
        """Put it in its place, whole or not at all, for its owner alone. Raises OSError."""
        write_private(self.path, tomlkit.dumps(self._document))


class SecretError(Exception):
    """The secret can't be used. The text never holds it."""


def new_secret() -> str:
    """Drawn at random."""
    return secrets.token_hex(SECRET_BYTES)


def read_secrets(path: Path) -> list[str]:
    """Read the secrets in a file, the present one first. Raises `SecretError`."""
    try:
        lines = read_private(path, SECRET_BYTES_MAX).split("\n")
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
