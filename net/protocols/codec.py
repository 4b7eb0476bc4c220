"""What a wire protocol's codec is to the rest."""

from typing import NamedTuple


class Fault(NamedTuple):
    """Input that is no request: the reply's fixed word and sentence; `is_fatal`: nothing after it can be read."""

    error: str
    reason: str
    is_fatal: bool = False
    body: bytes = b""
