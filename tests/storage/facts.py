"""What a state says, to be compared with what another says."""

from typing import Any

from storage.records import Place
from storage.state import ShardState

IN_FLIGHT = 11
"""Where among a message's fields stands whether it is in flight."""


def facts(state: ShardState, now: float) -> dict[str, Any]:
    """All that a state says, but for where messages stand that are not in flight, or by `now` not any more."""
    messages = {}
    for message in state.messages.values():
        fields = [*message.record()]
        fields[IN_FLIGHT] = message.place == Place.IN_FLIGHT and message.due_at > now
        messages[message.msg_id] = fields
    return {
        "at": (state.trans_id, state.time, state.data_bytes),
        "messages": messages,
        "queues": {
            q.name: (q.settings(), q.size, q.unplaced, q.max_id, dict(q.keys.items())) for q in state.queues.values()
        },
        "names": (list(state.names), sorted(state.buckets)),
        "keys": {key: message.msg_id for key, message in state.keys.items()},
        "others": (state.facts.members, state.facts.readers, state.facts.tenures.rows),
    }
