"""MetaQ's protocol as a session: put, get, offset, transactions and stats on topics of the port's shard. No socket.

Replies leave when they are there, in any order: each has the `opaque` of its command. What is no command ends the
connection, silently, when what is open is answered. docs/metaq.md has each command and each difference.

put | get | offset of our terms: an append; a raw read of a position; a read of one message by the leader.
transaction: its puts stay in the worker (`metaq_transactions`); a commit is one transaction of appends.

The broker's id is the shard, so partition `k-n` is partition n of a topic of shard k. A topic of another shard does not
exist here: a client finds its broker by the shard's port.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from net.node_facts import USUAL, ListenerFacts, NodeFacts
from net.protocols.metaq_client import OK, MetaqClient
from net.protocols.metaq_commits import transaction
from net.protocols.metaq_framing import INT_MAX, Command, MalformedError, MetaqReader, number_in, result
from net.protocols.metaq_gets import get, offset
from net.protocols.metaq_puts import put
from net.protocols.metaq_reports import report
from net.protocols.session import LARGE_BYTES, Ask, Awaited, Close, Fault, Found, RequestLimits, Say, Session
from quorate.protocol import Code, Reply, Request
from quorate.version import VERSION


class MetaqSession(Session):
    """One client's stream. `facts`: what it knows of its node; `listener`: of its port."""

    def __init__(
        self, limits: RequestLimits, facts: NodeFacts | None = None, *, listener: ListenerFacts = USUAL
    ) -> None:
        super().__init__(is_ordered=False)
        self._client = MetaqClient(limits, facts or NodeFacts(), listener)
        self._reader = MetaqReader(limits.request_bytes_max)

    def discard(self) -> None:
        """Nothing more is received: what is open is rolled back."""
        super().discard()
        self._reader = MetaqReader(self._client.limits.request_bytes_max)
        self._client.leave()

    @property
    def state(self) -> bytes | None:
        """Never: its port is its shard's, where all that it asks is done."""
        return None

    @property
    def has_more(self) -> bool:
        """Whether there is more than was looked at."""
        return self._reader.has_more

    def receive(self, data: bytes) -> list[Found]:
        """Find the commands that `data` completes, in order."""
        if self.large:
            self.large = {}
        found: list[Found] = []
        try:
            came = self._reader.feed(data)
        except MalformedError:
            return [Close()]
        self.partial_bytes = self._reader.partial_bytes
        for command in came:
            try:
                one = self._asked(command)
            except MalformedError:
                one = Close()
            if one is None:
                continue
            if len(command[1]) > LARGE_BYTES:
                self.large[len(found)] = len(command[1])
            found.append(one)
            if isinstance(one, Close):
                break
        return found

    def _asked(self, command: Command) -> Found | None:
        words = command[0]
        serve = COMMANDS.get(words[0])
        if serve is None:
            raise MalformedError
        return serve(self._client, words, command[1])

    def answered(self, request: Request | None, reply: Reply, note: Any = None) -> bytes | Request | Ask:
        """Make the reply as MetaQ says it, or what is to be asked next. What is no command's is not said at all."""
        return b"" if note is None else cast("Awaited", note).told(reply)

    def fault_reply(self, fault: Fault) -> Reply:
        """Make the reply to a fault, which nobody gets."""
        return Reply(action=0, code=Code.ERROR, error=fault.error, reason=fault.reason)


def version(client: MetaqClient, words: list[str], body: bytes) -> Found:
    """Say which version this is; clients ask to see whether somebody is there."""
    if len(words) > 2:
        raise MalformedError
    return Say(result(OK, f"quorate-{VERSION}", number_in(words[1]) if len(words) > 1 else INT_MAX))


def stats(client: MetaqClient, words: list[str], body: bytes) -> Found:
    """Tell of the broker: stats [item] [opaque]."""
    if len(words) > 3:
        raise MalformedError
    opaque = number_in(words[2]) if len(words) > 2 else INT_MAX
    return report(client, words[1] if len(words) > 1 else "", opaque)


def leave(client: MetaqClient, words: list[str], body: bytes) -> Found:
    """End the connection."""
    return Close()


def ignored(client: MetaqClient, words: list[str], body: bytes) -> None:
    """Ignore a reply from a client, which nobody asked for."""


COMMANDS: Final[dict[str, Callable[[MetaqClient, list[str], bytes], Found | None]]] = {
    "put": put,
    "get": get,
    "offset": offset,
    "transaction": transaction,
    "version": version,
    "stats": stats,
    "quit": leave,
    "result": ignored,
    "value": ignored,
}
