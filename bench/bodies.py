"""python -m bench.bodies: for how long a JSON request of nearly 4 MiB holds the loop, by what is in it.

Each comes in pieces, as from a socket; what counts is the longest that one turn takes (processor time), the last as a
rule, with which the request is judged, and answered where it is wrong. The best of some rounds: the machine is shared.
"""

import argparse
import time
from typing import Final

from net.protocols.json_session import JsonSession
from net.protocols.session import Fault, RequestLimits
from quorate_compiled import running

PIECE_BYTES: Final = 256 << 10
WANTED_MS: Final = 20.0

_BEGIN: Final = b'{"action":1,"queue":"q",'
BODIES: Final = {
    "one text": _BEGIN + b'"data":"' + b"x" * 4_000_000 + b'"}',
    "escapes": _BEGIN + b'"data":"' + b"\\n" * 2_000_000 + b'"}',
    "base64": _BEGIN + b'"encoding":"base64","data":"' + b"QUJD" * 1_000_000 + b'"}',
    "numbers": _BEGIN + b'"data":[' + b"1," * 2_000_000 + b"1e100]}",
    "large numbers": _BEGIN + b'"data":[' + b"1.7976931348623157e308," * 180_000 + b"1]}",
    "objects": _BEGIN + b'"data":[' + b'{"a":1},' * 500_000 + b"1e100]}",
    "empty lists": _BEGIN + b'"data":[' + b"[]," * 1_300_000 + b"1e100]}",
    "1,000 messages": _BEGIN + b'"messages":[' + b",".join([b'{"data":[' + b"{}," * 1300 + b"1]}"] * 1000) + b"]}",
    "Russian in a list": _BEGIN + b'"data":["' + b"\\u0434" * 690_000 + b'"]}',
    "lines in an object": _BEGIN + b'"data":{"a":"' + (b"x" * 78 + b"\\n") * 50_000 + b'"}}',
    "short strings": _BEGIN + b'"data":[' + b'"%s",' % (b"x" * 25) * 140_000 + b"1]}",
    "long numbers": _BEGIN + b'"data":[' + (str(2**1024 - 2**970 - 1).encode() + b".9,") * 13_000 + b"1]}",
    "objects one deeper": _BEGIN + b'"key":null,"data":[[' + b'{"a":1},' * 500_000 + b"1]]}",
    "1,000 of objects": _BEGIN
    + b'"messages":['
    + b",".join([b'{"key":null,"data":[' + b'{"":1},' * 580 + b"1]}"] * 1000)
    + b"]}",
    "headers": _BEGIN
    + b'"key":null,"messages":['
    + b",".join(
        [b'{"data":1,"headers":{' + b",".join(b'"name%02d":"%s"' % (i, b"x" * 48) for i in range(64)) + b"}}"] * 950
    )
    + b"]}",
    "seq is a list": b'{"action":1,"seq":[[' + b'{"":[]},' * 500_000 + b"1]]}",
    "many requests": b"{}" * 2_000_000,
    "too many messages": _BEGIN + b'"messages":[' + b"{}," * 1_300_000 + b"{}]}",
    "messages twice": _BEGIN + b'"messages":[' + b"{}," * 1_300_000 + b'{}],"messages":[{"data":1}]}',
    "an unknown field": _BEGIN + b'"other":[' + b"{}," * 1_300_000 + b"1]}",
}


def longest_s(body: bytes) -> float:
    """The longest of the turns that a body takes."""
    session, longest = JsonSession(RequestLimits()), 0.0
    for at in range(0, len(body), PIECE_BYTES):
        piece = body[at : at + PIECE_BYTES]
        while piece or session.has_more:
            begun = time.thread_time()
            found = session.receive(piece)
            for one in found:
                if isinstance(one, Fault):
                    session.answered(None, session.fault_reply(one))
            longest = max(longest, time.thread_time() - begun)
            piece = b""
    return longest


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m bench.bodies")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"what is measured runs {running()}")
    for name, body in BODIES.items():
        longest_ms = min(longest_s(body) for _ in range(rounds)) * 1e3
        print(f"{name:20} {len(body):9,} bytes: {longest_ms:5.1f} ms at most at once (wanted: {WANTED_MS:.0f})")


if __name__ == "__main__":
    main()
