"""Replies that hold messages: how a live message is told to who gets it."""

from typing import Any, Final

import msgspec

from quorate.protocol import PLAIN, DeliveredItem, DeliveredReply, Reply, Request
from storage.records import Encoding, Message

_raw: Final = msgspec.Raw


def wire_encoding(message: Message) -> str | None:
    """A message's encoding as replies say it."""
    return PLAIN if message.encoding == Encoding.PLAIN else None


def delivered_reply(request: Request, queue: str, messages: list[Message], count: int | None) -> Reply:
    """What the client of a consume is told that gets `messages`: one as such where it did not say how many."""
    if count is not None:
        items = [_delivered(message) for message in messages]
        return DeliveredReply(action=request.action, code=0, queue=queue, seq=request.seq, messages=items)
    message = messages[0]
    return Reply(
        action=request.action,
        code=0,
        queue=queue,
        seq=request.seq,
        msg_id=message.msg_id,
        data=_raw(message.data),
        encoding=wire_encoding(message) if message.encoding else None,
        deliveries=message.deliveries,
    )


def _delivered(message: Any) -> DeliveredItem:
    """Any, so that compiled code takes the message's numbers as they are."""
    encoding = wire_encoding(message) if message.encoding else None
    return DeliveredItem(message.msg_id, _raw(message.data), message.queue, message.deliveries, encoding)
