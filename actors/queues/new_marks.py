"""What a new message is marked with: what its producer said beside what all messages have."""

from typing import Any, Final

from storage.message import Message, shared_marks
from storage.records import ALL, BY_RETRY, DELAY, EXPIRE, HEADERS, KEEP, REPLICATE, SCOPE, TTR

GRACE_S: Final = 3
"""A TTR of gmq's runs so much longer (s); where it is another time, each job's message says what its TTR is."""


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
