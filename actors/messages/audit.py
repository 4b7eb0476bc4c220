"""What is written down of who did what.

| message | from | to | meaning |
|---|---|---|---|
| Audit | Listener | Auditor | write these lines |
| RefusedForwarded | Router | Listener | what another node forwarded, this one did not allow |
"""

from typing import Any

import msgspec

from actors.messages.call import Call


class Audit(msgspec.Struct):
    """Each a JSON object: when (`at`, Unix s), who (`principal`), from where, what, and whether it was allowed."""

    lines: list[dict[str, Any]]


class RefusedForwarded(msgspec.Struct):
    """Each call with the right that was missing; node `node_id` had forwarded them."""

    node_id: int
    refused: list[tuple[Call, str]]
