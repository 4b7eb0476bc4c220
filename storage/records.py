"""The kinds of record in the change log. What a live message is in memory stands in `storage.message`.

A record says absolutely what holds after it (an instant, a count), never a difference, so that applying it twice is
the same as once. It names its queue, and for every message it touches the trans_id of that message's previous
record, so that a message's whole life can be walked back. Encoded as a msgpack array whose first item is the kind;
a kind or a field that this version does not know is an error, never skipped. What came after the first version has a
feature level (`storage.kinds`, `LEVEL`), and is written only when every member of the cluster understands that.

Instants are Unix seconds, durations seconds, both float.
"""

from typing import Any, Final, Literal, NamedTuple

import msgspec

TIME_MAX_S: Final = 253_402_300_799.0
"""The last second of the year 9999: what expires then never does. As `quorate.protocol` has it."""


class Encoding:
    """What a payload's bytes are."""

    JSON: Final = 0
    """A JSON value's text, as it came."""
    PLAIN: Final = 1
    """Themselves."""
    TEXT: Final = 2
    """A JSON string's UTF-8: in topics alone, where clients of bytes protocols read it as it is stored."""


CONSUMER: Final = "consumer"
"""The mark that says who a message was delivered to last."""

HEADERS: Final = "headers"
"""The mark that holds what its producer says beside a message's data: names and texts."""

EXPIRE: Final = "expire"
"""The mark of a message that goes when it expires, delivered or not; its value is `DROP` or `BURY`."""

DROP: Final = "drop"
"""It goes to no dead letter queue."""

BURY: Final = "bury"
"""It goes to its dead letter queue, if it has one, and ends then also where somebody holds it for longer."""

KEEP: Final = "keep"
"""The mark of a message with `retry_s` 0 that stays when it is delivered, in flight until it expires."""

NACKS: Final = "nacks"
"""The mark that counts how often a message was given back by those who could not do it."""

DELAY: Final = "delay"
"""The mark that holds the delay that a job was asked for with (s), as its protocol says it."""

REPLICATE: Final = "replicate"
"""The mark that says on how many nodes a job was to be, where it was said."""

NACKED: Final = "nacked"
"""The mark that says which delivery was given back so last, by its count."""

BEFORE: Final = "before"
"""The mark that counts a message's deliveries before it came into its queue. It came with `STREAMS_LEVEL`."""

LASTS: Final = "lasts"
"""The mark that says how long a message that was buried or moved was to live (s); see `Bury`. It came with
`STREAMS_LEVEL`."""

SCOPE: Final = "scope"
"""The mark of a message whose key is unique among all that have this mark, in whatever queue of its shard: `ALL`."""

ALL: Final = "all"

TTR: Final = "ttr"
"""The mark of a job of gmq's, which never expires: what its time to run (s) was asked to be, or `BY_RETRY`."""

BY_RETRY: Final = "retry"
"""It is what `retry_s` tells."""

DEAD: Final = "dead"
"""The mark of a dead letter, which says where it was: `queue`, `at` (Unix seconds), `deliveries`, and `reason`."""

JOB_MARKS: Final[dict[str, Any]] = {EXPIRE: BURY}
JOB_KEPT_MARKS: Final[dict[str, Any]] = {EXPIRE: BURY, KEEP: True}
"""The marks of nearly all jobs: in memory once, in a record a number."""

SCOPE_MARKS: Final[dict[str, Any]] = {SCOPE: ALL}
"""Those of nearly all messages whose key is unique in its shard."""

GMQ_MARKS: Final[dict[str, Any]] = {SCOPE: ALL, TTR: BY_RETRY}
"""Those of nearly all jobs of gmq's."""

NUMBERED_MARKS: Final = {1: JOB_MARKS, 2: JOB_KEPT_MARKS, 3: SCOPE_MARKS, 4: GMQ_MARKS}
"""By the number that stands in a record in their place: a restart reads a million of them."""


class Place:
    """Where a live message stands in its queue's indexes. Plain numbers: an enum's members cost twice to look up."""

    UNPLACED: Final = 0
    """In no index: produced but not committed, or just taken out by the broker."""
    DELAYED: Final = 1
    """In the waiting index at its due time."""
    READY: Final = 2
    """In the ready index."""
    IN_FLIGHT: Final = 3
    """Delivered; among those in hand at its retry time, or when it is dropped if that comes first."""
    READY_EXPIRING: Final = 4
    """Ready until it expires, since it was delivered before or is to be dropped then: in the ready index, and in the
    waiting index at `expires_at`."""
    READY_FAR: Final = 6
    """As `READY_EXPIRING`, where that is far from now: in the ready index, and in `storage.far_expiries`."""
    HELD: Final = 5
    """Due since its queue takes nothing in: in the held index; and in the waiting index at `expires_at`, or at its end
    where that changes nothing."""


class Produce(msgspec.Struct, array_like=True, tag=1, gc=False, forbid_unknown_fields=True):
    """A message was produced; and a row of the backlog: what became of it by now. See `storage.message.Message`.

    `data` are the payload's bytes, of which `encoding` says what they are. `marks` are what a protocol keeps of a
    message beside what all have in common (counters, where it came from); `consumer` there is who got it last. Those
    of nearly all jobs are a number, see `all_marks`.
    """

    queue: str
    msg_id: int
    data: bytes
    produced_at: float
    due_at: float
    expires_at: float
    retry_s: float
    priority: int
    key: str | None
    deliveries: int = 0
    place: int = 0
    last: int = 0
    encoding: int = 0
    marks: dict[str, Any] | Literal[1, 2, 3, 4] | None = None

    def all_marks(self) -> dict[str, Any] | None:
        """Its marks, of which those that a number stands for are not to be changed."""
        marks = self.marks
        return NUMBERED_MARKS[marks] if isinstance(marks, int) else marks


class Deliver(msgspec.Struct, array_like=True, tag=2, gc=False, forbid_unknown_fields=True):
    """Messages were handed out and are in flight until `due_ats`; `deliveries` counts each one's, this included.

    `consumer` is what the client that got them calls itself.
    """

    queue: str
    msg_ids: list[int]
    previous: list[int]
    due_ats: list[float]
    deliveries: list[int]
    consumer: str | None = None


class Take(msgspec.Struct, array_like=True, tag=3, gc=False, forbid_unknown_fields=True):
    """Messages were handed out at most once (`retry_s` 0) and are gone."""

    queue: str
    msg_ids: list[int]
    previous: list[int]


class Confirm(msgspec.Struct, array_like=True, tag=4, gc=False, forbid_unknown_fields=True):
    """A consumer acknowledged messages, and they are gone."""

    queue: str
    msg_ids: list[int]
    previous: list[int]


class Expire(msgspec.Struct, array_like=True, tag=5, gc=False, forbid_unknown_fields=True):
    """Messages may not be delivered any more, and are gone: delivered before, or to be dropped when they expire."""

    queue: str
    msg_ids: list[int]
    previous: list[int]


class Clear(msgspec.Struct, array_like=True, tag=6, gc=False, forbid_unknown_fields=True):
    """Messages were removed with all others of their queue, by request."""

    queue: str
    msg_ids: list[int]
    previous: list[int]


class Release(msgspec.Struct, array_like=True, tag=7, gc=False, forbid_unknown_fields=True):
    """Messages in flight were given back, due at `due_ats`.

    `nacks` counts for each how often it was given back by who could not do it, this included, where that is counted,
    and `deliveries` each one's. Older records have neither.
    """

    queue: str
    msg_ids: list[int]
    previous: list[int]
    due_ats: list[float]
    nacks: list[int] | None = None
    deliveries: list[int] | None = None


class Extend(msgspec.Struct, array_like=True, tag=8, gc=False, forbid_unknown_fields=True):
    """Messages stay in flight until `due_ats`."""

    queue: str
    msg_ids: list[int]
    previous: list[int]
    due_ats: list[float]


class Bury(msgspec.Struct, array_like=True, tag=9, gc=False, forbid_unknown_fields=True):
    """Messages moved from `queue` to its dead letter queue `to`, there undelivered, with new times.

    `deliveries` counts each one's in `queue`, `reason` is what the consumer says that did not want them: both become a
    mark, `DEAD`. `totals` counts each one's deliveries in all queues, which goes on;
    `lasts` is how long each was to live from its production, or from its last move (s; `TIME_MAX_S`: it never expires).
    Both become marks, and came with `STREAMS_LEVEL`.
    """

    queue: str
    to: str
    msg_ids: list[int]
    previous: list[int]
    due_ats: list[float]
    expires_ats: list[float]
    deliveries: list[int] | None = None
    reason: str | None = None
    totals: list[int] | None = None
    lasts: list[float] | None = None


class Move(msgspec.Struct, array_like=True, tag=15, gc=False, forbid_unknown_fields=True):
    """Messages that nobody had in hand moved from `queue` to `to`, by request: there undelivered, with new times.

    They keep their keys, which nothing has in `to`; that they were dead letters is over.
    `totals`, as in `Bury`, came with `STREAMS_LEVEL`.
    """

    queue: str
    to: str
    msg_ids: list[int]
    previous: list[int]
    due_ats: list[float]
    expires_ats: list[float]
    totals: list[int] | None = None


class Withhold(msgspec.Struct, array_like=True, tag=16, gc=False, forbid_unknown_fields=True):
    """Messages that were ready are so no more, undelivered, until `due_ats`."""

    queue: str
    msg_ids: list[int]
    previous: list[int]
    due_ats: list[float]


class Configure(msgspec.Struct, array_like=True, tag=10, gc=False, forbid_unknown_fields=True):
    """A queue's settings, all of them, as they hold from here (`max_size`, `max_deliveries` 0: no limit).

    `expires_after_s`: unused for so long it goes, 0: never.
    `paused_in_at`: since then (Unix seconds) nothing comes in, 0: it does; and `is_transient`: nobody has configured
    it, and it goes when it has been empty and unused for a while. With `STREAMS_LEVEL` came `has_own_ttl`: whether a
    configure has set the default time to live; None: it is not known; and `is_system`: lists leave it out unless asked.
    """

    queue: str
    max_size: int
    default_ttl_s: float
    default_retry_s: float
    max_deliveries: int
    dead_letter: str | None
    paused: bool
    expires_after_s: float = 0.0
    paused_in_at: float = 0.0
    is_transient: bool = False
    has_own_ttl: bool | None = None
    is_system: bool = False


class Remove(msgspec.Struct, array_like=True, tag=11, gc=False, forbid_unknown_fields=True):
    """An empty queue is gone, with its settings."""

    queue: str


class Lead(msgspec.Struct, array_like=True, tag=12, gc=False, forbid_unknown_fields=True):
    """Node `node_id` leads from here: the first record of every vote_id. It is about no queue: `queue` is empty."""

    queue: str
    node_id: int


class Member(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A node of the cluster. `disk_id` is its data folder's own number, 0 while it is not known.

    One that does not vote is being brought up to date. In the log of a shard beyond 0, `root_disk_id` is the disk that
    shard 0's log knows the node by (0: not known): see `actors.cluster.root_members`.
    """

    node_id: int
    host: str
    port: int
    disk_id: int = 0
    is_voter: bool = False
    root_disk_id: int = 0


FIRST_LEVEL: Final = 1
"""The feature level of a members' record that names none: the first clusters wrote it."""

BASE_LEVEL: Final = 5
"""The least feature level of a cluster that this version joins, and of data that it reads. What came with it and
before it is used without being asked for."""

STREAMS_LEVEL: Final = 6
"""From this level on rows of LMDB have checksums, deliveries go on counting when a message moves, and dead letters do
not expire."""

LEVEL: Final = STREAMS_LEVEL
"""What this version understands."""


class Members(msgspec.Struct, array_like=True, tag=13, gc=False, forbid_unknown_fields=True):
    """The cluster's nodes from here on, all of them; it counts as soon as it is in a log, committed or not.

    `wanted` are nodes that are to be added as soon as they are there, `removed` the last that were removed, with their
    disks. `level` is the feature level: what every member understands, so what may be said and written from here on.
    It is about no queue: `queue` is empty.
    """

    queue: str
    cluster_id: int
    members: list[Member]
    wanted: list[Member]
    removed: list[Member] = []
    level: int = FIRST_LEVEL

    def find(self, node_id: int) -> Member | None:
        """Give the member of that number."""
        for member in self.members:
            if member.node_id == node_id:
                return member
        return None

    @property
    def voters(self) -> list[int]:
        """The node_ids whose disks count, in order."""
        return sorted(member.node_id for member in self.members if member.is_voter)


class Position(msgspec.Struct, array_like=True, tag=14, gc=False, forbid_unknown_fields=True):
    """A named reader of the log has all records up to `upto`, as it said at `at`; None: it is forgotten.

    It is about no queue: `queue` is empty.
    """

    queue: str
    reader: str
    upto: int | None
    at: float


class Topic(msgspec.Struct, array_like=True, tag=17, gc=False, forbid_unknown_fields=True):
    """A topic's settings, all of them, as they hold from here. Records of topics came with `STREAMS_LEVEL`.

    `number`: the topic's own; one that is removed and created again under the same name has another. `partitions`: so
    many, and never fewer than before. `keep_s`, `keep_bytes`: messages are kept for so long, and so many bytes of each
    partition (0: no limit). `keep_for_groups`: those that a group has not read yet are kept for it, up to
    `keep_for_groups_bytes` of each partition. `accept_append`, `accept_read`: whether messages may be appended, or
    read; to the partitions that are `closed` none are appended. `filters`: which attributes a group reads, `prefix*` or
    a whole one.
    """

    queue: str
    number: int
    partitions: int
    keep_s: float
    keep_bytes: int
    keep_for_groups: bool = False
    keep_for_groups_bytes: int = 0
    made_at: float = 0.0
    accept_append: bool = True
    accept_read: bool = True
    closed: list[int] = []
    filters: dict[str, list[str]] = {}


class Append(msgspec.Struct, array_like=True, tag=18, gc=False, forbid_unknown_fields=True):
    """A message was appended to a partition, at `offset`, which is one more than that of the message before it.

    `data` are a payload's bytes, of which `encoding` says what they are. `attribute` goes with the message, `flag` is
    its sender's. `producer`, `serial`: who numbers its appends, and the number that this one has.
    """

    queue: str
    number: int
    partition: int
    offset: int
    data: bytes
    encoding: int
    produced_at: float
    key: str | None = None
    headers: dict[str, str] | None = None
    attribute: str | None = None
    flag: int = 0
    producer: str | None = None
    serial: int = 0


class Retire(msgspec.Struct, array_like=True, tag=19, gc=False, forbid_unknown_fields=True):
    """Messages of these partitions are not kept any more: those before `offsets`, which begin at `positions` (bytes).

    `ats`: when the first that stays was appended, at the latest (Unix seconds).
    """

    queue: str
    number: int
    partitions: list[int]
    offsets: list[int]
    positions: list[int]
    ats: list[float]


class DropTopic(msgspec.Struct, array_like=True, tag=20, gc=False, forbid_unknown_fields=True):
    """A topic is gone, with all its messages and groups."""

    queue: str
    number: int


class Offsets(msgspec.Struct, array_like=True, tag=21, gc=False, forbid_unknown_fields=True):
    """A group goes on at these offsets of these partitions, as it said at `at` (Unix seconds).

    `session_s`: it has members, the most patient of which may be silent for so long; 0: it has none.
    """

    queue: str
    number: int
    group: str
    partitions: list[int]
    offsets: list[int]
    at: float
    session_s: float = 0.0


class DropGroup(msgspec.Struct, array_like=True, tag=22, gc=False, forbid_unknown_fields=True):
    """A group of a topic is gone, with its offsets."""

    queue: str
    number: int
    group: str


class Put(msgspec.Struct, array_like=True, gc=False):
    """A message that is to be appended when its transaction is decided: its fields are an `Append`'s."""

    topic: str
    number: int
    partition: int
    data: bytes
    encoding: int
    key: str | None = None
    headers: dict[str, str] | None = None
    attribute: str | None = None
    flag: int = 0


class Prepare(msgspec.Struct, array_like=True, tag=23, gc=False, forbid_unknown_fields=True):
    """A transaction is prepared (XA): what it appends stays, and is seen by nobody, until a `Decide` of its `xid`.

    It may be about several topics: `queue` is empty. `at`: when (Unix seconds). Whoever decides appends `puts` in the
    same entry.
    """

    queue: str
    xid: str
    at: float
    puts: list[Put]

    @property
    def data_bytes(self) -> int:
        """Count what its clients have given it."""
        size = 0
        for one in self.puts:
            size += len(one.data) + 4 * len(one.attribute or "")
            size += 4 * sum([len(name) + len(text) for name, text in (one.headers or {}).items()])
        return size


class Decide(msgspec.Struct, array_like=True, tag=24, gc=False, forbid_unknown_fields=True):
    """A prepared transaction is committed, or rolled back. `queue` is empty."""

    queue: str
    xid: str
    commits: bool


class ReaderPosition(NamedTuple):
    """Where a reader is: it has all records up to `upto`, as it said at `at` (Unix seconds)."""

    upto: int
    at: float


Change = (
    Deliver
    | Take
    | Confirm
    | Expire
    | Clear
    | Release
    | Extend
    | Bury
    | Configure
    | Remove
    | Lead
    | Members
    | Position
    | Move
    | Withhold
    | Topic
    | Append
    | Retire
    | DropTopic
    | Offsets
    | DropGroup
    | Prepare
    | Decide
)
"""A record that produces no message of a queue."""

Record = Produce | Change
OfTopic = Topic | Append | Retire | DropTopic | Offsets | DropGroup
"""A record about a topic: its `queue` is the topic's name, its `number` the topic's."""

OfPrepared = Prepare | Decide
"""A record about a prepared transaction."""

Moving = Bury | Move
Removal = Take | Confirm | Expire | Clear
