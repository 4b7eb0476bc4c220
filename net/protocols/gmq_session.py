"""gmq's protocol as a session: Push, Pop and Ack of jobs with ids of their own, over Go's JSON-RPC. No socket.

A call is a JSON object, a reply one line. Replies leave when they are there, in any order. What is no call ends the
connection, silently, when what is open is answered: that is what Go's server does.

Push | Pop | Ack of our terms: a message whose key is unique among all (`scope`), of a queue that goes when it is empty;
a consume over queues; a confirm by that key of what is in flight. docs/gmq.md says what the fields become.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw

from net.node_facts import NodeFacts
from net.protocols.gmq_shapes import (
    WAYS,
    Acknowledged,
    AnyCase,
    Call,
    Job,
    JobAsItCame,
    LooseCall,
    Params,
    Popped,
    Pushed,
)
from net.protocols.json_framing import ObjectFramer, is_deeper
from net.protocols.json_shapes import Batch
from net.protocols.payload_text import payload_text
from net.protocols.session import LARGE_BYTES, Ask, Close, Fault, Found, RequestLimits, Say, Session
from quorate.gmq_jobs import ttr_of
from quorate.go_json import SIGNS, UnreadableError, compact, escaped, kind_of, misfit, readable
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
INT_MAX: Final = 2**63 - 1
USUAL_DIGITS: Final = 10
"""A number of fewer digits is one of 64 bits."""

USUAL_NAME: Final = NAME_BYTES_MAX // 4
"""A name of so many characters has no more bytes than it may have."""

NAMES_BYTES: Final = 8192
"""A list of topics that is longer is looked at before anything of it is made."""

ORDERED_BYTES: Final = 64 << 10
"""In a call of at most so many bytes it is found which of several ways to write a member comes last."""

ANY_CASE_BYTES: Final = 512 << 10
"""In a call of at most so many bytes names match without regard to case."""

ID_BYTES_MAX: Final = 64 << 10
"""Of a call's id, which is kept as long as the call is open, and may be six times as long in the reply."""

METHOD_SHOWN: Final = 1024

NULL: Final = b"null"
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

STRING: Final = "string"
MAP: Final = "map[string]string"
STRINGS: Final = "[]string"
PARAMS: Final = "[1]interface {}"

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_WHOLE: Final = re.compile(rb"-?[0-9]+")
_PRODUCE: Final = int(Action.PRODUCE)
_CONSUME: Final = int(Action.CONSUME)
_CONFIRM: Final = int(Action.CONFIRM)
_FIND: Final = int(Action.FIND)
_OK: Final = int(Code.OK)
_BROKEN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, UnreadableError)

_call_in: Final = msgspec.json.Decoder(Call).decode
_loose_call_in: Final = msgspec.json.Decoder(LooseCall).decode
_any_case_in: Final = msgspec.json.Decoder(AnyCase).decode
_params_in: Final = msgspec.json.Decoder(Params).decode
_pushed_in: Final = msgspec.json.Decoder(Pushed).decode
_popped_in: Final = msgspec.json.Decoder(Popped).decode
_acknowledged_in: Final = msgspec.json.Decoder(Acknowledged).decode
_job_in: Final = msgspec.json.Decoder(JobAsItCame).decode
_text_in: Final = msgspec.json.Decoder(str).decode
_list_in: Final = msgspec.json.Decoder(list[Raw]).decode
_bounded_list: Final = msgspec.json.Decoder(Batch).decode
_encode: Final = msgspec.json.Encoder().encode

Made = bytes | Ask
Step = Callable[[Reply], Made]


class RefusedError(Exception):
    """A call that gets an error, which says so."""


def _escaped(data: bytes) -> bytes:
    """As `escaped`, which is not compiled, and is called for nothing nearly always."""
    return data if len(data.translate(None, SIGNS)) == len(data) else escaped(data)


def _shown(text: str) -> bytes:
    """A string's JSON, as Go writes it."""
    return _escaped(_encode(text))


def done(call_id: bytes, result: bytes) -> bytes:
    """The reply to a call, with its result's JSON."""
    return b'{"id":%b,"result":%b,"error":null}\n' % (_escaped(call_id), result)


def failed(call_id: bytes, error: str) -> bytes:
    """The reply to a call that failed."""
    return b'{"id":%b,"result":null,"error":%b}\n' % (_escaped(call_id), _shown(error))


def refused(call_id: bytes, reply: Reply) -> bytes:
    """The reply to a call that the node refused."""
    return failed(call_id, f"{reply.error}: {reply.reason}")


class GmqSession(Session):
    """One client's stream. `facts`: what it knows of its node."""

    def __init__(self, limits: RequestLimits, facts: NodeFacts | None = None, *, debug: bool = False) -> None:
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
        """The calls that `data` completes, in order."""
        if self.large:
            self.large = {}
        if self._framer.is_idle and len(data) <= self._usual_bytes:  # nearly always it is one call
            try:
                call = _call_in(data)
            except _BROKEN:
                pass  # the framer finds out whether it is wrong, or only not all there
            else:
                return [self._served(data, call.method, call.params, call.id)]
        frames = self._framer.feed(data)
        self.partial_bytes = self._framer.partial_bytes
        found: list[Found] = []
        for frame in frames:
            asked = Close() if isinstance(frame, Fault) else self._asked(frame)
            if isinstance(frame, bytes) and len(frame) > LARGE_BYTES:
                self.large[len(found)] = len(frame)
            found.append(asked)
            if isinstance(asked, Close):
                break
        return found

    def _asked(self, data: bytes) -> Found:
        try:
            found = _call_in(data)
            method, params, own_id = found.method, found.params, found.id
        except _BROKEN:
            members = _members(data)
            if members is None:
                return Close()
            method, params, own_id = members
        return self._served(data, method, params, own_id)

    def _served(self, data: bytes, method: str, params: Any, own_id: Any) -> Found:
        if is_deeper(data, self._limits.depth_max):
            return Close()
        is_plain = data.isascii() and b"\\u" not in data  # nearly always
        call_id = NULL if own_id is UNSET else bytes(own_id)
        if len(call_id) > ID_BYTES_MAX:
            return Close()
        try:
            if not call_id.isalnum():
                call_id = compact(call_id if is_plain else readable(call_id))
        except _BROKEN:
            return Close()
        serve = METHODS.get(method)
        if serve is None:
            return Say(failed(call_id, _no_method(method[:METHOD_SHOWN])))
        given = NULL if params is UNSET else bytes(params)
        if given == NULL:
            return Say(failed(call_id, NO_PARAMS))
        try:
            return serve(_Asker(call_id, self._facts), given if is_plain else readable(given))
        except RefusedError as refusal:
            return Say(failed(call_id, str(refusal)))
        except UnreadableError as error:
            return Say(failed(call_id, f"{ErrorWord.TOO_LARGE}: {error}"))
        except _BROKEN:
            return Close()

    def answered(self, request: Request | None, reply: Reply, note: Any = None) -> bytes | Request | Ask:
        """The reply as gmq says it, or what is to be asked next. What is no call's is not said at all."""
        return b"" if note is None else cast("Step", note)(reply)

    def fault_reply(self, fault: Fault) -> Reply:
        """The reply to a fault, which nobody gets."""
        return Reply(action=0, code=Code.ERROR, error=fault.error, reason=fault.reason)


class _Asker:
    """A call's id, as it is told again, and the node that is asked."""

    def __init__(self, call_id: bytes, facts: NodeFacts) -> None:
        self.call_id = call_id
        self.facts = facts


def _members(data: bytes) -> tuple[str, Any, Any] | None:
    """Method, params and id of a call, however they are written; None: it is no call."""
    try:
        data = readable(data)
        if len(data) > ANY_CASE_BYTES:
            loose: Any = _loose_call_in(data)
            return ("" if loose.method is UNSET else _text_in(loose.method)), loose.params, loose.id
        found: Any = _any_case_in(data)
        chosen: list[Any] = []
        for ways in WAYS.values():
            there = [way for way in ways if getattr(found, way) is not UNSET]
            if len(there) > 1:
                if len(data) > ORDERED_BYTES:
                    return None
                there = [_last_of(data, there)]
            chosen.append(getattr(found, there[0]) if there else UNSET)
        method, params, own_id = chosen
        if method is UNSET:  # to Go it is empty then
            return "", params, own_id
        return _text_in(method), params, own_id
    except _BROKEN:
        return None


def _last_of(data: bytes, ways: list[str]) -> str:
    """Which of those members stands last in an object."""
    names: list[str] = []

    def noted(pairs: list[tuple[str, Any]]) -> None:
        names[:] = [name for name, _ in pairs if name in ways]  # the outermost object is the last that ends

    json.loads(data, object_pairs_hook=noted, parse_int=str, parse_float=str)
    return names[-1]


def _no_method(method: str) -> str:
    service, dot, _ = method.rpartition(".")
    if not dot:
        return f"rpc: service/method request ill-formed: {method}"
    return f"rpc: can't find {'method' if service == SERVICE else 'service'} {method}"


def _first(params: bytes, wanted: str) -> bytes:
    """The first of a call's params, where it is not what is wanted; an error that says so, if that is its kind."""
    if params[:1] != b"[":
        raise RefusedError(misfit(kind_of(params), PARAMS))
    first = _params_in(params).first
    raw = NULL if first is UNSET else bytes(first)
    opening = {MAP: b"{", STRINGS: b"[", STRING: b'"'}[wanted]
    if raw != NULL and raw[:1] != opening:
        raise RefusedError(misfit(kind_of(raw), wanted))
    return raw


def _is_name(text: str) -> bool:
    """Whether it may be a topic or an id, if it is not empty."""
    return (len(text) <= USUAL_NAME and text.isprintable()) or name_fault(text) is None


def _must_be_name(what: str, text: str) -> None:
    if not _is_name(text):
        raise RefusedError(f"{ErrorWord.FIELD}: {what} {name_fault(text)}")


# -- Push --------------------------------------------------------------------------------------------------------------


def number_in(text: str | None) -> int:
    """A decimal number of 64 bits; 0 where it is none."""
    if text is None:
        return 0
    if len(text) < USUAL_DIGITS and text.isascii() and text.isdigit():  # nearly always
        return int(text)
    if not _NUMBER.fullmatch(text):
        return 0
    number = int(text)
    return number if -INT_MAX - 1 <= number <= INT_MAX else 0


def _job(params: bytes) -> Job:
    """A job whose values are not all strings, where that will do."""
    raw = _first(params, MAP)
    job = Job()
    if raw == NULL:
        return job
    came: Any = _job_in(raw)
    for name in ("id", "topic", "body", "delay", "TTR"):
        value: Any = getattr(came, name)
        if value is UNSET:
            continue
        text = bytes(value)
        if text == NULL:
            continue
        kind = kind_of(text)
        if kind == "string":
            setattr(job, name, _text_in(text))
        elif kind == "number" and name in ("delay", "TTR") and _WHOLE.fullmatch(text):
            setattr(job, name, text.decode())
        elif kind == "array" and name == "topic" and (only := _only_name(text)) is not None:
            job.topic = only
        else:
            raise RefusedError(misfit(kind, STRING))
    return job


def _only_name(text: bytes) -> str | None:
    """The name in a list of one; None: it is no such list."""
    if len(text) > NAMES_BYTES:
        return None
    names = _list_in(text)
    if len(names) != 1 or bytes(names[0])[:1] != b'"':
        return None
    return _text_in(names[0])


def push(asker: _Asker, params: bytes) -> Found:
    """Service.Push: a job."""
    call_id, facts = asker.call_id, asker.facts
    try:
        job = _pushed_in(params).first or Job()
    except msgspec.ValidationError:
        job = _job(params)
    if not job.id:
        return Say(done(call_id, NO_ID))
    if not job.topic:
        return Say(done(call_id, NO_TOPIC))
    for what, name in (("id", job.id), ("topic", job.topic)):
        _must_be_name(what, name)
    delay, ttr = number_in(job.delay), number_in(job.TTR)
    retry = min(min(ttr, YEAR_S) + facts.gmq_ttr_grace_s, YEAR_S) if ttr > 0 else 0.0
    request = Request(
        _PRODUCE,
        job.topic,
        Raw(_encode(job.body or "")),
        delay=float(min(delay, YEAR_S)) if delay > 0 else None,
        ttl=float(TIME_MAX_S),
        retry=float(retry),
        key=job.id,
        scope="all",
        ttr=ttr,
        asked_delay=delay or None,
    )

    def pushed(reply: Reply) -> Made:
        if reply.code == _OK:
            return done(call_id, SUCCESS)
        if reply.error == ErrorWord.DUPLICATE_KEY:
            return _exists(call_id, job.id or "")
        return refused(call_id, reply)

    if facts.shards == 1:
        return Ask(request, pushed)

    def looked(reply: Reply) -> Made:
        """The shard of its topic sees no others' ids."""
        if reply.code == _OK:
            return _exists(call_id, job.id or "")
        if reply.error == ErrorWord.NO_SUCH_MESSAGE:
            return Ask(request, pushed)
        return refused(call_id, reply)

    return Ask(Request(_FIND, key=job.id, scope="all"), looked)


def _exists(call_id: bytes, job: str) -> bytes:
    return done(call_id, _shown(f"jobKey:gmq:jobpool:{job},error:has exist"))


# -- Pop ---------------------------------------------------------------------------------------------------------------


def pop(asker: _Asker, params: bytes) -> Found:
    """Service.Pop: a job of the first topic that has one."""
    call_id, facts = asker.call_id, asker.facts
    if len(params) > NAMES_BYTES:
        raw = _first(params, STRINGS)
        if raw != NULL:
            _bounded(raw)
    try:
        names = _popped_in(params).first or []
    except msgspec.ValidationError:
        names = _names(params)
    topics = [name for name in dict.fromkeys(names) if name]
    if not names:
        raise RefusedError(NO_TOPICS)
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

    def popped(reply: Reply) -> Made:
        if reply.code != _OK:
            return refused(call_id, reply)
        if reply.msg_id is None or reply.told is None:
            return failed(call_id, EMPTY)
        return done(call_id, job_map(reply, reply.msg_id, reply.told))

    return Ask(request, popped)


def _bounded(raw: bytes) -> None:
    try:
        _bounded_list(raw)
    except msgspec.ValidationError as error:
        raise RefusedError(f"{ErrorWord.FIELD}: more than {BATCH_MAX} topics") from error


def _names(params: bytes) -> list[str]:
    """Names of which some are null, which is none."""
    raw = _first(params, STRINGS)
    if raw == NULL:
        return []
    names: list[str] = []
    for value in _list_in(raw):
        text = bytes(value)
        if text == NULL:
            names.append("")
        elif text[:1] != b'"':
            raise RefusedError(misfit(kind_of(text), STRING))
        else:
            names.append(_text_in(text))
    return names


def job_map(reply: Reply, msg_id: int, told: Told) -> bytes:
    """A job as a Pop gives it: every value is a string, in the order of their names."""
    before = max((reply.deliveries or 0) - 1, 0) if told.retry else 0
    data = b"" if reply.data is None else bytes(reply.data)
    if reply.encoding is None and data[:1] == b'"' and b"\\" not in data:  # nearly always
        body = _escaped(data)
    else:
        body = _shown(payload_text(data, reply.encoding))
    return b'{"TTR":"%d","body":%b,"consume_num":"%d","delay":"%d","id":%b,"status":"3","topic":%b}' % (
        ttr_of(told.ttr, told.retry),
        body,
        before,
        told.delay or 0,
        _shown(str(msg_id) if told.key is None else told.key),
        _shown(reply.queue or ""),
    )


# -- Ack ---------------------------------------------------------------------------------------------------------------


def acknowledge(asker: _Asker, params: bytes) -> Found:
    """Service.Ack: a job is done."""
    call_id = asker.call_id
    try:
        job = _acknowledged_in(params).first or ""
    except msgspec.ValidationError:
        raw = _first(params, STRING)
        job = "" if raw == NULL else _text_in(raw)
    if not job or not _is_name(job):
        raise RefusedError(GONE)  # nothing was pushed with it
    msg_id = int(job) if job.isascii() and job.isdigit() and len(job) <= 16 and str(int(job)) == job else 0

    def by_number(reply: Reply) -> Made:
        return _acknowledged(call_id, reply)

    def by_key(reply: Reply) -> Made:
        if reply.error == ErrorWord.NO_SUCH_MESSAGE and 0 < msg_id <= MSG_ID_MAX:
            return Ask(Request(_CONFIRM, msg_id=msg_id, scope="all", held=True), by_number)
        return _acknowledged(call_id, reply)

    return Ask(Request(_CONFIRM, key=job, scope="all", held=True), by_key)


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
METHODS: Final[dict[str, Callable[[_Asker, bytes], Found]]] = {
    "Service.Push": push,
    "Service.Pop": pop,
    "Service.Ack": acknowledge,
}
