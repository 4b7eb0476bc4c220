"""What replies say of topics: their messages, their partitions, and the groups that read them."""

from typing import Any

import msgspec
from msgspec import Raw

from quorate.protocol import Reply


class StreamMessage(msgspec.Struct, gc=False, omit_defaults=True):
    """A message of a topic, at `offset` of its partition. `position`: of its frame (bytes), see docs/streams.md.

    `produced_at`: when it was appended, by the leader's clock (Unix seconds). `encoding`: as of queues' messages.
    """

    offset: int
    msg_id: int
    data: Raw
    produced_at: float
    position: int
    key: str | None = None
    encoding: str | None = None
    headers: dict[str, str] | None = None
    attribute: str | None = None
    flag: int = 0


class AppendReply(Reply, kw_only=True):
    """The reply to append: where the message is; of several, `partitions`, `offsets` and `msg_ids` in their order.

    `position`: where the message's frame begins, of an append of one (bytes).

    `duplicate`: the producer had appended that under the same number before, and got this.
    """

    partition: int | None = None
    offset: int | None = None
    partitions: list[int] | None = None
    offsets: list[int] | None = None
    duplicate: bool | None = None
    position: int | None = None


class ReadReply(Reply, kw_only=True):
    """The reply to read: messages that follow each other. `next`: the offset to go on at; `first`: that of the first
    message that is kept; `end`: one behind the last, as far as this node knows what is committed.
    """

    partition: int
    messages: list[StreamMessage]
    next: int
    first: int
    end: int


class RawReadReply(Reply, kw_only=True):
    """The reply to read with `raw`: `bytes` more bytes follow it, the frames of `count` messages from `offset` on.

    `position`: where the first of them begins, or where to go on if there is none; `first_position`: where the first
    message that is kept begins, `end_position`: behind the last (bytes). `closed`: nothing is appended to it any more.
    """

    partition: int
    bytes: int
    offset: int
    position: int
    next: int
    first: int
    end: int
    first_position: int
    end_position: int
    closed: bool = False


class RawReadReplyWithFrames(RawReadReply, kw_only=True):
    """A `RawReadReply` on its way to its connection, with what follows it; a session sends that behind the reply."""

    frames: list[Any] = []


class GoneReply(Reply, kw_only=True):
    """The refusal of a read of messages that are not there: not kept any more, or damaged. `next`: where to go on.

    `position`: of that message's frame, where it is known without a look at the disk (bytes). `closed`: see
    `RawReadReply`.
    """

    partition: int
    next: int
    position: int | None = None
    closed: bool = False


class TransactionReply(Reply, kw_only=True):
    """The reply to transaction: one to each operation, in their order.

    Of one that was refused, `index` is the operation that could not be done, and `refused` what it would be told alone.
    `duplicate`: it was done before, since what it appends came before under the same numbers. Only its appends have
    `replies` then.
    """

    replies: list[Any] | None = None
    index: int | None = None
    refused: Any = None
    duplicate: bool | None = None


class PreparedRow(msgspec.Struct, gc=False, omit_defaults=True):
    """A prepared transaction: since when (Unix seconds), how many messages it appends, of how many bytes, to which
    topics."""

    xid: str
    at: float
    messages: int
    bytes: int
    topics: list[str]


class PreparedReply(Reply, kw_only=True):
    """The reply to prepared list: the oldest first."""

    prepared: list[PreparedRow]


class ConflictReply(Reply, kw_only=True):
    """The refusal of an append that was to get another offset. `next`: which one the next message gets."""

    partition: int
    next: int


class PartitionRow(msgspec.Struct, gc=False, omit_defaults=True):
    """A partition: the first offset that is kept, the next one, the bytes of the messages between them.

    `first_position`: where the first of them begins (bytes). `messages`: their number. `first_at`: none of them is
    older, `last_at`: the last one was appended then (Unix s).
    """

    partition: int
    first: int
    next: int
    messages: int
    bytes: int
    first_at: float | None = None
    last_at: float | None = None
    first_position: int = 0


class GroupPartition(msgspec.Struct, gc=False, omit_defaults=True):
    """A group's place in a partition. `lag`: messages behind it; `lag_s`: how old the first of them is (s).

    `owner`: the member that reads it.
    """

    partition: int
    position: int | None = None
    lag: int = 0
    lag_s: float | None = None
    owner: str | None = None


class GroupRow(msgspec.Struct, gc=False, omit_defaults=True):
    """A group of a topic. `lag` is of all partitions together; `at`: it last said where it is (Unix seconds)."""

    group: str
    members: int
    lag: int
    at: float
    lag_s: float | None = None
    partitions: list[GroupPartition] | None = None


class MetaqPlace(msgspec.Struct, gc=False, omit_defaults=True):
    """Where a group of MetaQ's is in a partition, as ZooKeeper has it: a `position` (bytes), behind a message's id.

    `lag_bytes`: from there to the partition's end. `owner`: the consumer that reads it.
    """

    partition: int
    position: int = 0
    msg_id: int = 0
    lag_bytes: int = 0
    owner: str | None = None


class MetaqGroupRow(msgspec.Struct, gc=False, omit_defaults=True):
    """A group of MetaQ's consumers that reads a topic: `members` consumers are there."""

    group: str
    members: int
    partitions: list[MetaqPlace] = []


class TopicRow(msgspec.Struct, gc=False, omit_defaults=True):
    """A topic of a list. `messages`, `bytes`: of all that is kept; `appended`: so many messages were ever appended.

    `lag`: of the group that is furthest behind.
    """

    name: str
    partitions: int
    messages: int
    bytes: int
    groups: int
    keep_s: float
    keep_bytes: int
    last_at: float | None = None
    lag: int = 0
    appended: int = 0
    accept_append: bool = True
    accept_read: bool = True


class TopicReply(Reply, kw_only=True):
    """The reply to topic: its settings as they hold now, its partitions, and of show its groups.

    `metaq_groups`: those of MetaQ's clients, where the leader knows of them (docs/metaq.md). `retired`: how many
    messages a trim has let go of; of remove all that there were.
    """

    partitions: list[PartitionRow] | None = None
    keep_s: float | None = None
    keep_bytes: int | None = None
    keep_for_groups: bool | None = None
    keep_for_groups_bytes: int | None = None
    made_at: float | None = None
    accept_append: bool | None = None
    accept_read: bool | None = None
    closed: list[int] | None = None
    filters: dict[str, list[str]] | None = None
    groups: list[GroupRow] | None = None
    metaq_groups: list[MetaqGroupRow] | None = None
    retired: int | None = None


class TopicListReply(Reply, kw_only=True):
    """The reply to topic list. `next`: there are more, to be asked for `after` that."""

    topics: list[TopicRow]
    topic_count: int
    next: str | None = None
    partial: bool = False
    missing_shards: list[int] | None = None


class GroupReply(Reply, kw_only=True):
    """The reply to group. Of a heartbeat: `owns` are the partitions that the member is to read, in this `generation`;
    `positions`: where the group goes on in each. `session`: how long the member may be silent (s).
    """

    group: str | None = None
    member: str | None = None
    generation: int | None = None
    owns: list[int] | None = None
    positions: dict[int, int] | None = None
    session: float | None = None
    groups: list[GroupRow] | None = None


class CommitReply(Reply, kw_only=True):
    """The reply to commit: where the group goes on, in the partitions that it named."""

    group: str
    positions: dict[int, int]
