"""gmq's protocol as a session: Push, Pop and Ack of jobs with ids of their own, over Go's JSON-RPC. No socket.

A call is a JSON object, a reply one line. Replies leave when they are there, in any order. What is no call ends the
connection, silently, when what is open is answered: that is what Go's server does.

Push | Pop | Ack of our terms: a message whose key is unique among all (`scope`), of a queue that goes when it is empty;
a consume over queues; a confirm by that key of what is in flight. docs/gmq.md says what the fields become.
"""

import re
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw

from net.node_facts import USUAL, ListenerFacts, NodeFacts
from net.protocols.gmq_reading import (
    BROKEN,
    NAMES_BYTES,
    NULL,
    STRING,
    STRINGS,
    RefusedError,
    check_count,
    first_of,
    job_of,
    members_of,
    names_of,
    text_in,
)
from net.protocols.gmq_shapes import (
    Acknowledged,
    Call,
    Job,
    PopCall,
    Popped,
    PushCall,
    Pushed,
    UsualCall,
)
from net.protocols.json_framing import ObjectFramer, is_deeper
from net.protocols.payload_text import payload_text
from net.protocols.session import LARGE_BYTES, Ask, Awaited, Close, Fault, Found, RequestLimits, Say, Session
from quorate.gmq_jobs import ttr_of
from quorate.go_json import SIGNS, UnreadableError, compact, escaped, readable
from quorate.protocol import (
    BATCH_MAX,
    MSG_ID_MAX,
    NAME_BYTES_MAX,
    TIME_MAX_S,
    Action,
    Code,
    ErrorWord,
    Reply,
    Request,
    Told,
    name_fault,
)

YEAR_S: Final = 31_536_000
FOR_EVER_S: Final = TIME_MAX_S
INT_MAX: Final = 2**63 - 1
USUAL_DIGITS: Final = 10
"""A number of fewer digits is one of 64 bits."""

USUAL_NAME: Final = NAME_BYTES_MAX // 4
"""A name of so many characters has no more bytes than it may have."""

ID_BYTES_MAX: Final = 64 << 10
"""Of a call's id, which is kept as long as the call is open, and may be six times as long in the reply."""

METHOD_SHOWN: Final = 1024

VALUES_MAX: Final = 10_000
"""Of one call: members of objects and items of lists, in all. A job has five, and a Pop a thousand topics at most."""

BACKSLASH: Final = ord("\\")
QUOTE: Final = b'"'
NO_ID: Final = b'"job.id is empty"'
NO_TOPIC: Final = b'"job.topic is empty"'
SUCCESS: Final = b'"success"'
EMPTY: Final = "empty"
NO_TOPICS: Final = "topics is empty"
NO_PARAMS: Final = "jsonrpc: request body missing params"
NOT_RESERVED: Final = "Job is not be reserved"
EXPIRED: Final = "TTR has expired and will be consumed again"
UNKNOWN: Final = "Unknown error"
GONE: Final = 'strconv.Atoi: parsing "": invalid syntax'
"""The texts are those of gmq, which its clients compare."""


_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_PRODUCE: Final = int(Action.PRODUCE)
_CONSUME: Final = int(Action.CONSUME)
_CONFIRM: Final = int(Action.CONFIRM)
_FIND: Final = int(Action.FIND)
_OK: Final = int(Code.OK)

_PushCall: Final = PushCall
_PopCall: Final = PopCall
_usual_in: Final = msgspec.json.Decoder(UsualCall).decode
_call_in: Final = msgspec.json.Decoder(Call).decode
_pushed_in: Final = msgspec.json.Decoder(Pushed).decode
_popped_in: Final = msgspec.json.Decoder(Popped).decode
_acknowledged_in: Final = msgspec.json.Decoder(Acknowledged).decode
_encode: Final = msgspec.json.Encoder().encode

Made = bytes | Ask


class Step(Awaited):
    """The note to a call's request, which is told again under the call's id."""

    def __init__(self, call_id: bytes) -> None:
        self.call_id = call_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.call_id!r})"


def _is_plain(data: bytes) -> bool:
    """Whether no half of a surrogate pair can be in it, and no byte that is no UTF-8."""
    return data.isascii() and (BACKSLASH not in data or data.find(b"\\u") < 0)


def _escaped(data: bytes) -> bytes:
    """As `escaped`, which is not compiled, and is called for nothing nearly always."""
    return data if len(data.translate(None, SIGNS)) == len(data) else escaped(data)


def _shown(text: str) -> bytes:
    """Make a string's JSON, as Go writes it."""
    return _escaped(_encode(text))


def done(call_id: bytes, result: bytes) -> bytes:
    """Make the reply to a call, whose id is escaped, with its result's JSON."""
    return b'{"id":%b,"result":%b,"error":null}\n' % (call_id, result)


def failed(call_id: bytes, error: str) -> bytes:
    """Make the reply to a call that failed, whose id is escaped."""
    return b'{"id":%b,"result":null,"error":%b}\n' % (call_id, _shown(error))


def refused(call_id: bytes, reply: Reply) -> bytes:
    """Make the reply to a call that the node refused."""
    return failed(call_id, f"{reply.error}: {reply.reason}")


class GmqSession(Session):
    """One client's stream. `facts`: what it knows of its node."""

    def __init__(
        self, limits: RequestLimits, facts: NodeFacts | None = None, *, listener: ListenerFacts = USUAL
    ) -> None:
        super().__init__(is_ordered=False)
        self._limits = limits
        self._usual_bytes = min(LARGE_BYTES, limits.request_bytes_max)
        self._framer = ObjectFramer(limits.request_bytes_max, limits.depth_max)
        self._facts = facts or NodeFacts()

    def discard(self) -> None:
        """Nothing more is received."""
        super().discard()
        self._framer = ObjectFramer(self._limits.request_bytes_max, self._limits.depth_max)

    @property
    def state(self) -> bytes | None:
        """Nothing, where the next byte begins something new."""
        return b"" if self._framer.is_idle else None

    def receive(self, data: bytes) -> list[Found]:
        """Find the calls that `data` completes, in order."""
        if self.large:
            self.large = {}
        if self._framer.is_idle and len(data) <= self._usual_bytes:  # nearly always it is one call
            usual = self._usual(data)
            if usual is not None:
                return [usual]
        frames = self._framer.feed(data)
        self.partial_bytes = self._framer.partial_bytes
        found: list[Found] = []
        seen = iter(self._framer.seen)
        for frame in frames:
            asked = Close() if isinstance(frame, Fault) else self._asked(frame, next(seen)[1])
            if isinstance(frame, bytes) and len(frame) > LARGE_BYTES:
                self.large[len(found)] = len(frame)
            found.append(asked)
            if isinstance(asked, Close):
                break
        return found

    def _usual(self, data: bytes) -> Found | None:
        """Make what a call asks that is as nearly all are; None: it is another one, not whole, or wrong."""
        if not _is_plain(data):
            return None
        try:
            call = _usual_in(data)
        except BROKEN:
            return None
        call_id = NULL if call.id is UNSET else bytes(call.id)
        if not call_id.isalnum() and not (call_id[:1] == QUOTE and call_id[1:-1].isalnum()):
            return None
        if is_deeper(data, self._limits.depth_max):
            return Close()
        first = call.params.first
        kind = type(call)
        try:
            if kind is _PushCall:
                return _push(call_id, self._facts, first or Job())
            if kind is _PopCall:
                return _pop(call_id, self._facts, first or [])
            return _acknowledge(call_id, first or "")
        except RefusedError as refusal:
            return Say(failed(call_id, str(refusal)))

    def _asked(self, data: bytes, commas: int) -> Found:
        """Make what a call of a framed object asks, in which so many commas stand outside of strings."""
        try:
            found = _call_in(data)
            method, params, own_id = found.method, found.params, found.id
        except BROKEN:
            members = members_of(data)
            if members is None:
                return Close()
            method, params, own_id = members
        return self._served(data, method, params, own_id, commas)

    def _served(self, data: bytes, method: str, params: Any, own_id: Any, commas: int) -> Found:
        is_plain = _is_plain(data)
        call_id = NULL if own_id is UNSET else bytes(own_id)
        if len(call_id) > ID_BYTES_MAX:
            return Close()
        try:
            if not call_id.isalnum():
                call_id = _escaped(compact(call_id if is_plain else readable(call_id)))
        except BROKEN:
            return Close()
        if commas > VALUES_MAX:  # of hundreds of thousands objects would be made, or most of them passed over
            return Say(failed(call_id, f"{ErrorWord.TOO_LARGE}: a call may have {VALUES_MAX} values, it has more"))
        serve = METHODS.get(method)
        if serve is None:
            return Say(failed(call_id, _no_method(method[:METHOD_SHOWN])))
        given = NULL if params is UNSET else bytes(params)
        if given == NULL:
            return Say(failed(call_id, NO_PARAMS))
        try:
            return serve(call_id, self._facts, given if is_plain else readable(given))
        except RefusedError as refusal:
            return Say(failed(call_id, str(refusal)))
        except UnreadableError as error:
            return Say(failed(call_id, f"{ErrorWord.TOO_LARGE}: {error}"))
        except BROKEN:
            return Close()

    def answered(self, request: Request | None, reply: Reply, note: Any = None) -> bytes | Request | Ask:
        """Make the reply as gmq says it, or what is to be asked next. What is no call's is not said at all."""
        return b"" if note is None else cast("Awaited", note).told(reply)

    def fault_reply(self, fault: Fault) -> Reply:
        """Make the reply to a fault, which nobody gets."""
        return Reply(action=0, code=Code.ERROR, error=fault.error, reason=fault.reason)


def _no_method(method: str) -> str:
    service, dot, _ = method.rpartition(".")
    if not dot:
        return f"rpc: service/method request ill-formed: {method}"
    return f"rpc: can't find {'method' if service == SERVICE else 'service'} {method}"


def _is_name(text: str) -> bool:
    """Whether it may be a topic or an id, if it is not empty."""
    return (len(text) <= USUAL_NAME and text.isprintable()) or name_fault(text) is None


def _must_be_name(what: str, text: str) -> None:
    if not _is_name(text):
        raise RefusedError(f"{ErrorWord.FIELD}: {what} {name_fault(text)}")


# -- Push --------------------------------------------------------------------------------------------------------------


def number_in(text: str | None) -> int:
    """Read a decimal number of 64 bits; 0 where it is none."""
    if text is None:
        return 0
    if len(text) < USUAL_DIGITS and text.isascii() and text.isdigit():  # nearly always
        return int(text)
    if not _NUMBER.fullmatch(text):
        return 0
    number = int(text)
    return number if -INT_MAX - 1 <= number <= INT_MAX else 0


def push(call_id: bytes, facts: NodeFacts, params: bytes) -> Found:
    """Service.Push: a job."""
    try:
        job = _pushed_in(params).first or Job()
    except msgspec.ValidationError:
        job = job_of(params)
    return _push(call_id, facts, job)


def _push(call_id: bytes, facts: NodeFacts, job: Job) -> Found:
    name, topic = job.id, job.topic
    if not name:
        return Say(done(call_id, NO_ID))
    if not topic:
        return Say(done(call_id, NO_TOPIC))
    _must_be_name("id", name)
    _must_be_name("topic", topic)
    delay, ttr = number_in(job.delay), number_in(job.TTR)
    retry = min(min(ttr, YEAR_S) + facts.gmq_ttr_grace_s, YEAR_S) if ttr > 0 else 0.0
    request = Request(
        _PRODUCE,
        topic,
        Raw(_encode(job.body or "")),
        delay=float(min(delay, YEAR_S)) if delay > 0 else None,
        ttl=FOR_EVER_S,
        retry=float(retry),
        key=name,
        scope="all",
        ttr=ttr,
        asked_delay=delay or None,
    )
    pushed = _Pushed(call_id, name)
    if facts.shards == 1:
        return Ask(request, pushed)
    return Ask(Request(_FIND, key=name, scope="all", as_job=True), _Looked(pushed, request))


class _Pushed(Step):
    """A job was produced, or not."""

    def __init__(self, call_id: bytes, job: str) -> None:
        super().__init__(call_id)
        self.job = job

    def told(self, reply: Reply) -> Made:
        if reply.code == _OK:
            return done(self.call_id, SUCCESS)
        if reply.error == ErrorWord.DUPLICATE_KEY:
            return _exists(self.call_id, self.job)
        return refused(self.call_id, reply)


class _Looked(Step):
    """All shards were asked whether a job is there: that of its topic sees no others' ids."""

    def __init__(self, then: _Pushed, request: Request) -> None:
        super().__init__(then.call_id)
        self.then = then
        self.request = request

    def told(self, reply: Reply) -> Made:
        if reply.code == _OK:
            return _exists(self.call_id, self.then.job)
        if reply.error == ErrorWord.NO_SUCH_MESSAGE:
            return Ask(self.request, self.then)
        return refused(self.call_id, reply)


def _exists(call_id: bytes, job: str) -> bytes:
    return done(call_id, _shown(f"jobKey:gmq:jobpool:{job},error:has exist"))


# -- Pop ---------------------------------------------------------------------------------------------------------------


def pop(call_id: bytes, facts: NodeFacts, params: bytes) -> Found:
    """Service.Pop: a job of the first topic that has one."""
    if len(params) > NAMES_BYTES:
        raw = first_of(params, STRINGS)
        if raw != NULL:
            check_count(raw)
    try:
        names = _popped_in(params).first or []
    except msgspec.ValidationError:
        names = names_of(params)
    return _pop(call_id, facts, names)


def _pop(call_id: bytes, facts: NodeFacts, names: list[str]) -> Found:
    if not names:
        raise RefusedError(NO_TOPICS)
    topics = names if len(names) == 1 and names[0] else [name for name in dict.fromkeys(names) if name]
    if len(topics) > BATCH_MAX:
        raise RefusedError(f"{ErrorWord.FIELD}: {len(topics)} topics, and {BATCH_MAX} are allowed")
    for name in topics:
        _must_be_name("topic", name)
    if not topics:
        raise RefusedError(EMPTY)
    is_one = len(topics) == 1
    request = Request(
        _CONSUME,
        topics[0] if is_one else None,
        queues=None if is_one else topics,
        wait=facts.gmq_pop_wait_s or None,
        ttr=0,
    )
    return Ask(request, _Popped(call_id))


class _Popped(Step):
    """A job came, or none did."""

    def told(self, reply: Reply) -> Made:
        if reply.code != _OK:
            return refused(self.call_id, reply)
        if reply.msg_id is None or reply.told is None:
            return failed(self.call_id, EMPTY)
        return done(self.call_id, job_map(reply, reply.msg_id, reply.told))


def job_map(reply: Reply, msg_id: int, told: Told) -> bytes:
    """Show a job as a Pop gives it: every value is a string, in the order of their names."""
    before = max((reply.deliveries or 0) - 1, 0) if told.retry else 0
    data = b"" if reply.data is None else bytes(reply.data)
    if reply.encoding is None and data[:1] == b'"' and BACKSLASH not in data:  # nearly always
        body = data
    else:
        body = _encode(payload_text(data, reply.encoding))
    ttr = told.ttr
    job = b'{"TTR":"%d","body":%b,"consume_num":"%d","delay":"%d","id":%b,"status":"3","topic":%b}' % (
        ttr_of(None, told.retry) if ttr is None else ttr,
        body,
        before,
        told.delay or 0,
        _encode(str(msg_id) if told.key is None else told.key),
        _encode(reply.queue or ""),
    )
    return _escaped(job)  # what is no string in it has no sign that is


# -- Ack ---------------------------------------------------------------------------------------------------------------


def acknowledge(call_id: bytes, facts: NodeFacts, params: bytes) -> Found:
    """Service.Ack: a job is done."""
    try:
        job = _acknowledged_in(params).first or ""
    except msgspec.ValidationError:
        raw = first_of(params, STRING)
        job = "" if raw == NULL else text_in(raw)
    return _acknowledge(call_id, job)


def _acknowledge(call_id: bytes, job: str) -> Found:
    if not job or not _is_name(job):
        raise RefusedError(GONE)  # nothing was pushed with it
    msg_id = int(job) if job.isascii() and job.isdigit() and len(job) <= 16 and str(int(job)) == job else 0
    return Ask(Request(_CONFIRM, key=job, scope="all", held=True), _Acknowledged(call_id, msg_id))


class _Acknowledged(Step):
    """A job was confirmed by its key, or not. `msg_id`: what it may mean if no job has that key; 0: nothing."""

    def __init__(self, call_id: bytes, msg_id: int) -> None:
        super().__init__(call_id)
        self.msg_id = msg_id

    def told(self, reply: Reply) -> Made:
        msg_id = self.msg_id
        if reply.error == ErrorWord.NO_SUCH_MESSAGE and 0 < msg_id <= MSG_ID_MAX:
            self.msg_id = 0
            return Ask(Request(_CONFIRM, msg_id=msg_id, scope="all", held=True), self)
        return _acknowledged(self.call_id, reply)


def _acknowledged(call_id: bytes, reply: Reply) -> bytes:
    if reply.code == _OK:
        return done(call_id, b"true") if reply.confirmed else failed(call_id, GONE)
    if reply.error == ErrorWord.NO_SUCH_MESSAGE:
        return failed(call_id, GONE)
    if reply.error != ErrorWord.NOT_IN_FLIGHT:
        return refused(call_id, reply)
    if reply.deliveries:
        return failed(call_id, EXPIRED)
    return failed(call_id, NOT_RESERVED if reply.state == "ready" else UNKNOWN)


SERVICE: Final = "Service"
METHODS: Final[dict[str, Callable[[bytes, NodeFacts, bytes], Found]]] = {
    "Service.Push": push,
    "Service.Pop": pop,
    "Service.Ack": acknowledge,
}
