"""Replies that hold messages: how a live message is told to who gets it."""

from typing import Any, Final

import msgspec

from quorate.protocol import PLAIN, Action, DeliveredItem, DeliveredReply, Reply, Request
from storage.message import Message
from storage.records import Encoding

_raw: Final = msgspec.Raw
_Reply: Final = Reply
_DeliveredReply: Final = DeliveredReply
_DeliveredItem: Final = DeliveredItem
_CONSUME: Final = int(Action.CONSUME)


def wire_encoding(message: Message) -> str | None:
    """A message's encoding as replies say it."""
    return _wire(message.encoding)


def _wire(encoding: int) -> str | None:
    return PLAIN if encoding == Encoding.PLAIN else None


def delivered_reply(request: Request, queue: str, messages: list[Message], count: int | None) -> Reply:
    """What the client of a consume is told that gets `messages`: one as such where it did not say how many."""
    seq: Any = request.seq
    if count is not None:
        items = [_delivered(message) for message in messages]
        return _DeliveredReply(action=_CONSUME, code=0, queue=queue, seq=seq, messages=items)
    message = messages[0]
    return _Reply(
        action=_CONSUME,
        code=0,
        queue=queue,
        seq=seq,
        msg_id=message.msg_id,
        data=_raw(message.data),
        encoding=_wire(message.encoding),
        deliveries=message.deliveries,
    )


def _delivered(message: Message) -> DeliveredItem:
    encoding = _wire(message.encoding)
    return _DeliveredItem(message.msg_id, _raw(message.data), message.queue, message.deliveries, encoding)
