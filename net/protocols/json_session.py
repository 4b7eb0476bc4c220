"""The JSON protocol as a session: a request is one object, and its answer one line.

Nearly all input is one whole object a read; that is decoded at once. Everything else (split objects, several in one
read, garbage) goes through the framer. Both ways give the same: tests/net/protocols/test_json_session.py feeds the same
bytes whole and byte by byte. A request of some hundred KiB is judged in steps, each in a turn of its own (`has_more`).
"""

from collections import deque
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from net.ignored_fields import IgnoredFields
from net.node_facts import USUAL, ListenerFacts, NodeFacts
from net.protocols.json_framing import ObjectFramer
from net.protocols.json_payload import shown
from net.protocols.json_reading import (
    LARGE_BODY_BYTES,
    SHOWN_BYTES_MAX,
    Judging,
    decode_whole,
)
from net.protocols.json_shapes import Loose
from net.protocols.json_transactions import JudgingOperations, decode, judging
from net.protocols.json_unknown import READING_ERRORS
from net.protocols.session import LARGE_BYTES, Ask, Fault, Found, RequestLimits, Session
from quorate.log_replies import LogReplyWithEntries
from quorate.protocol import (
    Code,
    DeliveredReply,
    PeekReply,
    Reply,
    Request,
    ScanReply,
    ShowReply,
    name_fault,
)
from quorate.stream_replies import RawReadReplyWithFrames, ReadReply

STEPS_BYTES: Final = 256 << 10
"""A request of more bytes is judged in steps, so that others have their turn between them."""

NOTHING_SEEN: Final = (0, 0)
"""Of what the framer gives that is no object."""

HOLD_MESSAGES: Final = frozenset({DeliveredReply, PeekReply, ScanReply, ShowReply, ReadReply})
_PLAIN_REPLY: Final = Reply
_decode_loose: Final = msgspec.json.Decoder(Loose).decode
_decode_any: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class JsonSession(Session):
    """One client's stream. `receive` may be called with any piece of it."""

    def __init__(self, limits: RequestLimits, ignored: IgnoredFields | None = None) -> None:
        super().__init__()
        self._ignored = ignored or IgnoredFields()
        self._limits = limits
        self._framer = ObjectFramer(limits.request_bytes_max, limits.depth_max)
        self._left: deque[tuple[bytes | Fault, tuple[int, int]]] = deque()
        self._judged: Judging | JudgingOperations | None = None
        self._judged_bytes = 0

    def discard(self) -> None:
        """Nothing more is received."""
        super().discard()
        self._framer = ObjectFramer(self._limits.request_bytes_max, self._limits.depth_max)
        self._left.clear()
        self._judged = None
        self._judged_bytes = 0

    @property
    def has_more(self) -> bool:
        """Whether what came holds very many requests, or a large one."""
        return self._judged is not None or bool(self._left) or self._framer.has_more

    @property
    def state(self) -> bytes | None:
        """Nothing, where the next byte begins something new: a request says all that there is to know."""
        return b"" if self._framer.is_idle and not self.has_more else None

    def answered(self, request: Request | None, reply: Reply, note: Any = None) -> bytes | Request | Ask:
        """Make the reply one line, and behind it the entries of a raw log. `note`: the names of fields that were
        ignored."""
        if note is not None:
            reply = replace(reply, ignored=note)
        return encode_reply(reply)

    def fault_reply(self, fault: Fault) -> Reply:
        """Make the reply to a fault, with the request's action, queue and seq where they can be read."""
        return fault_reply(fault)

    def receive(self, data: bytes) -> list[Found]:
        """Find the requests and faults that `data` completes, in order."""
        size = len(data)
        is_idle = self._framer.is_idle and not self._left and self._judged is None
        if is_idle and size <= LARGE_BODY_BYTES and size <= self._limits.request_bytes_max:
            one = decode_whole(data, self._limits)
            if one is not None:
                if size > LARGE_BYTES:
                    self.large = {0: size}
                elif self.large:
                    self.large = {}
                return [one]
        left = self._left
        if data or not (left or self._judged is not None):
            frames = self._framer.feed(data)
            seen = iter(self._framer.seen)
            left.extend([(one, next(seen) if isinstance(one, bytes) else NOTHING_SEEN) for one in frames])
        found: list[Found] = []
        self.large = {}
        if self._judged is not None:
            self._go_on(self._judged, found)
        while self._judged is None and left:
            frame, facts = left.popleft()
            if isinstance(frame, Fault):
                found.append(frame)
                continue
            if len(frame) > STEPS_BYTES:
                self._judged, self._judged_bytes = judging(frame, self._limits, facts), len(frame)
                break
            if len(frame) > LARGE_BYTES:
                self.large[len(found)] = len(frame)
            self._add(found, decode(frame, self._limits, facts))
        left_bytes = sum([len(frame) for frame, _ in left if isinstance(frame, bytes)])
        self.partial_bytes = self._framer.partial_bytes + self._judged_bytes + left_bytes
        return found

    def _go_on(self, judged: Judging | JudgingOperations, found: list[Found]) -> None:
        """One step more with a large request."""
        outcome = judged.step()
        if outcome is not None:
            self.large[len(found)] = self._judged_bytes
            self._add(found, outcome)
            self._judged = None
            self._judged_bytes = 0

    def _add(self, found: list[Found], one: Found) -> None:
        if isinstance(one, Ask):
            self._ignored.note(one.note)
        found.append(one)


def session(limits: RequestLimits, facts: NodeFacts | None = None, *, listener: ListenerFacts = USUAL) -> Session:
    """Make a client's session; of the node it knows where to count the fields that are ignored."""
    return JsonSession(limits, None if facts is None else facts.ignored)


def encode_reply(reply: Reply) -> bytes:
    """Make the reply one line, and behind it the entries of a raw log."""
    kind = type(reply)
    if kind is not _PLAIN_REPLY and kind is LogReplyWithEntries:
        return _with_entries(cast("LogReplyWithEntries", reply))
    if kind is not _PLAIN_REPLY and kind is RawReadReplyWithFrames:
        return _with_frames(cast("RawReadReplyWithFrames", reply))
    if reply.encoding is not None or (kind is not _PLAIN_REPLY and kind in HOLD_MESSAGES):
        reply = shown(reply)
    return _encode(reply) + b"\n"


def _with_entries(reply: LogReplyWithEntries) -> bytes:
    """Make the reply's line, and each entry behind its length: put together once."""
    entries, reply.entries = reply.entries, []
    parts = [_encode(reply), b"\n"]
    for entry in entries:
        parts.append(len(entry).to_bytes(4, "big"))
        parts.append(entry)
    return b"".join(parts)


def _with_frames(reply: RawReadReplyWithFrames) -> bytes:
    """Make the reply's line, and behind it the messages' frames."""
    frames, reply.frames = reply.frames, []
    return b"".join([_encode(reply), b"\n", *frames])


def fault_reply(fault: Fault) -> Reply:
    """Make the reply to a fault, with the request's action, queue and seq where they can be read."""
    reply = Reply(action=0, code=Code.ERROR, error=fault.error, reason=fault.reason)
    if fault.body:
        try:
            loose = _decode_loose(fault.body)
            action, queue, seq = _shown_of(loose.action), _shown_of(loose.queue), _shown_of(loose.seq)
        except READING_ERRORS:
            return reply
        if isinstance(action, int) and not isinstance(action, bool):
            reply.action = action
        if isinstance(queue, str) and name_fault(queue) is None:
            reply.queue = queue
        if isinstance(seq, (int, float, str)):
            reply.seq = seq
    return reply


def _shown_of(value: Any) -> object:
    """Give a field's value, where it came and is short enough to be said again."""
    return None if value is UNSET or memoryview(value).nbytes >= SHOWN_BYTES_MAX else _decode_any(value)
