"""Disque's protocol as a session: a table of its commands, each of which makes a request of its arguments, and an
answer of the reply. No socket, no clock; what a command needs of the node it asks for.

Replies leave in the order of the requests. What stands behind a GETJOB that may wait is not begun before that is
answered: a connection takes nothing more while such a request is open.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from net.node_facts import USUAL, ListenerFacts, NodeFacts
from net.protocols import disque_jobs as jobs
from net.protocols import disque_queues as queues
from net.protocols import disque_server as server
from net.protocols.disque_client import RESP2, RESP3, SKIPS, SPEAKS, DisqueClient, Made, Step, failed
from net.protocols.disque_client import Found as Answered
from net.protocols.disque_memory import Remembered, recall, remember
from net.protocols.resp_framing import Arguments, Broken, RespReader, array, bulk, error, integer, simple
from net.protocols.session import LARGE_BYTES, Ask, Awaited, Close, Fault, Found, RequestLimits, Say, Session
from quorate.protocol import Action, Code, ErrorWord, Reply, Request

NAME_SHOWN: Final = 128
"""So many bytes of a command that there is not are shown."""


WORDS_MAX: Final = 256


class Command(NamedTuple):
    """`arity`: how many arguments with its name, -n: at least n. `flags` are what COMMAND tells of it."""

    name: bytes
    arity: int
    flags: tuple[bytes, ...]
    method: Callable[[DisqueClient, list[bytes]], Answered]


def _quit(client: DisqueClient, arguments: list[bytes]) -> Answered:
    return server.DONE


def _command(client: DisqueClient, arguments: list[bytes]) -> Answered:
    """COMMAND, COMMAND COUNT, COMMAND INFO name..."""
    word = arguments[1].lower() if len(arguments) > 1 else b""
    if len(arguments) > WORDS_MAX:
        return Say(error(f"ERR {len(arguments)} words, and {WORDS_MAX} are allowed"))
    if word == b"count":
        return Say(integer(len(COMMANDS)))
    rows = _ROWS[client.proto]
    if word == b"info":
        return Say(array([rows.get(name.lower(), client.nil_array) for name in arguments[2:]]))
    if word in (b"", b"docs"):
        return _ALL_COMMANDS[client.proto] if not word else Say(array([]))
    return Say(error("ERR Unknown subcommand or wrong number of arguments."))


def _row(command: Command, proto: int) -> bytes:
    """Make what COMMAND says of it: Disque's six columns, or Redis' ten, which its clients of RESP3 read."""
    flags = array([simple(flag) for flag in command.flags])
    parts = [bulk(command.name), integer(command.arity), flags, integer(0), integer(0), integer(0)]
    return array(parts if proto == RESP2 else [*parts, *[array([])] * 4])


def _echo(client: DisqueClient, arguments: list[bytes]) -> Answered:
    """ECHO message: Disque has none, and `redis-cli --pipe` ends with it."""
    return Say(bulk(arguments[1]))


_WRITE: Final = (b"write", b"fast")
_READ: Final = (b"readonly", b"fast")
_SLOW: Final = (b"readonly",)
_ADMIN: Final = (b"readonly", b"admin")

_TABLE: Final = (
    Command(b"addjob", -4, (b"write", b"denyoom", b"fast"), jobs.add_job),
    Command(b"getjob", -2, _WRITE, jobs.get_job),
    Command(b"ackjob", -1, _WRITE, jobs.ack_job),
    Command(b"fastack", -1, _WRITE, jobs.fast_ack),
    Command(b"deljob", -1, _WRITE, jobs.delete_job),
    Command(b"enqueue", -1, _WRITE, jobs.enqueue),
    Command(b"dequeue", -1, _WRITE, jobs.dequeue),
    Command(b"nack", -1, _WRITE, jobs.nack),
    Command(b"working", 2, _WRITE, jobs.working),
    Command(b"show", 2, _READ, jobs.show),
    Command(b"qlen", 2, _READ, queues.queue_length),
    Command(b"qpeek", 3, _READ, queues.peek),
    Command(b"qstat", 2, _READ, queues.statistics),
    Command(b"qflush", 2, (b"write",), queues.flush),
    Command(b"qscan", -1, _SLOW, queues.scan_queues),
    Command(b"jscan", -1, _SLOW, queues.scan_jobs),
    Command(b"pause", -3, _WRITE, queues.pause),
    Command(b"auth", -2, _READ, server.authenticate),
    Command(b"ping", -1, _READ, server.ping),
    Command(b"echo", 2, _READ, _echo),
    Command(b"quit", 1, _READ, _quit),
    Command(b"hello", -1, _READ, server.hello),
    Command(b"info", -1, _SLOW, server.info),
    Command(b"time", 1, _READ, server.time),
    Command(b"config", -2, _ADMIN, server.config),
    Command(b"cluster", -2, _ADMIN, server.cluster),
    Command(b"client", -2, _ADMIN, server.of_client),
    Command(b"debug", -2, _ADMIN, server.debug),
    Command(b"slowlog", -2, _SLOW, server.slow_log),
    Command(b"latency", -2, _SLOW, server.latency),
    Command(b"command", -1, _SLOW, _command),
    Command(b"monitor", 1, _ADMIN, server.not_here),
    Command(b"shutdown", -1, _ADMIN, server.not_here),
    Command(b"bgrewriteaof", 1, _ADMIN, server.not_here),
    Command(b"loadjob", 2, (b"write",), server.not_here),
)
NEED_CLUSTER: Final = frozenset(
    {
        *(jobs.add_job, jobs.get_job, jobs.ack_job, jobs.fast_ack, jobs.delete_job, jobs.enqueue, jobs.dequeue),
        *(jobs.nack, jobs.working, jobs.show, queues.peek, queues.scan_jobs, server.hello, server.cluster),
    }
)
"""What tells or takes ids, which are made of the cluster's."""

FOUNDING_LOOKS: Final = 1000
"""So often a command asks whether its node knows its cluster by now, once all shards have leaders that serve."""

NO_ANSWER: Final = Say(b"")
STARTING: Final = b"-NOLEADER the node belongs to no cluster yet, it has just been started\r\n"
COMMANDS: Final = {command.name: command for command in _TABLE}
_ROWS: Final = {proto: {one.name: _row(one, proto) for one in _TABLE} for proto in (RESP2, RESP3)}
_ALL_COMMANDS: Final = {proto: Say(array([*rows.values()])) for proto, rows in _ROWS.items()}
"""What COMMAND answers, made once: a millisecond's work, for which nobody needs a right."""


class _Founding(Awaited):
    """A command that needs a cluster, of a node that belongs to none yet: it is done as soon as there is one.

    So it asks for something that is nowhere, of which anybody may: that is held until each shard has a leader, and its
    log names the cluster. What stands behind it in the stream waits meanwhile (`reply_length`): Disque does one command
    after the other. A node that joins may learn of its cluster a little later than leaders answer: it asks again.
    """

    def __init__(self, client: DisqueClient, command: Command, arguments: Arguments) -> None:
        self._client = client
        self._command = command
        self._arguments = arguments
        self._left = FOUNDING_LOOKS

    def ask(self) -> Ask:
        """Whether there is one by now."""
        return Ask(Request(Action.FIND, key="-", scope="all", as_job=True), self)

    def told(self, reply: Reply) -> Made:
        """Give what the command makes, or what to ask again."""
        if self._client.facts.cluster_id:
            found = self._command.method(self._client, self._arguments)
            return found.data if isinstance(found, Say) else found
        self._left -= 1
        if reply.code != Code.OK and reply.error not in (ErrorWord.NO_SUCH_MESSAGE, ErrorWord.NO_LEADER):
            return failed(reply)
        return self.ask() if self._left and reply.error != ErrorWord.NO_LEADER else STARTING


class DisqueSession(Session):
    """One client's stream. `facts`: what it knows of its node; `listener`: its port."""

    def __init__(
        self, limits: RequestLimits, facts: NodeFacts | None = None, *, listener: ListenerFacts = USUAL
    ) -> None:
        super().__init__()
        self._limits = limits
        self._reader = RespReader(limits.request_bytes_max)
        self._left: list[Arguments | Broken] = []
        self._client = DisqueClient(facts or NodeFacts(), debug=listener.debug)

    def discard(self) -> None:
        """Nothing more is received."""
        super().discard()
        self._left = []
        self._reader = RespReader(self._limits.request_bytes_max)

    @property
    def state(self) -> bytes | None:
        """How it answers, and the client's name, where the next byte begins a request."""
        if self._left or not self._reader.is_idle:
            return None
        client = self._client
        return remember(Remembered(client.proto, client.name, client.debug, client.silence))

    def resume(self, state: bytes) -> None:
        """Go on so."""
        found = recall(state)
        client = self._client
        client.proto, client.name, client.debug = found.proto, found.name, found.debug
        client.silence = found.silence

    @property
    def has_more(self) -> bool:
        """Whether there is more than was looked at: very many commands, or some behind one that changes how it
        answers."""
        return bool(self._left) or self._reader.has_more

    def receive(self, data: bytes) -> list[Found]:
        """Find the requests that `data` completes, in order."""
        reader = self._reader
        came = reader.feed(data)
        self.partial_bytes = reader.partial_bytes
        if self.large:
            self.large = {}
        if self._left:
            came, self._left = [*self._left, *came], []
        found: list[Found] = []
        client = self._client
        for place, one in enumerate(came):
            if not isinstance(one, list):
                if one.why is not None:
                    found.append(Say(error(f"ERR Protocol error: {one.why}")))
                found.append(Close())
                return found
            if len(data) > LARGE_BYTES or reader.partial_bytes:
                size = sum([len(argument) for argument in one])
                if size > LARGE_BYTES:
                    self.large[len(found)] = size
            before = client.silence
            if before == SKIPS:
                client.silence = SPEAKS
            name = one[0].lower()
            asked = self._asked(name, one)
            found.append(asked if before == client.silence == SPEAKS else _unanswered(asked))
            if name == b"quit" and len(one) == 1:
                found.append(Close())
                return found
            if name == b"hello" and len(one) > 1 and place + 1 < len(came):
                self._left = came[place + 1 :]  # they are answered as it says
                return found
        return found

    def _asked(self, name: bytes, arguments: Arguments) -> Answered:
        command = COMMANDS.get(name)
        if command is None:
            shown = arguments[0][:NAME_SHOWN].decode("utf-8", "replace")
            return Say(error(f"ERR unknown command '{shown}'"))
        arity, count = command.arity, len(arguments)
        if count != arity if arity > 0 else count < -arity:
            return Say(error(f"ERR wrong number of arguments for '{command.name.decode()}' command"))
        if not self._client.facts.cluster_id and command.method in NEED_CLUSTER and _tells_ids(name, count):
            return _Founding(self._client, command, arguments).ask()
        return command.method(self._client, arguments)

    def answered(self, request: Request | None, reply: Reply, note: Any = None) -> Made:
        """Make the reply as Disque says it, or what its command asks next."""
        return _said(reply) if note is None else _told(note, reply)

    def fault_reply(self, fault: Fault) -> Reply:
        """Make the reply to a fault."""
        return Reply(action=0, code=Code.ERROR, error=fault.error, reason=fault.reason)


def _tells_ids(name: bytes, count: int) -> bool:
    """Not so HELLO with more words than that: it is Redis's, says how all behind it is answered, and may log in."""
    return name != b"hello" or count == 1


def _told(step: Any, reply: Reply) -> Made:
    """Give what a step makes of a reply."""
    if isinstance(step, Awaited):
        return step.told(reply)
    return cast("Callable[[Reply], Made]", step)(reply)


def _unanswered(found: Answered) -> Answered:
    """Do what a client asked for that wants no answers, as it said by CLIENT REPLY; ON itself is answered."""
    if isinstance(found, Ask):
        return Ask(found.request, _silently(found.note))
    return found if found is server.SPOKEN_TO else NO_ANSWER


def _silently(step: Step) -> Step:
    def told(reply: Reply) -> Made:
        made = _told(step, reply)
        if isinstance(made, bytes):
            return b""
        return Ask(made.request, _silently(made.note)) if isinstance(made, Ask) else made

    return told


def _said(reply: Reply) -> bytes:
    """Say what is said to nobody's request: why all of a client is refused."""
    if reply.error == ErrorWord.OVERLOADED and (reply.reason or "").endswith("are connected already"):
        return b"-ERR max number of clients reached\r\n"
    return failed(reply)
