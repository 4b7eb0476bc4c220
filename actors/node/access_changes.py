"""Changes of the access file, as `qctl access` makes them: what people wrote there stays."""

from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from actors.gateway.access import TokenHash
from actors.messages.rights import ANONYMOUS
from actors.node.access_file import PRINCIPALS, TOKENS_MAX, AccessFileError, read_access, write_private


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
