"""When a message expires, and what happens then, in words: for pages and terminals."""

import time
from typing import Any

from quorate.messages import NEVER


def expiry_of(message: dict[str, Any]) -> str:
    """Say it of a message as show gives it: at which instant (UTC), and what becomes of it then."""
    expires_at = float(message.get("expires_at") or 0.0)
    if expires_at >= NEVER:
        return "never"
    at = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(expires_at))
    if message.get("expire") == "drop":
        return f"{at}: it is dropped then, delivered or not"
    if message.get("expire") == "bury":
        return f"{at}: it becomes a dead letter then, delivered or not; it is dropped if its queue has none"
    return f"{at}: after that it is delivered once if it never was; else it becomes a dead letter, or is dropped"
