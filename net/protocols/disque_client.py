"""What all of Disque's commands share: the client that asks, arguments as numbers and names, errors as Disque says
them.

The texts are those of Disque 1.0-rc1, which its clients compare; what is ours has words of its own. No word is one that
Redis's libraries act on by themselves (MOVED, ASK, READONLY, TRYAGAIN, CLUSTERDOWN).
"""

from collections.abc import Callable
from typing import Final

import msgspec

from net.node_facts import NodeFacts
from net.protocols.resp_framing import error
from net.protocols.session import Ask, Awaited, Say
from quorate.authentication import NotAllowedReply
from quorate.protocol import PLAIN, ErrorWord, JobFacts, MessageView, Reply, Request, name_fault

RESP2: Final = 2
RESP3: Final = 3
SPEAKS: Final = 0
SKIPS: Final = 1
SILENT: Final = 2
"""Whether commands are answered: all, none but those after the next, or none."""

INT_MAX: Final = 2**63 - 1

Made = bytes | Request | Ask
"""Of a reply: the answer, or what is to be asked next."""

Step = Callable[[Reply], Made] | Awaited
Found = Ask | Say

SYNTAX: Final = Say(b"-ERR syntax error\r\n")
BAD_ID: Final = Say(b"-BADID Invalid Job ID format.\r\n")
NOT_INTEGER: Final = Say(b"-ERR value is not an integer or out of range\r\n")
NOREPL_FEW: Final = "NOREPL Not enough reachable nodes for the requested replication level"

_text: Final = msgspec.json.Decoder(str).decode

WORDS: Final = {
    ErrorWord.NO_LEADER: "NOLEADER",
    ErrorWord.UNKNOWN_OUTCOME: "UNKNOWN",
    ErrorWord.QUEUE_FULL: "QUEUEFULL",
    ErrorWord.OVERLOADED: "OVERLOADED",
    ErrorWord.NOT_ALLOWED: "NOPERM",
    ErrorWord.NOT_AUTHENTICATED: "NOAUTH",
}
"""The first words of errors that say no more than that, and our reason."""

TEXTS: Final = {
    ErrorWord.LIMIT: "OOM command not allowed when used memory > 'maxmemory'.",
    ErrorWord.DISK_FULL: "MISCONF Errors writing to the AOF file: No space left on device",
    ErrorWord.STOPPING: "LEAVING This node is leaving the cluster, please connect to a different one",
    ErrorWord.LEAVING: "LEAVING This node is leaving the cluster, please connect to a different one",
    ErrorWord.PAUSED: "PAUSED Queue paused in input, try later",
    ErrorWord.TOO_MANY_READY: "MAXLEN Queue is already longer than the specified MAXLEN count",
    ErrorWord.TOO_FEW_NODES: NOREPL_FEW,
}


class DisqueClient:
    """One client: how it wants to be answered, what it calls itself, and the node that it is on.

    `proto`: 2 or 3. `name`: what it has said by CLIENT SETNAME. `debug`: whether DEBUG is there. `silence`: what it has
    said by CLIENT REPLY.
    """

    def __init__(self, facts: NodeFacts, *, debug: bool) -> None:
        self.facts = facts
        self.debug = debug
        self.proto = RESP2
        self.name: str | None = None
        self.silence = SPEAKS

    @property
    def nil(self) -> bytes:
        """No string."""
        return b"_\r\n" if self.proto == RESP3 else b"$-1\r\n"

    @property
    def nil_array(self) -> bytes:
        """No array."""
        return b"_\r\n" if self.proto == RESP3 else b"*-1\r\n"


def failed(reply: Reply) -> bytes:
    """Make an error, as Disque says it, or ours."""
    word = reply.error or ""
    text = TEXTS.get(word)
    if text is not None:
        return error(text)
    reason = reply.reason or "it could not be done"
    if isinstance(reply, NotAllowedReply) and reply.is_unproved:
        return error("NOAUTH Authentication required.")
    return error(f"{WORDS.get(word, 'ERR')} {reason}")


def whole(argument: bytes) -> int | None:
    """Read a decimal number of 64 bits; None: it is none."""
    digits = argument[1:] if argument[:1] == b"-" else argument
    if not digits.isdigit() or len(digits) > 19:
        return None
    number = int(argument)
    return number if -INT_MAX - 1 <= number <= INT_MAX else None


NAMES_MAX: Final = 1024
"""So many names are kept that can be a queue's; all go when there would be more."""


def queue_name(client: DisqueClient, argument: bytes) -> str | Say:
    """Read the name of a queue, or say why it can't be one."""
    names = client.facts.names
    known = names.get(argument)
    if known is not None:
        return known
    try:
        name = argument.decode()
    except UnicodeDecodeError:
        return Say(error("ERR invalid queue name: is not UTF-8"))
    fault = "is empty" if not name else name_fault(name)
    if fault is not None:
        return Say(error(f"ERR invalid queue name: {fault}"))
    if len(names) >= NAMES_MAX:
        names.clear()
    names[argument] = name
    return name


def timeout_ms(argument: bytes) -> int | Say:
    """Read a time-out in milliseconds, or say what is wrong with it."""
    number = whole(argument)
    if number is None:
        return Say(b"-ERR timeout is not an integer or out of range\r\n")
    return number if number >= 0 else Say(b"-ERR timeout is negative\r\n")


def body_of(message: MessageView) -> bytes:
    """Make a message's payload what it is for a client of bytes."""
    return plain(bytes(message.data), message.encoding)


def plain(data: bytes, encoding: str | None) -> bytes:
    """Make a payload what it is for a client of bytes: JSON's strings are the UTF-8 that they hold, other values their
    text."""
    if encoding == PLAIN or data[:1] != b'"':
        return data
    return _text(data).encode("utf-8", "replace")


NO_FACTS: Final = JobFacts(0, 0.0, 0.0, 0, 0)
