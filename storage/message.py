"""A live message in memory. What the log and the backlog say of it is a `Produce`; this is where it stands now.

A class of its own, beside the record: a field of a Struct costs compiled code 160 instructions and one of these 5, and
a message's are read and written some thirty times between its first record and its last (bench/instructions.py).
Interpreted code pays for it: the garbage collector looks through what it makes of this class, and not through Structs.
With two million of them its longest pause was 120 instead of 19 ms.
"""

from typing import Any, Final

from msgspec.structs import astuple
from mypy_extensions import mypyc_attr

from storage.records import (
    BEFORE,
    BURY,
    BY_RETRY,
    DEAD,
    EXPIRE,
    GMQ_MARKS,
    HEADERS,
    JOB_KEPT_MARKS,
    JOB_MARKS,
    KEEP,
    LASTS,
    NUMBERED_MARKS,
    SCOPE,
    SCOPE_MARKS,
    TIME_MAX_S,
    TTR,
    Change,
    Produce,
)

_fields_of: Final = astuple
_JOB: Final = JOB_MARKS
_JOB_KEPT: Final = JOB_KEPT_MARKS
_SCOPE: Final = SCOPE_MARKS
_GMQ: Final = GMQ_MARKS
_NUMBERED: Final = NUMBERED_MARKS
assert NUMBERED_MARKS == {1: _JOB, 2: _JOB_KEPT, 3: _SCOPE, 4: _GMQ}, "what `record` writes"
_TAG: Final = 1
assert Produce.__struct_config__.tag == _TAG
assert Produce.__struct_config__.array_like
assert Produce.__struct_fields__ == (
    "queue",
    "msg_id",
    "data",
    "produced_at",
    "due_at",
    "expires_at",
    "retry_s",
    "priority",
    "key",
    "deliveries",
    "place",
    "last",
    "encoding",
    "marks",
)


@mypyc_attr(acyclic=True)  # no part of a cycle: compiled, a million of them are nothing to the garbage collector
class Message:
    """A live message. Its fields are a `Produce`'s, and mean the same.

    Life: produced, it is unplaced until its record is committed; then delayed until `due_at`, then ready; delivered,
    it is gone (`retry_s` 0) or in flight until `due_at`, and then ready again, until it is confirmed or may not be
    delivered any more. One that `is_dropped` goes when it expires in any case. `last` is the trans_id of its newest
    record, 0 while that is the produce record.
    """

    __slots__ = (
        "data",
        "deliveries",
        "due_at",
        "encoding",
        "expires_at",
        "key",
        "last",
        "marks",
        "msg_id",
        "place",
        "priority",
        "produced_at",
        "queue",
        "retry_s",
    )

    def __init__(
        self,
        queue: str,
        msg_id: int,
        data: bytes,
        produced_at: float,
        due_at: float,
        expires_at: float,
        retry_s: float,
        priority: int,
        key: str | None,
        deliveries: int = 0,
        place: int = 0,
        last: int = 0,
        encoding: int = 0,
        marks: dict[str, Any] | None = None,
    ) -> None:
        self.queue = queue
        self.msg_id = msg_id
        self.data = data
        self.produced_at = produced_at
        self.due_at = due_at
        self.expires_at = expires_at
        self.retry_s = retry_s
        self.priority = priority
        self.key = key
        self.deliveries = deliveries
        self.place = place
        self.last = last
        self.encoding = encoding
        self.marks = marks

    def record(self) -> tuple[Any, ...]:
        """Give what a `Produce` with these fields is encoded as; the encoder takes either."""
        marks: Any = self.marks
        if marks is not None:
            if marks is _JOB:
                marks = 1
            elif marks is _JOB_KEPT:
                marks = 2
            elif marks is _SCOPE:
                marks = 3
            elif marks is _GMQ:
                marks = 4
        return (
            _TAG,
            self.queue,
            self.msg_id,
            self.data,
            self.produced_at,
            self.due_at,
            self.expires_at,
            self.retry_s,
            self.priority,
            self.key,
            self.deliveries,
            self.place,
            self.last,
            self.encoding,
            marks,
        )


def weight(message: Message | Produce) -> int:
    """Count the bytes that clients have given it: its data, its headers, and why it was buried."""
    marks = message.marks
    if marks is None or isinstance(marks, int):
        return len(message.data)
    return len(message.data) + marks_bytes(marks)


def marks_bytes(marks: dict[str, Any]) -> int:
    """Of those, what its marks hold. Characters of names and texts count four times, as they may need."""
    if marks is _JOB or marks is _GMQ:  # nearly always: they have neither
        return 0
    size = 0
    headers: Any = marks.get(HEADERS)
    if headers is not None:
        size = sum([len(name) + len(text) for name, text in headers.items()])
    dead: Any = marks.get(DEAD)
    if dead is not None:
        size += len(dead.get("queue", "")) + len(dead.get("reason", ""))
    return 4 * size


def shared_marks(marks: dict[str, Any]) -> dict[str, Any]:
    """Give the same marks, in memory once for all messages that have no others: whatever changes them makes others."""
    if marks.get(EXPIRE) == BURY:
        if len(marks) == 1:
            return _JOB
        if len(marks) == 2 and KEEP in marks:
            return _JOB_KEPT
    elif SCOPE in marks:
        if len(marks) == 1:
            return _SCOPE
        if len(marks) == 2 and marks.get(TTR) == BY_RETRY:
            return _GMQ
    return marks


def marks_with(marks: dict[str, Any] | None, name: str, value: Any) -> dict[str, Any] | None:
    """Give marks in which that one has this value; None: they have it no more."""
    if value is not None:
        return {**(marks or {}), name: value}
    if marks is None or name not in marks:
        return marks
    return {one: mark for one, mark in marks.items() if one != name} or None


def deliveries_in_all(message: Message) -> int:
    """Count a message's deliveries in all queues that it was in, which goes on when it is moved or buried."""
    marks = message.marks
    return message.deliveries if marks is None else message.deliveries + int(marks.get(BEFORE, 0))


def lasts(message: Message) -> float:
    """For how long a message was to live from its production, or from its last move (s); `TIME_MAX_S`: for ever."""
    marks = message.marks
    if marks is not None and LASTS in marks:
        return float(marks[LASTS])
    return TIME_MAX_S if message.expires_at >= TIME_MAX_S else message.expires_at - message.produced_at


def is_dropped(marks: dict[str, Any] | None) -> bool:
    """Whether a message with those marks goes when it expires, delivered or not."""
    return marks is not None and (marks is _JOB or EXPIRE in marks)


def is_buried(marks: dict[str, Any] | None) -> bool:
    """Whether it does so also out of the hands of who holds it, to its dead letter queue, if it has one."""
    return marks is not None and marks.get(EXPIRE) == BURY


def is_kept(marks: dict[str, Any] | None) -> bool:
    """Whether a message with those marks stays when it is delivered, though that is at most once."""
    return marks is not None and KEEP in marks


def is_of_all(message: Message) -> bool:
    """Whether a message's key is unique among all that are marked so, and stays its own in whatever queue it is."""
    marks = message.marks
    return marks is not None and (marks is _GMQ or SCOPE in marks)


def is_endless(message: Message) -> bool:
    """Whether it never expires, in whatever queue it is: a job of gmq's."""
    return message.marks is not None and TTR in message.marks


Made = Message | Change
"""What a leader makes: records, and messages, which stand for the record that produces them."""


def message_of(record: Produce) -> Message:
    """Make the message that a record, or a row of the backlog, is about.

    Spelled out, since a restart makes a million of them: compiled, `Message(*fields)` takes 190 ns instead of 140.
    """
    (
        queue,
        msg_id,
        data,
        produced_at,
        due_at,
        expires_at,
        retry_s,
        priority,
        key,
        deliveries,
        place,
        last,
        encoding,
        marks,
    ) = _fields_of(record)
    if isinstance(marks, int):
        marks = _NUMBERED[marks]
    return Message(
        queue,
        msg_id,
        data,
        produced_at,
        due_at,
        expires_at,
        retry_s,
        priority,
        key,
        deliveries,
        place,
        last,
        encoding,
        marks,
    )
