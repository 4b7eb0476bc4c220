"""Replies that hold messages: how a live message is told to who gets it."""

from typing import Any, Final

import msgspec

from quorate.protocol import PLAIN, Action, DeliveredItem, DeliveredReply, Reply, Request
from storage.records import Encoding, Message

_raw: Final = msgspec.Raw
_Reply: Final = Reply
_DeliveredReply: Final = DeliveredReply
_DeliveredItem: Final = DeliveredItem
_CONSUME: Final = int(Action.CONSUME)


def wire_encoding(message: Message) -> str | None:
    """A message's encoding as replies say it."""
    return PLAIN if message.encoding == Encoding.PLAIN else None


def delivered_reply(request: Request, queue: str, messages: list[Message], count: int | None) -> Reply:
    """What the client of a consume is told that gets `messages`: one as such where it did not say how many."""
    seq: Any = request.seq
    if count is not None:
        items = [_delivered(message) for message in messages]
        return _DeliveredReply(action=_CONSUME, code=0, queue=queue, seq=seq, messages=items)
    message: Any = messages[0]
    return _Reply(
        action=_CONSUME,
        code=0,
        queue=queue,
        seq=seq,
        msg_id=message.msg_id,
        data=_raw(message.data),
        encoding=wire_encoding(message) if message.encoding else None,
        deliveries=message.deliveries,
    )


def _delivered(message: Any) -> DeliveredItem:
    """Any, so that compiled code takes the message's numbers as they are."""
    encoding = wire_encoding(message) if message.encoding else None
    return _DeliveredItem(message.msg_id, _raw(message.data), message.queue, message.deliveries, encoding)
