"""Disque's commands about jobs: ADDJOB, GETJOB, and those by ids. Arguments to requests, replies to bytes."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from net.node_facts import NodeFacts
from net.protocols.disque_client import (
    BAD_ID,
    NO_FACTS,
    NOREPL_FEW,
    SYNTAX,
    TEXTS,
    DisqueClient,
    Found,
    Made,
    body_of,
    failed,
    plain,
    queue_name,
    timeout_ms,
    whole,
)
from net.protocols.job_ids import is_well_formed, job_id, msg_id_of, node_hex
from net.protocols.resp_framing import array, bulk, error, integer, simple
from net.protocols.session import Ask, Awaited, Say
from quorate.protocol import (
    BATCH_MAX,
    MSG_ID_MAX,
    PLAIN,
    PRIORITY_MAX,
    Action,
    Code,
    DeliveredReply,
    ErrorWord,
    JobFacts,
    MessageView,
    Reply,
    Request,
    ShowReply,
    name_fault,
)

WORDS_MAX: Final = 64
"""Of an ADDJOB, each option some times over."""

TTL_S: Final = 86_400
RETRY_MAX_S: Final = 300
YEAR_S: Final = 31_536_000
REPLICATE_MAX: Final = 65_535
NODES_MAX: Final = 64
"""On more nodes no cluster of ours can be asked to put a message."""

BEYOND_9999_S: Final = 252_000_000_000
"""A time to live of more seconds ends behind the year 9999 in any case."""

NOT_THERE: Final = (ErrorWord.NO_SUCH_MESSAGE, ErrorWord.NOT_IN_FLIGHT, ErrorWord.NOT_READY)
LEAVING: Final = error(TEXTS[ErrorWord.LEAVING])
NOJOB: Final = b"-NOJOB Job not known in the context of this node.\r\n"
TOO_LATE: Final = (
    b"-TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery.\r\n"
)
NOREPL_TIME: Final = b"-NOREPL Timeout reached before replicating to the requested number of nodes\r\n"
NOREPL_GONE: Final = b"-NOREPL job removed (expired?) before the requested replication level was achieved\r\n"
AT_MOST_ONCE: Final = Say(b"-ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)\r\n")
REPLACES_NOTHING: Final = Say(b"-ERR REPLACE stands beside KEY\r\n")
NEVER_DUE: Final = Say(b"-ERR The specified DELAY is greater than TTL. Job refused since would never be delivered\r\n")

_CONSUME: Final = int(Action.CONSUME)
_PRODUCE: Final = int(Action.PRODUCE)
_CONFIRM: Final = int(Action.CONFIRM)
_OK: Final = int(Code.OK)


# -- ADDJOB ------------------------------------------------------------------------------------------------------------


class _Options:
    """What an ADDJOB says behind its time-out; None: nothing is said."""

    def __init__(self) -> None:
        self.replicate: int | None = None
        self.delay = 0
        self.retry: int | None = None
        self.ttl = TTL_S
        self.max_ready: int | None = None
        self.is_early = False
        self.priority = 0
        self.key: str | None = None
        self.replaces = False


LEASTS: Final = {
    b"replicate": (1, REPLICATE_MAX, b"-ERR REPLICATE must be between 1 and 65535\r\n"),
    b"ttl": (1, None, b"-ERR TTL must be a number > 0\r\n"),
    b"retry": (0, None, b"-ERR RETRY time must be a non negative number\r\n"),
    b"delay": (0, None, b"-ERR DELAY time must be a non negative number\r\n"),
    b"maxlen": (1, None, b"-ERR MAXLEN must be a positive number\r\n"),
}
"""Of each option that is a number: the least and the greatest, and what is said of any other."""


def _read_options(arguments: list[bytes], options: _Options) -> Say | None:
    """Read what stands behind queue, body and time-out; gives the first fault."""
    at = 0
    while at < len(arguments):
        word = arguments[at].lower()
        if word == b"async":
            options.is_early = True
            at += 1
            continue
        if word == b"replace":
            options.replaces = True
            at += 1
            continue
        if at + 1 == len(arguments):
            return SYNTAX
        value = arguments[at + 1]
        fault = _read_option(word, value, options)
        if fault is not None:
            return fault
        at += 2
    return None


def _read_option(word: bytes, value: bytes, options: _Options) -> Say | None:
    bounds = LEASTS.get(word)
    if bounds is None:
        return _read_own_option(word, value, options)
    least, most, text = bounds
    number = whole(value)
    if number is None or number < least or (most is not None and number > most):
        return Say(text)
    if word == b"replicate":
        options.replicate = number
    elif word == b"ttl":
        options.ttl = number
    elif word == b"retry":
        options.retry = number
    elif word == b"delay":
        options.delay = number
    else:
        options.max_ready = number
    return None


def _read_own_option(word: bytes, value: bytes, options: _Options) -> Say | None:
    """Refuse what Disque does not have."""
    if word == b"priority":
        number = whole(value)
        if number is None or not -PRIORITY_MAX - 1 <= number <= PRIORITY_MAX:
            return Say(error(f"ERR PRIORITY must be a number from {-PRIORITY_MAX - 1} to {PRIORITY_MAX}"))
        options.priority = number
        return None
    if word != b"key":
        return SYNTAX
    try:
        key = value.decode()
    except UnicodeDecodeError:
        return Say(error("ERR KEY is not UTF-8"))
    fault = "is empty" if not key else name_fault(key)
    if fault is not None:
        return Say(error(f"ERR KEY {fault}"))
    options.key = key
    return None


def add_job(client: DisqueClient, arguments: list[bytes]) -> Found:
    """ADDJOB queue body ms [options]."""
    options = _Options()
    if len(arguments) > WORDS_MAX:
        return SYNTAX
    if len(arguments) > 4 and (fault := _read_options(arguments[4:], options)) is not None:
        return fault
    if options.replaces and options.key is None:
        return REPLACES_NOTHING
    wait_ms = timeout_ms(arguments[3])
    if isinstance(wait_ms, Say):
        return wait_ms
    ttl, retry = options.ttl, options.retry
    if retry is None:
        retry = max(min(ttl // 10, RETRY_MAX_S), 1)
    voters = max(len(client.facts.voters), 1)
    replicate = options.replicate
    if not retry and not options.is_early and (min(3, voters) if replicate is None else replicate) > 1:
        return AT_MOST_ONCE
    if options.delay and options.delay >= ttl:
        return NEVER_DUE
    if options.delay > YEAR_S or retry > YEAR_S:
        return Say(error(f"ERR {'DELAY' if options.delay > YEAR_S else 'RETRY'} is over a year ({YEAR_S} seconds)"))
    if ttl > BEYOND_9999_S:
        return Say(error("ERR TTL ends behind the year 9999"))
    if replicate is not None and replicate > NODES_MAX:
        return Say(error(NOREPL_FEW))
    queue = queue_name(client, arguments[1])
    if isinstance(queue, Say):
        return queue
    request = Request(
        _PRODUCE,
        queue,
        Raw(arguments[2]),
        delay=float(options.delay) or None,  # a record's seconds are floats, as its bytes are told apart by
        ttl=float(ttl),
        retry=float(retry),
        priority=options.priority or None,
        key=options.key,
        encoding=PLAIN,
        replicate=replicate,
        wait=min(wait_ms / 1000, YEAR_S) or None,
        expire="bury",
        keep=None if retry else True,
        max_ready=None if options.max_ready is None else min(options.max_ready, MSG_ID_MAX),
        as_job=True,
        early=options.is_early or None,
        on_duplicate="replace" if options.replaces else None,
    )
    return Ask(request, _Added(client, ttl, retry))


class _Added(Awaited):
    """A job was added, or not."""

    def __init__(self, client: DisqueClient, ttl: float, retry: float) -> None:
        self.client = client
        self.ttl = ttl
        self.retry = retry

    def told(self, reply: Reply) -> Made:
        facts = self.client.facts
        if reply.code != _OK:
            return _not_added(self.client, reply)
        assert reply.msg_id is not None
        job = reply.job or JobFacts(facts.leader, self.ttl, self.retry, 0, 0)  # of a copy's, the first
        return simple(job_id(facts, reply.msg_id, job))


def _not_added(client: DisqueClient, reply: Reply) -> Made:
    word, reason = reply.error, reply.reason or ""
    if word == ErrorWord.NOT_REPLICATED:
        return NOREPL_TIME
    if word == ErrorWord.NO_SUCH_MESSAGE:
        return NOREPL_GONE
    if word == ErrorWord.NO_LEADER or (word == ErrorWord.NOT_SUPPORTED and reason.startswith("replicate")):
        return error(NOREPL_FEW)
    if word == ErrorWord.UNKNOWN_OUTCOME:
        return error(f"NOREPL {reason}")
    if word == ErrorWord.DUPLICATE_KEY and reply.msg_id is not None:
        taken = job_id(client.facts, reply.msg_id, reply.job or NO_FACTS)
        return error(f"DUPLICATE {taken.decode()}")
    if word == ErrorWord.TIME:
        return error("ERR TTL ends behind the year 9999")
    if word == ErrorWord.TOO_LARGE:
        return error(f"ERR the job has {reason.removeprefix('data: ')}")
    return failed(reply)


# -- GETJOB ------------------------------------------------------------------------------------------------------------


class _Wanted:
    """What a GETJOB asks for, and how it is to be answered."""

    def __init__(self) -> None:
        self.may_wait = True
        self.timeout_ms = 0
        self.count: int | None = None
        self.has_counters = False


def get_job(client: DisqueClient, arguments: list[bytes]) -> Found:
    """GETJOB [NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] FROM queue..."""
    wanted = _Wanted()
    at, end = 1, len(arguments)
    while at < end:
        word = arguments[at].lower()
        at += 1
        if word == b"nohang":
            wanted.may_wait = False
        elif word == b"withcounters":
            wanted.has_counters = True
        elif word == b"from":
            return _get_from(client, wanted, arguments[at:])
        elif word == b"timeout" and at < end:
            timeout = timeout_ms(arguments[at])
            if isinstance(timeout, Say):
                return timeout
            wanted.timeout_ms = timeout
            at += 1
        elif word == b"count" and at < end:
            count = whole(arguments[at])
            if count is None or count <= 0:
                return Say(b"-ERR COUNT must be a number greater than zero\r\n")
            wanted.count = min(count, BATCH_MAX)
            at += 1
        else:
            return SYNTAX
    return SYNTAX


def _get_from(client: DisqueClient, wanted: _Wanted, names: list[bytes]) -> Found:
    if not names:
        return SYNTAX
    if len(names) > BATCH_MAX:
        return Say(error(f"ERR {len(names)} queues, and {BATCH_MAX} are allowed"))
    queues: list[str] = []
    for one in names:
        name = queue_name(client, one)
        if isinstance(name, Say):
            return name
        queues.append(name)
    if len(queues) > 1:
        queues = list(dict.fromkeys(queues))
    wait = min(wanted.timeout_ms / 1000, YEAR_S) or YEAR_S
    count = wanted.count if wanted.count != 1 else None
    is_one = len(queues) == 1
    request = Request(
        _CONSUME,
        queue=queues[0] if is_one else None,
        queues=None if is_one else queues,
        count=count,
        wait=wait if wanted.may_wait and not client.facts.is_leaving else None,
        consumer=client.name,
        in_turn=None if count is None or is_one else True,
        as_job=True,
    )
    return Ask(request, _Got(client, request, wanted, []))


class _Got(Awaited):
    """Jobs came, or none did; `before`: those that have come already."""

    def __init__(self, client: DisqueClient, request: Request, wanted: _Wanted, before: list[bytes]) -> None:
        self.client = client
        self.request = request
        self.wanted = wanted
        self.before = before

    def told(self, reply: Reply) -> Made:
        return _got(self.client, self.request, self.wanted, self.before, reply)


def _got(client: DisqueClient, request: Request, wanted: _Wanted, before: list[bytes], reply: Reply) -> Made:
    """Answer with the jobs that came; of queues in several shards others are asked for, as long as there are some."""
    if reply.code != _OK:
        return array(before) if before else failed(reply)
    facts = client.facts
    rows: list[bytes] = []
    if isinstance(reply, DeliveredReply):
        for item in reply.messages:
            body = plain(bytes(item.data), item.encoding)
            rows.append(_row(facts, (item.queue, item.msg_id, body), item.job or NO_FACTS, wanted))
    elif reply.msg_id is not None:
        assert reply.data is not None
        named = (reply.queue or "", reply.msg_id, plain(bytes(reply.data), reply.encoding))
        rows.append(_row(facts, named, reply.job or NO_FACTS, wanted))
    count = request.count
    if rows and count is not None and len(rows) < count and request.in_turn and client.facts.shards > 1:
        more = replace(request, wait=None, count=count - len(rows))
        return Ask(more, _Got(client, more, wanted, [*before, *rows]))
    if before or rows:
        return array([*before, *rows])
    return LEAVING if wanted.may_wait and client.facts.is_leaving else client.nil_array


def _row(node: NodeFacts, job: tuple[str, int, bytes], facts: JobFacts, wanted: _Wanted) -> bytes:
    queue, msg_id, body = job
    name, id_of = queue.encode(), job_id(node, msg_id, facts)
    if not wanted.has_counters:
        return b"*3\r\n$%d\r\n%b\r\n$40\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, id_of, len(body), body)
    counters = [bulk(b"nacks"), integer(facts.nacks), bulk(b"additional-deliveries"), integer(facts.additional)]
    return array([bulk(name), bulk(id_of), bulk(body), *counters])


# -- by ids ------------------------------------------------------------------------------------------------------------


def _of_ids(
    client: DisqueClient, arguments: list[bytes], ask: Callable[[list[int]], Request], count_of: Callable[[Reply], Any]
) -> Found:
    """Ask about ids, a thousand at a time, and answer how many were there. Those that mean nothing are left out."""
    for given in arguments:
        if not is_well_formed(given):
            return BAD_ID
    named = list(dict.fromkeys(arguments))

    def ask_from(at: int, total: int) -> Made:
        while at < len(named):
            found = [msg_id_of(client.facts, given) for given in named[at : at + BATCH_MAX]]
            ids = list(dict.fromkeys([msg_id for msg_id in found if msg_id is not None]))
            at += BATCH_MAX
            if ids:
                return Ask(ask(ids), partial(counted, at, total))
            if at < len(named):  # others have their turn: nothing here costs more than a foreign id
                return Ask(Request(Action.CLIENT), partial(passed, at, total))
        return integer(total)

    def passed(at: int, total: int, reply: Reply) -> Made:
        return ask_from(at, total)

    def counted(at: int, before: int, reply: Reply) -> Made:
        if reply.code != _OK and reply.error not in NOT_THERE:
            return failed(reply)
        return ask_from(at, before + (count_of(reply) or 0))

    made = ask_from(0, 0)
    if isinstance(made, Ask):
        return made
    return _nobodys(lambda: integer(0)) if named else Say(integer(0))


def ack_job(client: DisqueClient, arguments: list[bytes]) -> Found:
    """ACKJOB id..."""
    if len(arguments) == 2:  # nearly always
        given = arguments[1]
        if not is_well_formed(given):
            return BAD_ID
        msg_id = msg_id_of(client.facts, given)
        if msg_id is None:
            return _nobodys(lambda: integer(0))
        return Ask(Request(_CONFIRM, msg_id=msg_id), _acknowledged)
    return _of_ids(client, arguments[1:], lambda ids: Request(_CONFIRM, msg_ids=ids), _confirmed)


def _acknowledged(reply: Reply) -> Made:
    return integer(reply.confirmed or 0) if reply.code == _OK else failed(reply)


def _confirmed(reply: Reply) -> Any:
    return reply.confirmed


def fast_ack(client: DisqueClient, arguments: list[bytes]) -> Found:
    """FASTACK id..."""
    return _of_ids(client, arguments[1:], lambda ids: Request(_CONFIRM, msg_ids=ids, early=True), _confirmed)


def delete_job(client: DisqueClient, arguments: list[bytes]) -> Found:
    """DELJOB id..."""
    return _of_ids(client, arguments[1:], lambda ids: Request(_CONFIRM, msg_ids=ids, discard=True), _confirmed)


def nack(client: DisqueClient, arguments: list[bytes]) -> Found:
    """NACK id... [DELAY seconds]"""
    ids, delay = arguments[1:], None
    if len(ids) > 1 and ids[-2].lower() == b"delay":
        delay = whole(ids[-1])
        if delay is None or delay < 0:
            return Say(b"-ERR DELAY time must be a non negative number\r\n")
        if delay > YEAR_S:
            return Say(error(f"ERR DELAY is over a year ({YEAR_S} seconds)"))
        ids = ids[:-2]
    asked = delay or None
    return _of_ids(
        client, ids, lambda ids: Request(Action.RELEASE, msg_ids=ids, delay=asked, nack=True), lambda r: r.released
    )


def enqueue(client: DisqueClient, arguments: list[bytes]) -> Found:
    """ENQUEUE id..."""
    return _of_ids(
        client, arguments[1:], lambda ids: Request(Action.RELEASE, msg_ids=ids, nack=False), lambda r: r.released
    )


def dequeue(client: DisqueClient, arguments: list[bytes]) -> Found:
    """DEQUEUE id..."""
    return _of_ids(client, arguments[1:], lambda ids: Request(Action.WITHHOLD, msg_ids=ids), lambda r: r.withheld)


# -- WORKING, SHOW -----------------------------------------------------------------------------------------------------


def working(client: DisqueClient, arguments: list[bytes]) -> Found:
    """WORKING id"""
    msg_id = _one(client, arguments[1])
    if isinstance(msg_id, Say):
        return msg_id
    if msg_id is None:
        return _nobodys(lambda: NOJOB)

    def postponed(reply: Reply) -> Made:
        if reply.code == _OK:
            return integer(reply.count or 0)
        if reply.error == ErrorWord.NO_SUCH_MESSAGE:
            return NOJOB
        return TOO_LATE if reply.error == ErrorWord.TIME else failed(reply)

    return Ask(Request(Action.EXTEND, msg_id=msg_id, as_job=True), postponed)


def _one(client: DisqueClient, given: bytes) -> int | Say | None:
    return msg_id_of(client.facts, given) if is_well_formed(given) else BAD_ID


def _nobodys(answer: Callable[[], bytes]) -> Found:
    """Answer about an id that means nothing here, for whoever may do anything at all."""

    def judged(reply: Reply) -> Made:
        return answer() if reply.code == _OK else failed(reply)

    return Ask(Request(Action.NODE_DESCRIBE), judged)


def show(client: DisqueClient, arguments: list[bytes]) -> Found:
    """SHOW id"""
    msg_id = _one(client, arguments[1])
    if isinstance(msg_id, Say):
        return msg_id
    if msg_id is None:
        return _nobodys(lambda: client.nil)

    def shown(reply: Reply) -> Made:
        if reply.error == ErrorWord.NO_SUCH_MESSAGE:
            return client.nil
        if reply.code != _OK or not isinstance(reply, ShowReply) or reply.message is None:
            return failed(reply)
        return described(client, reply.message, reply.now or 0.0)

    return Ask(Request(Action.SHOW, msg_id=msg_id, as_job=True), shown)


STATES: Final = {"ready": b"queued", "uncommitted": b"wait-repl"}
ACTIVE: Final = b"active"


def described(client: DisqueClient, message: MessageView, now: float) -> bytes:
    """Show a job with all that Disque tells of one: 15 names and values."""
    facts, job = client.facts, message.job or NO_FACTS
    state = STATES.get(message.state, ACTIVE)
    is_queued = message.state == "ready"
    is_out = message.due_at >= message.expires_at or (message.state == "in_flight" and not message.retry)
    is_over = is_out and not is_queued
    expires_ms = max(0, round((message.expires_at - now) * 1000))
    due_ms = max(0, round((message.due_at - now) * 1000))
    requeue = integer(0) if is_queued else client.nil if is_over else integer(due_ms)
    awake = integer(expires_ms if is_queued or is_over else min(due_ms, expires_ms))
    repl = message.replicate or (1 if not message.retry else min(3, max(len(facts.voters), 1)))
    others = [node_id for node_id in facts.voters if node_id != facts.leader]
    nodes = [node_hex(facts.cluster_id, node_id) for node_id in [facts.leader, *others][:repl] if node_id]
    values = [
        (b"id", bulk(job_id(facts, message.msg_id, job))),
        (b"queue", bulk(message.queue.encode())),
        (b"state", bulk(state)),
        (b"repl", integer(repl)),
        (b"ttl", integer(max(0, int(message.expires_at - now)))),
        (b"ctime", integer(int(message.produced_at * 1000) * 1_000_000 + (message.msg_id >> 10) % 1_000_000)),
        (b"delay", integer(round(message.delay or 0))),
        (b"retry", integer(round(message.retry))),
        (b"nacks", integer(job.nacks)),
        (b"additional-deliveries", integer(job.additional)),
        (b"nodes-delivered", array([bulk(one) for one in nodes])),
        (b"nodes-confirmed", array([])),
        (b"next-requeue-within", requeue),
        (b"next-awake-within", awake),
        (b"body", bulk(body_of(message))),
    ]
    return array([part for name, value in values for part in (bulk(name), value)])
