"""The requests and replies that a node understands, as types; every wire protocol is a session that speaks in them.

Rules that hold here: a `Request` that decoded is well formed field by field (types, ranges, sizes), so later parts
never look at a type again; what needs two fields or the clock to judge is judged by the node. Times are seconds as
float: `delay` and `ttl` are Unix times, or seconds from now when below `RELATIVE_TIME_LIMIT_S`.
"""

from enum import IntEnum
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

RELATIVE_TIME_LIMIT_S: Final = 1_000_000_000
"""`delay` and `ttl` below this are seconds from now, others are Unix seconds (it is September 2001)."""

TIME_MAX_S: Final = 253_402_300_799.0
"""The last second of the year 9999: no instant lies past it."""

MSG_ID_MAX: Final = 2**53 - 1
"""Message ids stay below 2**53, so that a JavaScript number holds them."""

NAME_BYTES_MAX: Final = 255
"""A queue's name, a key and a pattern: at most so many bytes of UTF-8."""

BATCH_MAX: Final = 1000
"""Messages in one request: `messages`, `msg_ids`, `count`; operations of a transaction."""

NAMED_MAX: Final = 2000
"""Messages and positions that all operations of a transaction name together."""


class Action(IntEnum):
    """What a request asks for. Numbers from 100 ask the node that was reached for its own view."""

    PRODUCE = 1
    CONSUME = 2
    CONFIRM = 3
    MONITOR = 4
    CONFIGURE = 5
    CLEAR = 6
    LIST = 7
    LEADER = 8
    RELEASE = 9
    EXTEND = 10
    PEEK = 11
    SHOW = 12
    REMOVE = 13
    LOG = 14
    CLUSTER = 15
    AUTHENTICATE = 16
    POSITION = 17
    WATCH = 18
    CANCEL = 19
    BURY = 20
    MOVE = 21
    WITHHOLD = 22
    SCAN = 23
    CLIENT = 24
    FIND = 25
    TOPIC = 26
    APPEND = 27
    READ = 28
    GROUP = 29
    COMMIT = 30
    TRANSACTION = 31
    PREPARED = 32
    NODE_MONITOR = 104
    NODE_LIST = 107
    NODE_STATUS = 108
    NODE_METRICS = 109
    NODE_DESCRIBE = 110
    NODE_CONFIG = 111
    NODE_LEAVE = 112
    NODE_READY = 113
    NODE_INIT = 115


DOWN: Final = "down"
"""The role of a shard in a status whose worker does not run; its row has `shard`, `role` and `fault` alone."""


class Code(IntEnum):
    """A reply's `code`."""

    OK = 0
    ERROR = -1
    REDIRECT = -2


class ErrorWord:
    """The fixed words of a reply's `error`, for programs; `reason` is the sentence for people."""

    BAD_JSON: Final = "bad_json"
    FIELD: Final = "field_error"
    TIME: Final = "time_error"
    TOO_LARGE: Final = "too_large"
    TOO_SLOW: Final = "too_slow"
    OVERLOADED: Final = "overloaded"
    NOT_SUPPORTED: Final = "not_supported"
    QUEUE_FULL: Final = "queue_full"
    TOO_MANY_READY: Final = "too_many_ready"
    PAUSED: Final = "paused"
    NOT_REPLICATED: Final = "not_replicated"
    TOO_FEW_NODES: Final = "too_few_nodes"
    DUPLICATE_KEY: Final = "duplicate_key"
    NO_SUCH_MESSAGE: Final = "no_such_message"
    NO_SUCH_QUEUE: Final = "no_such_queue"
    NOT_IN_FLIGHT: Final = "not_in_flight"
    NOT_READY: Final = "not_ready"
    TRIMMED: Final = "trimmed"
    DISK_FULL: Final = "disk_full"
    LIMIT: Final = "limit_reached"
    STOPPING: Final = "stopping"
    LEAVING: Final = "leaving"
    REDIRECT: Final = "redirect"
    NO_LEADER: Final = "no_leader"
    UNKNOWN_OUTCOME: Final = "unknown_outcome"
    MEMBERSHIP: Final = "membership_error"
    NO_SUCH_READER: Final = "no_such_reader"
    NOT_ALLOWED: Final = "not_allowed"
    NOT_AUTHENTICATED: Final = "not_authenticated"
    INTERNAL: Final = "internal_error"
    GIVEN_UP: Final = "given_up"
    NO_SUCH_TOPIC: Final = "no_such_topic"
    TOPIC_EXISTS: Final = "topic_exists"
    IS_A_TOPIC: Final = "is_a_topic"
    IS_A_QUEUE: Final = "is_a_queue"
    WRONG_PARTITION: Final = "wrong_partition"
    NO_SUCH_GROUP: Final = "no_such_group"
    GROUP_IN_USE: Final = "group_in_use"
    UNKNOWN_MEMBER: Final = "unknown_member"
    NOT_OWNER: Final = "not_owner"
    OFFSET_CONFLICT: Final = "offset_conflict"
    DUPLICATE_NUMBER: Final = "duplicate_number"
    DAMAGED: Final = "damaged"
    SEVERAL_SHARDS: Final = "several_shards"
    CLOSED: Final = "closed"
    NOT_ACCEPTED: Final = "not_accepted"
    TRANSACTION_EXISTS: Final = "transaction_exists"
    NO_SUCH_TRANSACTION: Final = "no_such_transaction"


Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""What every protocol, and the nodes among themselves, can carry."""

# A name's bytes and its characters are judged by `name_fault`: a pattern here would cost more than all the rest.
Name = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=TIME_MAX_S)]
Duration = Annotated[float, Meta(ge=0, le=31_536_000)]
MsgId = Annotated[int, Meta(ge=1, le=MSG_ID_MAX)]
TransId = Annotated[int, Meta(ge=0, le=MSG_ID_MAX)]
PRIORITY_MAX: Final = 2**31 - 1

Priority = Annotated[int, Meta(ge=-PRIORITY_MAX - 1, le=PRIORITY_MAX)]
Count = Annotated[int, Meta(ge=1, le=BATCH_MAX)]
WholeNumber = Annotated[int, Meta(ge=0, le=MSG_ID_MAX)]

NO_DATA: Final = Raw(b"")
"""The value of an absent `data`: no JSON value is empty."""

PLAIN: Final = "bytes"
"""The `encoding` of plain bytes, as sessions hand them on: `data` wraps the bytes themselves.

None is JSON, and `data` wraps its text. On the wire of the JSON protocol plain bytes are `utf8` (a string whose UTF-8
they are) or `base64`.
"""

HEADERS_MAX: Final = 64
HEADER_BYTES_MAX: Final = 8192
"""Of a message's headers: so many names, and so many bytes of UTF-8 in all names and texts together."""

REASON_MAX: Final = 255  # characters

TOKEN_MAX: Final = 256  # characters
AFTER_BYTES_MAX: Final = NAME_BYTES_MAX + 32
"""A place in a list that is sorted: a number, and the name that stands there."""

After = Annotated[str, Meta(min_length=1, max_length=AFTER_BYTES_MAX)]
Consumer = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)]
Headers = Annotated[dict[str, str], Meta(max_length=HEADERS_MAX)]
Expire = Literal["drop", "bury"]
Scope = Literal["all"]
OnDuplicate = Literal["refuse", "keep", "replace"]
PARTITIONS_MAX: Final = 1024
"""Of one topic."""

PartitionIndex = Annotated[int, Meta(ge=0, le=PARTITIONS_MAX - 1)]
OffsetOrEnd = WholeNumber | Literal["earliest", "latest"]
GROUP_MAX: Final = 200
GroupName = Annotated[str, Meta(min_length=1, max_length=GROUP_MAX)]
"""A group's name, a member's, a producer's: at most so many bytes of UTF-8."""

ATTRIBUTE_MAX: Final = 4096
Attribute = Annotated[str, Meta(max_length=ATTRIBUTE_MAX)]
"""At most so many characters, whatever they are: MetaQ's clients send any."""

Flag = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
XID_MAX: Final = 600
Xid = Annotated[str, Meta(min_length=1, max_length=XID_MAX)]
FILTERS_MAX: Final = 100
"""Groups of a topic that have a filter; and values in one."""

Filters = Annotated[
    dict[GroupName, Annotated[list[Attribute], Meta(min_length=1, max_length=FILTERS_MAX)]],
    Meta(max_length=FILTERS_MAX),
]
Paused = bool | Literal["in", "out", "all", "none"]


class ProduceItem(msgspec.Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """One of the `messages` of a produce; what it leaves out is taken from the request around it."""

    data: Raw = NO_DATA
    delay: Seconds | None = None
    ttl: Seconds | None = None
    retry: Duration | None = None
    priority: Priority | None = None
    key: Name | None = None
    encoding: Annotated[str, Meta(max_length=16)] | None = None
    headers: Headers | None = None
    expire: Expire | None = None
    keep: bool | None = None
    scope: Scope | None = None
    on_duplicate: OnDuplicate | None = None
    attribute: Attribute | None = None
    flag: Flag | None = None


class Request(msgspec.Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """One request, as every protocol decodes it. Which fields an action reads is the table in docs/protocol.md.

    An absent field is None, absent `data` is `NO_DATA`. `seq` is echoed as it came; a request that has one may be
    answered out of order.
    `delay` and `ttl` of 0 mean the same as absent: deliver now, expire the queue's `default_ttl` after the due time.
    In configure, `dead_letter` of null or "" takes the dead letter queue away. `encoding` is that of `data`: see
    `PLAIN`. `consumer` is what the client calls itself: deliveries note it. `patience`: for so long the request may
    wait for a leader, instead of as long as the node is set to let it. `after` is a trans_id for log, a queue for list,
    what a reply called `next` for peek, which looks at messages of one `state` if that is given.
    `token`: what a client proves by who it is, for authenticate; no other action reads it.
    `raw`: log gives the entries as they are stored. `reader` has all records up to `trans_id`, for position.
    `full`: consume gives messages as show does. `delivery`: which delivery of the message is meant, by its count; of
    `msg_ids` a list. `expire`: what becomes of a message that has expired, where it is not kept until it was delivered.
    `to`: where messages are moved, which `create` makes if it is not there. `sort`, `descending`: the order of a list;
    `sums`: it also tells of all queues of each shard together.
    `keep`: a message with `retry` 0 stays when it is delivered, until it is confirmed or expires. `in_turn`: of several
    queues one message of each is taken, again and again. `max_ready`: a produce is refused where so many are ready.
    `scope`: `key` is unique among all messages of a shard that have one of this scope, and names the message in
    whatever queue it is. `held`: a confirm is about messages that are in flight, and no others; with a msg_id and a
    `scope` about none that has such a key.
    `nack`: false where a release does not mean that its consumer could not do it. `as_job`: a session of a protocol
    that knows jobs asks, and is told what it makes a job's id of; JSON has no such field. `early`: a confirm is
    answered before it is durable. `discard`: it stands in the log as a removal. `value`: what the setting `key` is set
    to. `ttr`, `asked_delay`: what a session's client calls the retry time and the delay of a job (s), which are told
    again to whoever consumes with any `ttr`; JSON has neither. `on_duplicate`: what a produce does where a message of
    its queue has the `key` already: it is refused, that message is kept, or replaced. `unless`: a show with `wait` is
    answered when the key names another message than this one. `system`: a list has system queues, too, and a configure
    makes a queue one.

    Of topics: `topic` is the one that a request is about, `partition` one of it. `offset`, `position` and `time` name a
    message; `offset` may be the earliest or the latest. `group`: who reads together, each `member` its own partitions.
    `owns` are those that the member has now; `positions`: at which offset of which partition the group goes on;
    `generation`: which assignment that is about. A member that says nothing for `session` (s) is none any more.
    `producer` numbers its appends with `number`. `expected`: the offset that the message is to get. `attribute` goes
    with the message, as does the `flag` of its sender. `max_bytes`: of a read's reply, about. `partitions`, `keep_s`,
    `keep_bytes`, `keep_for_groups`, `keep_for_groups_bytes`, `accept_append`, `accept_read`, `closed` and `filters` are
    a topic's settings. `force`: also where somebody reads. `fresh`: the leader answers a read. `xid` names a
    transaction that is prepared, and decided about later.
    """

    action: Integer
    queue: Name | None = None
    data: Raw = NO_DATA
    delay: Seconds | None = None
    ttl: Seconds | None = None
    retry: Duration | None = None
    priority: Priority | None = None
    key: Name | None = None
    seq: Integer | float | Annotated[str, Meta(max_length=256)] | None = None  # characters
    msg_id: MsgId | None = None
    msg_ids: Annotated[list[MsgId], Meta(min_length=1, max_length=BATCH_MAX)] | None = None
    messages: Annotated[list[ProduceItem], Meta(min_length=1, max_length=BATCH_MAX)] | None = None
    queues: Annotated[list[Name], Meta(min_length=1, max_length=BATCH_MAX)] | None = None
    pattern: Annotated[str, Meta(max_length=NAME_BYTES_MAX)] | None = None
    count: Count | None = None
    wait: Duration | None = None
    replicate: Annotated[int, Meta(ge=1, le=64)] | None = None
    shard: Annotated[int, Meta(ge=0, le=1023)] | None = None
    after: TransId | After | None = None
    max_size: WholeNumber | None = None
    default_ttl: Duration | None = None
    default_retry: Duration | None = None
    max_deliveries: WholeNumber | None = None
    paused: Paused | None = None
    dead_letter: Annotated[str, Meta(max_length=NAME_BYTES_MAX)] | UnsetType | None = UNSET
    command: Annotated[str, Meta(max_length=32)] | None = None
    node_id: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    host: Name | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    encoding: Annotated[str, Meta(max_length=16)] | None = None
    consumer: Consumer | None = None
    patience: Duration | None = None
    raw: bool | None = None
    reader: Name | None = None
    trans_id: TransId | None = None
    token: Annotated[str, Meta(max_length=TOKEN_MAX)] | None = None
    headers: Headers | None = None
    expire: Expire | None = None
    full: bool | None = None
    delivery: WholeNumber | Annotated[list[WholeNumber], Meta(min_length=1, max_length=BATCH_MAX)] | None = None
    reason: Annotated[str, Meta(max_length=REASON_MAX)] | None = None
    expires_after: Duration | None = None
    state: Annotated[str, Meta(max_length=64)] | None = None
    to: Name | None = None
    create: bool | None = None
    sort: Annotated[str, Meta(max_length=16)] | None = None
    descending: bool | None = None
    sums: bool | None = None
    keep: bool | None = None
    in_turn: bool | None = None
    max_ready: Annotated[int, Meta(ge=1, le=MSG_ID_MAX)] | None = None
    nack: bool | None = None
    as_job: bool | None = None
    early: bool | None = None
    discard: bool | None = None
    value: Annotated[str, Meta(max_length=NAME_BYTES_MAX)] | None = None
    scope: Scope | None = None
    held: bool | None = None
    ttr: Integer | None = None
    asked_delay: Integer | None = None
    on_duplicate: OnDuplicate | None = None
    unless: MsgId | None = None
    system: bool | None = None
    topic: Name | None = None
    partition: PartitionIndex | None = None
    offset: OffsetOrEnd | None = None
    position: WholeNumber | None = None
    time: Seconds | None = None
    max_bytes: Annotated[int, Meta(ge=1, le=MSG_ID_MAX)] | None = None
    group: GroupName | None = None
    member: GroupName | None = None
    owns: Annotated[list[PartitionIndex], Meta(max_length=PARTITIONS_MAX)] | None = None
    session: Duration | None = None
    positions: Annotated[dict[PartitionIndex, WholeNumber], Meta(min_length=1, max_length=PARTITIONS_MAX)] | None = None
    generation: WholeNumber | None = None
    producer: GroupName | None = None
    number: Annotated[int, Meta(ge=1, le=MSG_ID_MAX)] | None = None
    expected: WholeNumber | None = None
    attribute: Attribute | None = None
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | None = None
    keep_s: Seconds | None = None
    keep_bytes: WholeNumber | None = None
    keep_for_groups: bool | None = None
    keep_for_groups_bytes: WholeNumber | None = None
    force: bool | None = None
    flag: Flag | None = None
    fresh: bool | None = None
    accept_append: bool | None = None
    accept_read: bool | None = None
    closed: Annotated[list[PartitionIndex], Meta(max_length=PARTITIONS_MAX)] | None = None
    filters: Filters | None = None
    xid: Xid | None = None


class TransactionRequest(Request):
    """A request for several others, all of which are done, or none: in one entry of the log."""

    operations: list[Request] = []


def name_fault(name: str, bytes_max: int = NAME_BYTES_MAX) -> str | None:
    """Say what is wrong with a queue's name, a key or a pattern; None if it may be used.

    Control characters have no place in a name: they break every line that a log or a terminal shows of it.
    """
    if len(name) * 4 > NAME_BYTES_MAX and len(name.encode()) > bytes_max:
        return f"is longer than {bytes_max} bytes of UTF-8"
    if not name.isprintable():
        for character in name:
            if character < " " or "\x7f" <= character <= "\x9f":
                return f"holds the control character {character!r}"
    return None


def goes_to(request: Request) -> str | None:
    """Name the other queue that a request lets messages move to, if it names one."""
    if request.action == Action.MOVE:
        return request.to
    dead_letter = request.dead_letter if request.action == Action.CONFIGURE else None
    return dead_letter if isinstance(dead_letter, str) and dead_letter else None


class JobFacts(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What a job's id is made of, and how often it came: the node that led when it was produced (0: that is not known
    any more), its time to live and its retry time (s), how often it was given back by who could not do it, and how
    often it came again otherwise.
    """

    led_by: int
    ttl: float
    retry: float
    nacks: int
    additional: int


class Told(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What a protocol with keys that are one among all tells of a message it gives: that key, the retry time (s), and
    what its client said of delay and time to run (s), where it is a job of gmq's.
    """

    key: str | None
    retry: float
    ttr: int | None
    delay: int | None


class Reply(msgspec.Struct, gc=False, omit_defaults=True, kw_only=True):
    """What every reply says. `action` is 0 where the request could not be read that far.

    `confirmed`, `released`, `extended`, `buried`: how many of the messages named were there to be so. `elsewhere`: how
    many of those to be confirmed have been delivered again since, and are another's. `cancelled`: how many waits were
    ended. `withheld`: how many are not ready any more. `job`: of a message for who asked `as_job`. `state`: of a
    message that is not in flight, where a confirm is about those that are; `deliveries` stands beside it. `told`: of a
    message for who asked with `ttr`. `deliveries_here`: see `MessageView`. `ignored`: fields that it was done without.
    `topic`: the request's.
    """

    action: int
    code: int
    queue: str | None = None
    reason: str | None = None
    error: str | None = None
    seq: int | float | str | None = None
    msg_id: int | None = None
    msg_ids: list[int] | None = None
    data: Raw | None = None
    encoding: str | None = None
    deliveries: int | None = None
    headers: dict[str, str] | None = None
    confirmed: int | None = None
    released: int | None = None
    extended: int | None = None
    count: int | None = None
    buried: int | None = None
    cancelled: int | None = None
    elsewhere: int | None = None
    withheld: int | None = None
    job: JobFacts | None = None
    state: str | None = None
    told: Told | None = None
    deliveries_here: int | None = None
    ignored: list[str] | None = None
    topic: str | None = None


class KeptReply(Reply, kw_only=True):
    """The reply to a produce with `on_duplicate` that kept a message that was there. `duplicate`: the message that
    `msg_id` names was there already; `duplicates`: so were those at these places of `msg_ids`.
    """

    duplicate: bool | None = None
    duplicates: list[int] | None = None


class DeliveredItem(msgspec.Struct, gc=False, omit_defaults=True):
    """One message of a consume that asked for a `count`."""

    msg_id: int
    data: Raw
    queue: str
    deliveries: int
    encoding: str | None = None
    headers: dict[str, str] | None = None
    job: JobFacts | None = None
    deliveries_here: int | None = None


class DeliveredReply(Reply, kw_only=True):
    """The reply to a consume that asked for a `count`."""

    messages: list[DeliveredItem]


class MessageView(msgspec.Struct, gc=False, kw_only=True, omit_defaults=True):
    """A message as peek and show give it, and a consume with `full`: instants are Unix seconds.

    `state` is ready, delayed or in_flight; or taken, of one that is delivered at most once and gone by that. `due_at`
    is the next thing that happens by time: the due time of a delayed message, the retry time of one in flight. `retry`
    is seconds. `dead`: where a dead letter was. `nacks`: how often it was given back by who could not do it. `keep`:
    see `Request`. `delay`, `replicate`: what a job was asked for with (s, nodes). `scope`: its key is unique among all.
    `ttr`: what its protocol calls its retry time, where that is another number (s). `deliveries` counts on when a
    message is moved or buried; `deliveries_here` counts those since it came into this queue.
    """

    msg_id: int
    queue: str
    data: Raw
    state: str
    produced_at: float
    due_at: float
    expires_at: float
    retry: float
    priority: int
    deliveries: int
    trans_id: int
    key: str | None = None
    encoding: str | None = None
    consumer: str | None = None
    headers: dict[str, str] | None = None
    expire: str | None = None
    dead: dict[str, Any] | None = None
    nacks: int | None = None
    keep: bool | None = None
    delay: float | None = None
    replicate: int | None = None
    job: JobFacts | None = None
    scope: str | None = None
    ttr: int | None = None
    deliveries_here: int | None = None


class PeekReply(Reply, kw_only=True):
    """The reply to peek: the next messages in the order in which they would be delivered.

    `next`: there may be more, to be asked for `after` that. Also the reply to a consume with `full` and `count`.
    """

    messages: list[MessageView]
    next: str | None = None


class ShowReply(Reply, kw_only=True):
    """The reply to show, and to a consume with `full` that got a message. `now`: the leader's time, for who knows jobs
    (Unix seconds)."""

    message: MessageView | None = None
    now: float | None = None


class ScanReply(Reply, kw_only=True):
    """The reply to scan: names of queues, with their counts, or messages; `next` goes on behind them, in this shard.

    `shards`: of so many, each to be scanned by itself. `now`: the leader's time (Unix seconds).
    """

    shards: int
    now: float
    next: int | None = None
    names: list[tuple[str, int]] | None = None
    messages: list[MessageView] | None = None


class LeaderReply(Reply, kw_only=True):
    """The reply to leader: who leads, elected under `vote_id`, and where clients reach it. `level`: the cluster's
    feature level, which says what may be asked.
    """

    leader_node_id: int
    leader_host: str
    leader_port: int
    vote_id: int = 0
    level: int | None = None


class RedirectReply(LeaderReply, kw_only=True):
    """The reply of a node that does not lead and does not forward: ask the leader."""


class ClusterReply(Reply, kw_only=True):
    """The reply to a cluster command: the members as the log says them, and who leads."""

    leader_node_id: int
    members: list[Any]
    level: int = 1


ReplyT = TypeVar("ReplyT", bound=Reply)


def done(request: Request, kind: type[ReplyT], **fields: Any) -> ReplyT:
    """Make the reply of that kind to a request that was done."""
    fields.setdefault("queue", request.queue)
    return kind(action=request.action, code=Code.OK, seq=request.seq, topic=request.topic, **fields)


def refusal(request: Request, error: str, reason: str) -> Reply:
    """Make an error reply to `request`: `error` is one of `ErrorWord`, `reason` a sentence for a person."""
    return Reply(
        action=request.action,
        code=Code.ERROR,
        queue=request.queue,
        error=error,
        reason=reason,
        seq=request.seq,
        topic=request.topic,
    )
