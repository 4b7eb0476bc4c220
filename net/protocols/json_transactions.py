"""Transactions in JSON: a request whose operations are requests, each judged as if it had come alone.

What has no operations is `json_reading`'s: nearly all requests, which pay one search for the field's name, and only
where they are not small and usual.
"""

from collections.abc import Generator
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw

from net.protocols.json_framing import Brackets
from net.protocols.json_reading import Judging, decode_request, reading_fault
from net.protocols.json_shapes import Batch, TransactionAsItCame, UsualTransaction
from net.protocols.json_unknown import READING_ERRORS
from net.protocols.session import Ask, Fault, RequestLimits
from quorate.protocol import BATCH_MAX, NAMED_MAX, Action, ErrorWord, Request, TransactionRequest
from quorate.request_faults import named_in, operations_fault

OPERATIONS: Final = b'"operations"'
READ: Final = ("action", "seq", "patience", "xid")
"""What else is read of a transaction: all other fields may be there, and mean nothing."""

NOT_SEEN: Final = (0, 0)
TRANSACTION: Final = str(int(Action.TRANSACTION)).encode()
STEP_BYTES: Final = 64 << 10
STEP_OPERATIONS: Final = 50
"""So many operations, or so many bytes of them, are judged in one step: some ms."""

_texts_of: Final = msgspec.json.Decoder(TransactionAsItCame).decode
_usual_in: Final = msgspec.json.Decoder(UsualTransaction).decode
_count_list: Final = msgspec.json.Decoder(Batch).decode
_items_in: Final = msgspec.json.Decoder(list[Raw]).decode
_encode: Final = msgspec.json.Encoder().encode

Outcome = Request | Ask | Fault


class JudgingOperations:
    """A transaction, judged step by step, as `Judging` does with other requests."""

    def __init__(self, body: bytes, limits: RequestLimits, seen: tuple[int, int]) -> None:
        self._steps = _judge(body, limits, seen)

    def step(self) -> Outcome | None:
        """One step more; what came of it, None: there are more."""
        try:
            next(self._steps)
        except StopIteration as end:
            return cast("Outcome", end.value)
        return None


def judging(body: bytes, limits: RequestLimits, seen: tuple[int, int]) -> Judging | JudgingOperations:
    """Begin to judge a large request, which the framer has `seen`."""
    return JudgingOperations(body, limits, seen) if OPERATIONS in body else Judging(body, limits.depth_max, seen)


def decode(body: bytes, limits: RequestLimits, seen: tuple[int, int]) -> Outcome:
    """Read the request that `body`, one whole object, holds, with operations or without."""
    if OPERATIONS not in body:
        return decode_request(body, limits, seen)
    steps = JudgingOperations(body, limits, seen)
    while (outcome := steps.step()) is None:
        pass
    return outcome


def _judge(body: bytes, limits: RequestLimits, seen: tuple[int, int]) -> Generator[None, None, Outcome]:
    outer: Any = _usual(body, seen[0])
    if outer is not None:
        operations = outer.operations
    else:
        found = _unusual(body, limits, seen[0])
        if found is None:
            return (yield from _alone(body, limits, seen))
        if isinstance(found, Ask | Fault):
            return found
        outer, operations = found
    done = yield from _judge_each(operations, limits, seen[1])
    if isinstance(done, Fault):
        rest = {"action": outer.action, **({} if outer.seq is None else {"seq": outer.seq})}
        return done._replace(body=_encode(rest))
    xid = outer.xid if isinstance(outer, Request) else None
    return TransactionRequest(outer.action, seq=outer.seq, patience=outer.patience, xid=xid, operations=done)


def _judge_each(operations: Raw, limits: RequestLimits, commas: int) -> Generator[None, None, list[Request] | Fault]:
    """Read the operations; how many commas the body has says whether they are to be counted first."""
    try:
        if commas >= BATCH_MAX:
            yield
            _count_list(operations)
            yield
        texts = _items_in(operations)
    except READING_ERRORS as error:
        return _fault_of_list(error, limits)
    done: list[Request] = []
    size = named = 0
    for index, raw in enumerate(texts):
        text = bytes(raw)
        size += len(text)
        if index and (size > STEP_BYTES or not index % STEP_OPERATIONS):
            size = 0
            yield
        one = decode_request(text, limits, NOT_SEEN) if len(text) <= STEP_BYTES and text[:1] == b"{" else None
        if not isinstance(one, Request):  # large, or wrong: then it is looked at as the framer does
            one = yield from _operation(text, limits)
        if isinstance(one, Fault):
            return Fault(one.error, f"operations[{index}]: {one.reason}")
        done.append(one)
        named += named_in(one)
        if named > NAMED_MAX:
            break  # before there are a thousand times as many
    why = operations_fault(done)
    return done if why is None else Fault(ErrorWord.FIELD, why)


def _unusual(body: bytes, limits: RequestLimits, fields: int) -> tuple[Request, Raw] | Ask | Fault | None:
    """Read a transaction with other fields beside its own: what is read of it, and its operations. None: it is another
    request."""
    try:
        found: Any = _texts_of(body)
    except READING_ERRORS as error:
        return reading_fault(error, body, limits.depth_max)
    if found.operations is UNSET or found.action is UNSET or bytes(found.action) != TRANSACTION:
        return None
    rest = _encode({name: text for name in READ if (text := getattr(found, name)) is not UNSET})
    if sum([value is not UNSET for value in msgspec.structs.astuple(found)]) != fields:
        return Fault(ErrorWord.FIELD, "a field stands there twice, or is none", body=rest)
    read = decode_request(rest, limits, (len(READ), 0))
    return (read, found.operations) if isinstance(read, Request) else read


def _usual(body: bytes, fields: int) -> Any:
    """Read a transaction that has but what nearly all have; None: it is another, or wrong."""
    try:
        found = _usual_in(body)
    except READING_ERRORS:
        return None
    known = 1 + (found.operations is not UNSET) + (found.seq is not None) + (found.patience is not None)
    is_usual = found.action == Action.TRANSACTION and found.operations is not UNSET and known == fields
    return found if is_usual else None


def _operation(text: bytes, limits: RequestLimits) -> Generator[None, None, Request | Fault]:
    """Read one operation, as the request that it would be alone."""
    if not text.startswith(b"{"):
        return Fault(ErrorWord.FIELD, "an operation is a JSON object")
    brackets, at = Brackets(), 0
    while (at := brackets.pass_over(text, at, min(at + STEP_BYTES, len(text)))) < len(text):
        yield
    one = yield from _alone(text, limits, (brackets.fields, brackets.commas))
    if isinstance(one, Ask):
        return Fault(ErrorWord.FIELD, f"there is no field {one.note[0]!r}")
    return one


def _alone(body: bytes, limits: RequestLimits, seen: tuple[int, int]) -> Generator[None, None, Outcome]:
    """Read a request without operations."""
    if len(body) <= STEP_BYTES:
        return decode_request(body, limits, seen)
    steps = Judging(body, limits.depth_max, seen)
    while (outcome := steps.step()) is None:
        yield
    return outcome


def _fault_of_list(error: Exception, limits: RequestLimits) -> Fault:
    """Say why the operations are none."""
    if isinstance(error, msgspec.ValidationError):
        return Fault(ErrorWord.FIELD, f"operations: a list of 1 to {BATCH_MAX} requests")
    fault = reading_fault(error, b"", limits.depth_max)
    return Fault(fault.error, f"operations: {fault.reason}")
