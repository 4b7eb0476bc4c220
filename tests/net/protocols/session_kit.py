"""What every protocol must pass: any bytes, however they are cut, make requests and faults, and nothing else.

`check_stream` and `check_replies` are asked of each protocol in tests/net/protocols/test_session_kit.py, which gives
the kit that protocol's own words (`Words`); `mutated` makes any number of streams of them. `python -m
tests.net.protocols.test_session_kit gmq N` does so N times.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from net.peers.forwarding import REPLY_KINDS
from net.protocols.session import Ask, Close, Fault, Say, Session
from quorate.protocol import Reply, Request


class Words(NamedTuple):
    """A protocol's: `requests` that are right, and `pieces` that faulty streams of it are made of."""

    make: Callable[[], Session]
    requests: list[bytes]
    pieces: list[bytes]


def said(session: Session, pieces: list[bytes]) -> list[bytes]:
    """What comes of a stream that arrives in those pieces, comparable: requests, and what is answered to faults."""
    found: list[bytes] = []
    for piece in pieces:
        came = session.receive(piece)
        while session.has_more:
            came += session.receive(b"")
        for one in came:
            if isinstance(one, Request):
                found.append(msgspec.msgpack.encode(_shown(one)))
            elif isinstance(one, Ask):
                note = one.note  # of a function its name, and not where it is; a compiled closure has its type's alone
                if callable(note):
                    note = getattr(note, "__qualname__", type(note).__name__)
                found.append(msgspec.msgpack.encode(_shown(one.request)) + str(note).encode())
            elif isinstance(one, Say):
                found.append(one.data)
            elif isinstance(one, Close):
                return [*found, b"closed"]
            else:
                said_of_it = session.answered(None, session.fault_reply(one))
                assert isinstance(said_of_it, bytes)
                found.append(said_of_it + bytes([one.is_fatal]))
                if one.is_fatal:
                    return found
        assert session.partial_bytes >= 0
        assert all(0 <= index < 1 << 20 and size > 0 for index, size in session.large.items())
    return found


def _shown(request: Request) -> dict[str, Any]:
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    fields["data"] = bytes(request.data)
    fields["messages"] = [
        {name: bytes(value) if name == "data" else value for name, value in msgspec.structs.asdict(item).items()}
        for item in request.messages or ()
    ]
    fields["dead_letter"] = repr(request.dead_letter)
    return fields


def check_stream(words: Words, stream: bytes, draw: random.Random) -> None:
    """The same comes of it whole, byte by byte, and in pieces of any size; nothing raises."""
    whole = said(words.make(), [stream])
    assert said(words.make(), [stream[at : at + 1] for at in range(len(stream))]) == whole, stream[:300]
    for _ in range(2):
        cuts = sorted(draw.randrange(len(stream) + 1) for _ in range(draw.randrange(1, 6)))
        pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        assert said(words.make(), pieces) == whole, [piece[:100] for piece in pieces]


def mutated(words: Words, draw: random.Random) -> Iterator[bytes]:
    """Streams without end: requests and pieces one behind the other, with bytes changed, doubled, cut and put in."""
    while True:
        parts = [draw.choice(draw.choice((words.requests, words.pieces))) for _ in range(draw.randrange(1, 5))]
        stream = bytearray(b"".join(parts))
        for _ in range(draw.choice((0, 0, 1, 1, 2, 6))):
            at = draw.randrange(len(stream) + 1)
            kind = draw.randrange(5)
            if kind == 0:
                stream[at:at] = draw.choice(words.pieces)
            elif kind == 1:
                del stream[at : at + draw.randrange(1, 9)]
            elif kind == 2:
                stream[at : at + 1] = bytes([draw.randrange(256)])
            elif kind == 3:
                stream[at:at] = stream[at : at + draw.randrange(1, 40)]
            else:
                other = draw.choice(words.requests)
                start = draw.randrange(len(other))
                stream[at:at] = other[start : start + draw.randrange(1, 40)]
        yield bytes(stream)


PIECES = ((1, 64 << 10), (7, 256 << 10), (1448, 1 << 20), (65536, 1 << 20))
"""Pieces that a stream comes in, and how long it is: a dribble, some bytes, an Ethernet frame, a read."""

QUADRATIC = 16
"""What takes time in proportion to the square of the bytes takes so many times as long for four times as many."""


def feed(session: Session, stream: bytes, piece: int) -> None:
    """Feed a stream in pieces of so many bytes, and take what it asks for in as many steps as that takes."""
    for at in range(0, len(stream), piece):
        found = session.receive(stream[at : at + piece])
        while session.has_more:
            found += session.receive(b"")
        if any(isinstance(one, Close) or (isinstance(one, Fault) and one.is_fatal) for one in found):
            break  # nothing more is given to it


def longest_step_s(make: Callable[[], Session], stream: bytes, read: int = 256 << 10, tries: int = 3) -> float:
    """Measure the longest step of a session that hears a stream as a node reads it (CPU seconds; the least of some).

    As in a node's loop, which collects garbage between turns, no step looks through all that there is.
    """
    gc.disable()
    try:
        return min(max(_step_times(make(), stream, read)) for _ in range(tries))
    finally:
        gc.enable()


def _step_times(session: Session, stream: bytes, read: int) -> Iterator[float]:
    for at in range(0, len(stream), read):
        data = stream[at : at + read]
        while True:
            begun = time.thread_time()
            found = session.receive(data)
            yield time.thread_time() - begun
            if any(isinstance(one, Close) for one in found):
                return
            if not session.has_more:
                break
            data = b""


def check_replies(words: Words) -> None:
    """Every kind of reply has a form, beside the request and for nobody's."""
    for kind in REPLY_KINDS:
        for request in (None, Request(1, queue="q"), Request(2, queue="q", seq="x")):
            assert isinstance(words.make().answered(request, sample(kind)), bytes)


def sample(kind: type[Reply]) -> Reply:
    """A reply of that kind, with all that it must have."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            values[field.name] = _value(field.type)
    return kind(**values)


def _value(wanted: Any) -> Any:
    for kind, value in ((int, 1), (float, 1.5), (str, "x"), (bool, True)):
        if wanted is kind:
            return value
    return [] if getattr(wanted, "__origin__", None) is list else None
