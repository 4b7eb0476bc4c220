"""Replies that hold messages: how a live message is told to who gets it, and what a new one is marked with for that.

Where such a reply stopped is a key of `ready`, or of an order by time, as text and back.
"""

from typing import Any, Final

import msgspec

from quorate.protocol import (
    PLAIN,
    Action,
    DeliveredItem,
    DeliveredReply,
    JobFacts,
    MessageView,
    PeekReply,
    Reply,
    Request,
    ShowReply,
    Told,
)
from storage.message import Message, deliveries_in_all, is_of_all, shared_marks
from storage.message_ids import newest_record
from storage.queue_state import ALL_READY
from storage.records import (
    ALL,
    BY_RETRY,
    CONSUMER,
    DEAD,
    DELAY,
    EXPIRE,
    GMQ_MARKS,
    HEADERS,
    KEEP,
    NACKED,
    NACKS,
    REPLICATE,
    SCOPE,
    TTR,
    Encoding,
    Place,
)

READY_KEY: Final = 3
"""Priority, time and id; what waits has no priority."""

WAITING_KEY: Final = 2


def told(key: tuple[float, ...]) -> str:
    """Make what a reply calls `next`."""
    return ":".join(map(repr, key))


def key_of(after: int | str) -> tuple[float, ...] | None:
    """Read the key that was told; None: it is none. Its length says of which order it is."""
    parts = str(after).split(":")
    if len(parts) not in (READY_KEY, WAITING_KEY):
        return None
    try:
        numbers = [int(parts[0])] if len(parts) == READY_KEY else []
        return (*numbers, float(parts[-2]), int(parts[-1]))
    except ValueError:
        return None


GRACE_S: Final = 3
"""A TTR of gmq's runs so much longer (s); where it is another time, each job's message says what its TTR is."""

_raw: Final = msgspec.Raw
_Reply: Final = Reply
_DeliveredReply: Final = DeliveredReply
_DeliveredItem: Final = DeliveredItem
_CONSUME: Final = int(Action.CONSUME)

STATE_NAMES: Final = {
    Place.UNPLACED: "ready",
    Place.DELAYED: "delayed",
    Place.READY: "ready",
    Place.READY_EXPIRING: "ready",
    Place.READY_FAR: "ready",
    Place.IN_FLIGHT: "in_flight",
    Place.HELD: "delayed",
}

_JobFacts: Final = JobFacts
_Told: Final = Told
UNCOMMITTED: Final = "uncommitted"
"""The state of a message that is not ready before its record is committed, to who knows jobs."""

TAKEN: Final = "taken"
"""The state of a message that is delivered at most once, when it is told to who gets it."""


def told_ttr(retry_s: float) -> int:
    """Give the TTR of a job whose message says no other (s)."""
    return max(round(retry_s) - GRACE_S, 0)


def marks_of(
    headers: dict[str, str] | None, expire: str | None, *, keep: bool, is_of_all: bool
) -> dict[str, Any] | None:
    """Make the marks of a new message."""
    marks: dict[str, Any] = {HEADERS: headers} if headers else {}
    if expire is not None:
        marks[EXPIRE] = expire
    if keep:
        marks[KEEP] = True
    if is_of_all:
        marks[SCOPE] = ALL
    return shared_marks(marks) or None


def told_again(made: Message, delay: int | None, ttr: int | None) -> dict[str, Any]:
    """Make a message's marks with what its protocol tells again of it: delay and TTR (s)."""
    marks = {**(made.marks or {})}
    if delay is not None:
        marks[DELAY] = delay
    if ttr is not None:
        marks[TTR] = BY_RETRY if ttr == told_ttr(made.retry_s) else ttr
    return shared_marks(marks)


def marks_of_job(made: Message, replicate: int | None, usual: int, delay_s: float) -> dict[str, Any] | None:
    """Make the marks of a job with what it was asked for with, where that is not what all are; `usual`: on so many
    nodes."""
    own: dict[str, Any] = {DELAY: delay_s} if delay_s else {}
    if replicate is not None and made.retry_s and replicate != usual:
        own[REPLICATE] = replicate
    return {**(made.marks or {}), **own} if own else made.marks


def wire_encoding(message: Message) -> str | None:
    """Give a message's encoding as replies say it."""
    return _wire(message.encoding)


def _wire(encoding: int) -> str | None:
    return PLAIN if encoding == Encoding.PLAIN else None


def facts_of(message: Message, led_by: int) -> JobFacts:
    """Give what a job's id is made of, and how often it came.

    That it came again by itself is in no record, so it is reckoned: neither the first delivery was that nor were those
    behind which it was given back; but it is on its way again where it is ready and was not given back last.
    """
    marks = message.marks
    nacks = 0 if marks is None else int(marks.get(NACKS, 0))
    additional = max(0, message.deliveries - 1 - nacks)
    if message.deliveries and message.place in ALL_READY and (marks is None or marks.get(NACKED) != message.deliveries):
        additional += 1
    return _JobFacts(led_by, message.expires_at - message.produced_at, message.retry_s, nacks, additional)


def delivered_reply(
    request: Request, queue: str, messages: list[Message], count: int | None, facts: list[JobFacts] | None = None
) -> Reply:
    """Make what the client of a consume is told that gets `messages`: one as such where it did not say how many."""
    seq: Any = request.seq
    if request.full:
        return _full_reply(request, queue, messages, count)
    if count is not None:
        if facts is None:
            items = [_delivered(message) for message in messages]
        else:
            items = [_delivered(message, job) for message, job in zip(messages, facts, strict=True)]
        return _DeliveredReply(action=_CONSUME, code=0, queue=queue, seq=seq, messages=items)
    message = messages[0]
    here, in_all = message.deliveries, deliveries_in_all(message)
    told = None if request.ttr is None else told_of(message)
    return _Reply(
        action=_CONSUME,
        code=0,
        queue=queue,
        seq=seq,
        msg_id=message.msg_id,
        data=_raw(message.data),
        encoding=_wire(message.encoding),
        deliveries=in_all,
        deliveries_here=None if here == in_all else here,
        headers=None if message.marks is None else message.marks.get(HEADERS),
        job=None if facts is None else facts[0],
        told=told,
    )


def told_of(message: Message) -> Told:
    """Make what is told of a message to who knows keys that are one among all."""
    key = message.key if is_of_all(message) else None
    marks = message.marks
    if marks is GMQ_MARKS:
        return _Told(key, message.retry_s, told_ttr(message.retry_s), None)
    if marks is None:
        return _Told(key, message.retry_s, None, None)
    ttr, delay = marks.get(TTR), marks.get(DELAY)
    delay_s = None if delay is None else int(delay)
    return _Told(key, message.retry_s, told_ttr(message.retry_s) if ttr == BY_RETRY else ttr, delay_s)


def _delivered(message: Message, job: JobFacts | None = None) -> DeliveredItem:
    encoding = _wire(message.encoding)
    headers = None if message.marks is None else message.marks.get(HEADERS)
    here, in_all = message.deliveries, deliveries_in_all(message)
    item = _DeliveredItem(message.msg_id, _raw(message.data), message.queue, in_all, encoding, headers, job)
    if here != in_all:
        item.deliveries_here = here
    return item


def _full_reply(request: Request, queue: str, messages: list[Message], count: int | None) -> Reply:
    views = [view_of(message) for message in messages]
    for view in views:
        if not view.retry and not view.keep:
            view.state = TAKEN
    if count is not None:
        return PeekReply(action=_CONSUME, code=0, queue=queue, seq=request.seq, messages=views)
    view = views[0]
    return ShowReply(action=_CONSUME, code=0, queue=queue, seq=request.seq, msg_id=view.msg_id, message=view)


def state_of(message: Message, *, is_job: bool) -> str:
    """Give the state that it is told to have; `is_job`: to who knows jobs."""
    return UNCOMMITTED if is_job and message.place == Place.UNPLACED else STATE_NAMES[message.place]


def view_of(message: Message, led_by: int | None = None) -> MessageView:
    """Show a message as peek and show give it; `led_by`: to who knows jobs."""
    marks = message.marks or {}
    return MessageView(
        msg_id=message.msg_id,
        queue=message.queue,
        data=msgspec.Raw(message.data),
        state=state_of(message, is_job=led_by is not None),
        produced_at=message.produced_at,
        due_at=message.due_at,
        expires_at=message.expires_at,
        retry=message.retry_s,
        priority=message.priority,
        deliveries=deliveries_in_all(message),
        deliveries_here=message.deliveries,
        trans_id=newest_record(message),
        key=message.key,
        encoding=wire_encoding(message),
        consumer=marks.get(CONSUMER),
        headers=marks.get(HEADERS),
        expire=marks.get(EXPIRE),
        dead=marks.get(DEAD),
        nacks=marks.get(NACKS),
        keep=marks.get(KEEP),
        delay=marks.get(DELAY),
        replicate=marks.get(REPLICATE),
        scope=marks.get(SCOPE),
        ttr=told_ttr(message.retry_s) if marks.get(TTR) == BY_RETRY else marks.get(TTR),
        job=None if led_by is None else facts_of(message, led_by),
    )
