"""Disque's commands about queues, and its scans. Arguments to requests, replies to bytes."""

from collections.abc import Callable
from functools import partial
from typing import Final

from net.protocols.disque_client import (
    NO_FACTS,
    NOT_INTEGER,
    SYNTAX,
    DisqueClient,
    Found,
    Made,
    body_of,
    failed,
    queue_name,
    whole,
)
from net.protocols.disque_jobs import described
from net.protocols.job_ids import job_id
from net.protocols.resp_framing import EMPTY, array, bulk, integer, simple
from net.protocols.session import Ask, Say
from quorate.protocol import (
    BATCH_MAX,
    MSG_ID_MAX,
    Action,
    Code,
    ErrorWord,
    MessageView,
    PeekReply,
    Reply,
    Request,
    ScanReply,
)
from quorate.queue_replies import MonitorReply, SettingsReply
from quorate.shards import ID_SHARDS

_OK: Final = int(Code.OK)
SCAN_COUNT: Final = 100
BUSY_BYTES: Final = 4 << 20
"""A scan stops with so much, and a cursor: what it has gathered counts as nobody's before it is told."""

JOBS_MAX: Final = 100
"""So many jobs a scan tells at once, whatever COUNT hints at: others wait for half a millisecond."""

WHOLE_MAX: Final = 100
"""Of jobs that are told with all that there is of them, so many are asked for at a time."""

WORDS_MAX: Final = 64

HIT_BYTES: Final = 16
"""What a row takes beside its name or its job."""

# -- one queue ---------------------------------------------------------------------------------------------------------


def _monitor(name: str, *, is_full: bool = False) -> Request:
    return Request(Action.MONITOR, name, full=is_full or None, as_job=True)


def queue_length(client: DisqueClient, arguments: list[bytes]) -> Found:
    """QLEN queue"""
    name = queue_name(client, arguments[1])
    if isinstance(name, Say):
        return name

    def counted(reply: Reply) -> Made:
        if reply.error == ErrorWord.NO_SUCH_QUEUE:
            return integer(0)
        return integer(reply.ready) if isinstance(reply, MonitorReply) else failed(reply)

    return Ask(_monitor(name), counted)


def peek(client: DisqueClient, arguments: list[bytes]) -> Found:
    """QPEEK queue count"""
    name, count = queue_name(client, arguments[1]), whole(arguments[2])
    if isinstance(name, Say):
        return name
    if count is None:
        return NOT_INTEGER
    if not count:
        return Say(EMPTY)

    def shown(reply: Reply) -> Made:
        if reply.error == ErrorWord.NO_SUCH_QUEUE:
            return EMPTY
        if not isinstance(reply, PeekReply):
            return failed(reply)
        return array([_peeked(client, message) for message in reply.messages])

    asked = Request(Action.PEEK, name, count=min(abs(count), BATCH_MAX), state="ready", as_job=True)
    asked.descending = True if count < 0 else None
    return Ask(asked, shown)


def _peeked(client: DisqueClient, message: MessageView) -> bytes:
    id_of = job_id(client.facts, message.msg_id, message.job or NO_FACTS)
    return array([bulk(message.queue.encode()), bulk(id_of), bulk(body_of(message))])


def _pause_word(paused: bool | str) -> bytes:
    if isinstance(paused, str):
        return paused.encode()
    return b"out" if paused else b"none"


def statistics(client: DisqueClient, arguments: list[bytes]) -> Found:
    """QSTAT queue"""
    name = queue_name(client, arguments[1])
    if isinstance(name, Say):
        return name

    def told(reply: Reply) -> Made:
        if reply.error == ErrorWord.NO_SUCH_QUEUE:
            return _statistics(name, blocked=reply.count) if reply.count else client.nil_array
        if not isinstance(reply, MonitorReply):
            return failed(reply)
        row = reply.row
        times = (0, 0, 0, 0) if row is None else (row.age, row.idle, row.was_ready, row.given_out)
        age, idle, was_ready, given_out = [int(one or 0) for one in times]
        return _statistics(
            name,
            length=reply.ready,
            age=age,
            idle=idle,
            blocked=reply.wait_status,
            came=was_ready,
            left=given_out,
            pause=_pause_word(reply.paused),
        )

    return Ask(_monitor(name, is_full=True), told)


def _statistics(
    name: str,
    *,
    length: int = 0,
    age: int = 0,
    idle: int = 0,
    blocked: int = 0,
    came: int = 0,
    left: int = 0,
    pause: bytes = b"none",
) -> bytes:
    values = [
        (b"name", bulk(name.encode())),
        (b"len", integer(length)),
        (b"age", integer(age)),
        (b"idle", integer(idle)),
        (b"blocked", integer(blocked)),
        (b"import-from", EMPTY),
        (b"import-rate", integer(0)),
        (b"jobs-in", integer(came)),
        (b"jobs-out", integer(left)),
        (b"pause", bulk(pause)),
    ]
    return array([part for title, value in values for part in (bulk(title), value)])


def flush(client: DisqueClient, arguments: list[bytes]) -> Found:
    """QFLUSH queue"""
    name = queue_name(client, arguments[1])
    if isinstance(name, Say):
        return name

    def cleared(reply: Reply) -> Made:
        if reply.error == ErrorWord.NO_SUCH_QUEUE:
            return integer(0)
        return integer(reply.count or 0) if reply.code == _OK else failed(reply)

    return Ask(Request(Action.CLEAR, name), cleared)


PAUSE_WORDS: Final = (b"in", b"out", b"all", b"none", b"state", b"bcast")


def pause(client: DisqueClient, arguments: list[bytes]) -> Found:
    """PAUSE queue option..."""
    name = queue_name(client, arguments[1])
    words = {word.lower() for word in arguments[2 : 2 + WORDS_MAX]}
    if len(arguments) > 2 + WORDS_MAX or not words <= set(PAUSE_WORDS):
        return SYNTAX
    if isinstance(name, Say):
        return name

    def told(reply: Reply) -> Made:
        if reply.error == ErrorWord.NO_SUCH_QUEUE:
            return simple(b"none")
        if isinstance(reply, MonitorReply | SettingsReply):
            return simple(_pause_word(reply.paused))
        return failed(reply)

    if words <= {b"state", b"bcast"}:
        return Ask(_monitor(name), told)
    takes_nothing = b"in" in words or b"all" in words
    gives_nothing = b"out" in words or b"all" in words
    asked = Request(Action.CONFIGURE, name, paused="none", as_job=True)
    if takes_nothing:
        asked.paused = "all" if gives_nothing else "in"
    elif gives_nothing:
        asked.paused = "out"
    return Ask(asked, told)


# -- scans -------------------------------------------------------------------------------------------------------------


class _Scan:
    """A scan that is under way: rows until there are enough of them, then a cursor for the next.

    A cursor is a place in a shard: its number plus `ID_SHARDS` times how far that is scanned.
    """

    def __init__(self) -> None:
        self.cursor: int | None = None
        self.piece = BATCH_MAX
        self.count = SCAN_COUNT
        self.is_busy = False
        self.rows: list[bytes] = []
        self.size = 0

    def set_cursor(self, number: int) -> Say | None:
        """Two of them are a fault."""
        if self.cursor is not None:
            return SYNTAX
        self.cursor = number
        return None

    def set_count(self, value: bytes) -> Say | None:
        """How many rows are wanted, about."""
        count = whole(value)
        if count is None or count <= 0:
            return NOT_INTEGER
        self.count = min(count, BATCH_MAX)
        return None

    def take(self, row: bytes) -> None:
        """One more."""
        self.rows.append(row)
        self.size += len(row) + HIT_BYTES

    def done(self, cursor: int) -> bytes:
        """Answer, to be gone on with at that cursor; 0: all was scanned."""
        return array([bulk(b"%d" % cursor), array(self.rows)])

    def run(self, make: Callable[[int, int, int], Request], take: Callable[[ScanReply], None]) -> Ask:
        """Ask shard by shard, and piece by piece, until there is enough."""

        def ask(shard: int, after: int) -> Ask:
            wanted = self.piece if self.is_busy else max(1, min(self.count - len(self.rows), self.piece))
            return Ask(make(shard, after, wanted), lambda reply: answered(shard, reply))

        def answered(shard: int, reply: Reply) -> Made:
            if reply.error == ErrorWord.FIELD:
                return BAD_SCAN.data
            if reply.code != _OK or not isinstance(reply, ScanReply):
                return failed(reply)
            if shard >= reply.shards:
                return BAD_SCAN.data
            take(reply)
            at = (shard, reply.next) if reply.next is not None else (shard + 1, 0)
            if at[0] >= reply.shards:
                return self.done(0)
            is_enough = self.size >= BUSY_BYTES or (not self.is_busy and len(self.rows) >= self.count)
            return self.done(at[0] + at[1] * ID_SHARDS) if is_enough else ask(*at)

        cursor = self.cursor or 0
        return ask(cursor % ID_SHARDS, cursor // ID_SHARDS)


BAD_SCAN: Final = Say(b"-ERR invalid cursor or option name\r\n")


def _cursor(word: bytes) -> int | None:
    number = whole(word)
    return number if number is not None and 0 <= number <= MSG_ID_MAX else None


def _read(scan: _Scan, arguments: list[bytes], own: dict[bytes, Callable[[bytes], Say | None]]) -> Say | None:
    """Read a scan's words: those that both know, and its `own`, each of which is told its value; gives a fault."""
    if len(arguments) > WORDS_MAX:
        return SYNTAX
    options = {**own, b"count": scan.set_count}
    at = 1
    while at < len(arguments):
        word = arguments[at].lower()
        at += 1
        option = options.get(word)
        fault: Say | None = None
        if option is not None:
            if at == len(arguments):
                return SYNTAX
            fault = option(arguments[at])
            at += 1
        elif word == b"busyloop":
            scan.is_busy = True
        else:
            number = _cursor(word)
            fault = BAD_SCAN if number is None else scan.set_cursor(number)
        if fault is not None:
            return fault
    return None


def scan_queues(client: DisqueClient, arguments: list[bytes]) -> Found:
    """QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]"""
    scan = _Scan()
    bounds: dict[bytes, int] = {}

    def bound(word: bytes, value: bytes) -> Say | None:
        number = whole(value)
        if number is None:
            return NOT_INTEGER
        bounds[word] = number
        return None

    fault = _read(scan, arguments, {word: partial(bound, word) for word in (b"minlen", b"maxlen", b"importrate")})
    if fault is not None:
        return fault
    least, most, rate = bounds.get(b"minlen", 0), bounds.get(b"maxlen"), bounds.get(b"importrate", 0)

    def take(reply: ScanReply) -> None:
        for name, ready in reply.names or ():
            if ready >= least and (most is None or ready <= most) and rate <= 0:
                scan.take(bulk(name.encode()))

    def make(shard: int, after: int, count: int) -> Request:
        return Request(Action.SCAN, shard=shard, after=after, count=count)

    return scan.run(make, take)


STATES: Final = {
    b"queued": ("ready",),
    b"active": ("delayed", "in_flight"),
    b"wait-repl": ("uncommitted",),
    b"acked": ("acked",),
}


def scan_jobs(client: DisqueClient, arguments: list[bytes]) -> Found:
    """JSCAN [cursor] [COUNT n] [BUSYLOOP] [QUEUE queue] [STATE state]... [REPLY id|all]"""
    scan = _Scan()
    states: list[str] = []
    queue: str | None = None
    has_all = False

    def of_queue(value: bytes) -> Say | None:
        nonlocal queue
        name = queue_name(client, value)
        if isinstance(name, Say):
            return name
        queue = name
        return None

    def in_state(value: bytes) -> Say | None:
        its = STATES.get(value.lower())
        if its is None:
            return Say(b"-ERR Invalid job state name\r\n")
        states.extend(its)
        return None

    def told_as(value: bytes) -> Say | None:
        nonlocal has_all
        if value.lower() not in (b"id", b"all"):
            return Say(b"-ERR Invalid REPLY type, try ID or ALL\r\n")
        has_all = value.lower() == b"all"
        scan.piece = WHOLE_MAX if has_all else BATCH_MAX
        return None

    fault = _read(scan, arguments, {b"queue": of_queue, b"state": in_state, b"reply": told_as})
    if fault is not None:
        return fault

    def take(reply: ScanReply) -> None:
        for message in reply.messages or ():
            if has_all:
                scan.take(described(client, message, reply.now))
            else:
                scan.take(simple(job_id(client.facts, message.msg_id, message.job or NO_FACTS)))

    scan.count = min(scan.count, JOBS_MAX)
    wanted = ",".join(dict.fromkeys(states)) or None

    def make(shard: int, after: int, count: int) -> Request:
        asked = Request(Action.SCAN, queue, shard=shard, after=after, count=count, full=True, as_job=True)
        asked.state = wanted
        return asked

    return scan.run(make, take)
