"""Replies that hold messages: how a live message is told to who gets it."""

from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from quorate.protocol import PLAIN, Action, DeliveredItem, DeliveredReply, Reply, Request
from storage.records import At, Encoding, Message

_raw: Final = msgspec.Raw
_Reply: Final = Reply
_DeliveredReply: Final = DeliveredReply
_DeliveredItem: Final = DeliveredItem
_CONSUME: Final = int(Action.CONSUME)
_fields_of: Final = astuple


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
    held = _fields_of(messages[0])
    return _Reply(
        action=_CONSUME,
        code=0,
        queue=queue,
        seq=seq,
        msg_id=held[At.MSG_ID],
        data=_raw(held[At.DATA]),
        encoding=_wire(held[At.ENCODING]),
        deliveries=held[At.DELIVERIES],
    )


def _delivered(message: Message) -> DeliveredItem:
    held = _fields_of(message)
    encoding = _wire(held[At.ENCODING])
    return _DeliveredItem(held[At.MSG_ID], _raw(held[At.DATA]), held[At.QUEUE], held[At.DELIVERIES], encoding)
