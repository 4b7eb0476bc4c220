"""What a live message is part of, beside the messages by id: its queue, the keys, the bytes of all; and readers."""

from typing import TYPE_CHECKING

from storage.message import Message, is_of_all, weight
from storage.queue_state import QueueState
from storage.records import ReaderPosition

if TYPE_CHECKING:
    from storage.state import ShardState


def enter(state: "ShardState", queue: QueueState, message: Message) -> None:
    """Count it as part of its queue, unplaced."""
    state.data_bytes += weight(message)
    queue.size += 1
    queue.unplaced += 1
    key = message.key
    if key is not None:
        if is_of_all(message):
            state.keys[key] = message
        else:
            queue.keys[key] = message.msg_id


def leave(state: "ShardState", message: Message) -> None:
    """Count it as part of nothing any more, wherever it stood."""
    queue = state.queues[message.queue]
    if message.place and not state.loading:
        queue.lift(message)
    if state.kept and not message.retry_s:
        state.kept.pop(message.msg_id, None)
    state.data_bytes -= weight(message)
    queue.unplaced -= 1
    queue.size -= 1
    key = message.key
    if key is not None:
        if is_of_all(message):
            if state.keys.get(key) is message:
                del state.keys[key]
        elif queue.keys.get(key) == message.msg_id:  # see `ShardState._moved`
            del queue.keys[key]


def readers_with(
    readers: dict[str, ReaderPosition], name: str, position: ReaderPosition | None
) -> dict[str, ReaderPosition]:
    """Give the readers of a log, one of whom stands there now; None: nowhere. Another dict, so that it is seen."""
    changed = dict(readers)
    if position is None:
        changed.pop(name, None)
    else:
        changed[name] = position
    return changed
