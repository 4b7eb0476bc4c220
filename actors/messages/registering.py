"""Registering a shard's topics in ZooKeeper, where MetaQ's clients look for brokers.

| message | from | to | meaning |
|---|---|---|---|
| ReadTree | Registrar | ZooKeeperLane | what stands in ZooKeeper for this shard? |
| TreeRead | ZooKeeperLane | Registrar | that |
| Transact | Registrar | ZooKeeperLane | do all of this, or nothing |
| Transacted | ZooKeeperLane | Registrar | it is done, or was refused, or nobody knows |
| SessionChanged | ZooKeeperLane | Registrar | ZooKeeper can be reached, or not |
| ReadGroups | Registrar | ZooKeeperLane | where are MetaQ's groups in these topics? |
| GroupsRead | ZooKeeperLane | Registrar, QueueOwner | that; the Registrar passes it on |
| TellTopics | Registrar | QueueOwner | which topics has the shard? |
| ShardTopics | QueueOwner | Registrar | that |
"""

from typing import Literal, NamedTuple

import msgspec

from actors.messages.mailbox import Mailbox
from quorate.stream_replies import MetaqGroupRow


class Node(NamedTuple):
    """A node of ZooKeeper: its data and its version. `is_own`: it goes with this worker's session."""

    data: bytes
    version: int = 0
    is_own: bool = False


class Op(NamedTuple):
    """One operation: `version` is for check and set (-1: any). Created ephemeral nodes go with the session."""

    kind: Literal["check", "create", "set", "delete"]
    path: str
    data: bytes = b""
    version: int = -1
    is_ephemeral: bool = False


class TopicFacts(NamedTuple):
    """Of a topic: how many partitions it has, and what is accepted."""

    partitions: int
    accept_append: bool = True
    accept_read: bool = True


class ShardTopics(msgspec.Struct):
    """The shard's topics, as this node knows them."""

    topics: dict[str, TopicFacts]


class TellTopics(msgspec.Struct):
    """Tell them to that one."""

    registrar: Mailbox[ShardTopics]


class ReadTree(msgspec.Struct):
    """Read these nodes; of `folders` the names in them, and the nodes called as `leaves` in each of those.

    The folders are made where they are not there.
    """

    serial: int
    nodes: list[str]
    folders: list[str]
    leaves: list[str]


class TreeRead(msgspec.Struct):
    """What is there: `nodes` by their paths, `names` by folder. `fault`: why nothing could be read."""

    serial: int
    nodes: dict[str, Node]
    names: dict[str, set[str]]
    fault: str | None = None


class Transact(msgspec.Struct):
    """Do all of these, in their order, or none. Before that make these folders, where they are not there."""

    serial: int
    ops: list[Op]
    folders: list[str] = []


class Refused(NamedTuple):
    """The operation that a transaction was refused for, by its path, and why."""

    path: str
    why: str


class Transacted(msgspec.Struct):
    """What became of it: done, or refused since something stands otherwise, or unknown (`fault`)."""

    serial: int
    refused: Refused | None = None
    fault: str | None = None


class SessionChanged(msgspec.Struct):
    """ZooKeeper can be reached, with that session (0: it can't). `fault`: why not."""

    session: int
    fault: str = ""


class ReadGroups(msgspec.Struct):
    """Look where MetaQ's groups are in these topics; `consumers` is the folder of all groups, `broker` this shard.

    Of those `after` that name, in the order of their names, as many as are looked at in one go.
    """

    serial: int
    consumers: str
    broker: int
    topics: list[str]
    after: str = ""


class GroupsRead(msgspec.Struct):
    """That, by topic; nothing where ZooKeeper does not answer. The QueueOwner gets all.

    `next`: behind which group the rest begins; None: there is none.
    """

    serial: int
    groups: dict[str, list[MetaqGroupRow]]
    next: str | None = None
