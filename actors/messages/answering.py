"""Telling answers to whoever took the calls in: in pieces, each of which takes a few milliseconds at most there."""

from typing import Final

from actors.messages.call import Answer
from actors.messages.calls import Answered
from quorate.protocol import Reply

PIECE: Final = 256
"""So much one message has: small answers are 1 ms of encoding and writing."""

LARGE: Final = 32
"""What a reply counts that may hold a thousand messages or rows: 8 of those are 4 ms."""

_SMALL: Final = Reply


def send_answers(answers: list[Answer]) -> None:
    """Tell each actor its answers, in order; nearly always that is one message to one actor."""
    if not answers:
        return
    first = answers[0][0].reply_to
    size = 0
    for call, reply in answers:
        if call.reply_to is not first:
            break
        size += 1 if type(reply) is _SMALL else LARGE
    else:
        if size <= PIECE:
            first.tell(Answered(answers))
        else:
            _send_pieces(answers)
        return
    by_actor: dict[int, list[Answer]] = {}
    for answer in answers:
        by_actor.setdefault(id(answer[0].reply_to), []).append(answer)
    for group in by_actor.values():
        _send_pieces(group)


def _send_pieces(answers: list[Answer]) -> None:
    """All to the same actor."""
    receiver = answers[0][0].reply_to
    begun = size = 0
    for index, (_, reply) in enumerate(answers):
        size += 1 if type(reply) is _SMALL else LARGE
        if size >= PIECE:
            receiver.tell(Answered(answers[begun : index + 1]))
            begun, size = index + 1, 0
    if begun < len(answers):
        receiver.tell(Answered(answers[begun:]))
