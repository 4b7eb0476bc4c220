"""How qctl shows messages: their data, their facts, and their lives."""

from collections.abc import Iterator
from typing import Any

import msgspec

from cli.output import without_escapes
from cli.quantities import clock, from_now, written
from console.life import Event
from quorate.expiry import expiry_of
from quorate.messages import ShownMessage


def text_of(data: Any) -> str:
    """Show data as a terminal may."""
    if isinstance(data, bytes):
        return without_escapes(data.decode("utf-8", "backslashreplace"))
    return without_escapes(data if isinstance(data, str) else msgspec.json.encode(data).decode())


def bytes_of(data: Any) -> bytes:
    """Give data as a program reads them: bytes and texts as they are, JSON of all else."""
    if isinstance(data, bytes):
        return data
    return data.encode() if isinstance(data, str) else msgspec.json.encode(data)


def facts_of(message: ShownMessage) -> Iterator[tuple[str, str]]:
    """Say what there is of a message, but for its data: names and values."""
    yield "queue", message.queue
    yield "state", message.state if message.consumer is None else f"{message.state}, given to {message.consumer}"
    yield "produced", f"{clock(message.produced_at)}, {from_now(message.produced_at)}"
    if message.state != "ready":
        yield "due", f"{clock(message.due_at)}, {from_now(message.due_at)}"
    yield "expires", expiry_of(message.as_dict()) or clock(message.expires_at)
    yield "retry", written(message.retry) if message.retry else "never: it is delivered at most once"
    yield "deliveries", str(message.deliveries)
    if message.priority:
        yield "priority", str(message.priority)
    if message.key is not None:
        yield "key", message.key if message.scope is None else f"{message.key}, among all queues"
    if message.dead is not None:
        yield "dead since", f"{clock(message.dead['at'])}, {from_now(message.dead['at'])}"
        yield "came from", f"{message.dead['queue']} after {message.dead['deliveries']} deliveries"
        yield "reason", str(message.dead.get("reason") or "not said")
    for name, value in message.headers.items():
        yield f"header {name}", value


def why_dead(message: ShownMessage) -> str:
    """Say where a dead letter comes from, and why, in a line; nothing of others."""
    if message.dead is None:
        return ""
    reason = " ".join(str(message.dead.get("reason") or "not said").split())
    return f"from {message.dead['queue']}: {reason}"


def about(event: Event) -> str:
    """Say what a record says of a message, beside what it did."""
    said = []
    for name, value in event.about.items():
        if name in ("due_at", "expires_at"):
            said.append(f"{'due' if name == 'due_at' else 'expires'} {clock(value)}")
        elif name == "retry_s":
            said.append(f"retry {written(value)}")
        else:
            said.append(f"{name} {value}")
    return ", ".join(said)
