"""What the pages about topics show."""

from typing import Any

from console import showing
from console.views import View
from quorate import RefusedError
from quorate.protocol import Action, ErrorWord
from quorate.streams import topic_rows

PAGE_ROWS = 100
GONE = (ErrorWord.TRIMMED, ErrorWord.DAMAGED, ErrorWord.WRONG_PARTITION)
"""Why a message can't be shown, though its topic is there."""


async def topics_page(view: View, pattern: str, after: str) -> dict[str, Any]:
    """Gather a list of topics. Raises what `AsyncClient` does."""
    asked = {"command": "list", "pattern": pattern or None, "count": PAGE_ROWS, "after": after or None}
    found = await view.client.request(Action.TOPIC, **asked)
    rows, following = topic_rows(found)
    about = {"rows": rows, "count": found["topic_count"], "missing": found.get("missing_shards") or []}
    return {**about, "next": following or "", "pattern": pattern, "after": after}


async def topic_page(view: View, topic: str, group: str, partition: int | None, offset: int | None) -> dict[str, Any]:
    """Gather a topic, where a group is in it, and one of its messages. Raises what `AsyncClient` does."""
    client = view.client
    about: dict[str, Any] = {"topic": topic, "view": await client.topic(topic), "problem": "", "message": None}
    about["group"] = await client.group(topic, group) if group else None
    about |= {"partition": "" if partition is None else partition, "offset": "" if offset is None else offset}
    if partition is None or offset is None:
        return about
    asked = {"topic": topic, "partition": partition, "offset": offset, "count": 1}
    try:
        found = (await client.request(Action.READ, **asked))["messages"]
    except RefusedError as refused:
        if refused.error not in GONE:
            raise
        return {**about, "problem": refused.reason}
    if not found:
        return {**about, "problem": f"There is no message at offset {offset} yet."}
    text, kind, is_all = showing.shown(found[0])
    headers = [(name, value[: showing.DATA_SHOWN]) for name, value in (found[0].get("headers") or {}).items()]
    message = {"key": None, "attribute": None, **found[0]}
    return {**about, "message": message, "text": text, "kind": kind, "is_all": is_all, "headers": headers}
