"""One table of what is to be known about every action; connection, routing, broker, client and docs go by it.

A new action is a row here, and a method of the broker, which refuses to start with any that is not in the table:
what has no row can't be asked. Sets of actions elsewhere are made of the rows. What an action has of its own (fields,
a reply) stands in `quorate.protocol`. docs/extending.md shows all that a new one needs.
"""

from typing import Final, NamedTuple

from quorate.protocol import Action


class Right:
    """What a client must be allowed to do for an action: with queues, or with the node."""

    PRODUCE: Final = "produce"
    CONSUME: Final = "consume"
    """Take messages, and say what became of them."""
    LOOK: Final = "look"
    """See counts and messages without changing them."""
    MANAGE: Final = "manage"
    """Configure, pause, clear and remove queues."""
    LOG: Final = "log"
    """Read the change log, which holds every message, and note how far it was read."""
    OPERATE: Final = "operate"
    """Change the cluster; whoever may do that may read the log, too, and see how the node is."""
    ANY: Final = "any"
    """No right of its own: whoever may do anything at all."""
    NONE: Final = "none"
    """Everybody."""


OF_QUEUES: Final = (Right.PRODUCE, Right.CONSUME, Right.LOOK, Right.MANAGE)
"""Rights that are for queues by pattern."""

OF_NODE: Final = (Right.LOG, Right.OPERATE)
"""Rights that are for the whole node."""


class About:
    """What a request is about, which says where it is done and whose right it takes."""

    QUEUE: Final = "queue"
    """The queue that it names."""
    QUEUES: Final = "queues"
    """The queue or queues that it names."""
    OPERATIONS: Final = "operations"
    """What its operations are about."""
    TOPIC: Final = "topic"
    """The topic that it names; or all, of each shard: see `OF_ALL_TOPICS`."""
    MESSAGE: Final = "message"
    """One message: by its id, or by its queue and key, or by a key that is unique among all."""
    MESSAGES: Final = "messages"
    """Messages, by their ids; or one by a key that is unique among all."""
    EVERY_SHARD: Final = "every shard"
    """All queues, of each shard."""
    LEADER: Final = "leader"
    """Who leads a queue's shard, or each."""
    LOG: Final = "log"
    """One shard's log: the request has its number."""
    SHARD: Final = "shard"
    """One shard's queues or messages: the request has its number."""
    CLUSTER: Final = "cluster"
    """The members: see `COMMANDS`."""
    NODE: Final = "node"
    """The node itself, and its shard 0."""
    CLIENT: Final = "client"
    """Who asks, or the node's settings; the Listener knows."""
    WAIT: Final = "wait"
    """Another request of who asks, which waits; the Router knows where."""


OF_SOME_QUEUE: Final = frozenset({About.QUEUE, About.QUEUES, About.MESSAGE, About.MESSAGES, About.TOPIC})


class Gathered:
    """How the answers of several shards become one: `actors.gateway.gathers` has a class for each."""

    LIST: Final = "list"
    TOPICS: Final = "topics"
    STATUS: Final = "status"
    METRICS: Final = "metrics"
    SUM: Final = "sum"
    FOUND: Final = "found"
    LEADERS: Final = "leaders"
    MEMBERS: Final = "members"
    AFTER_ALL: Final = "after all"
    """One does it, when all have said that they may."""
    ALL: Final = "all"


BASE_LEVEL: Final = 5
"""The feature level of the oldest nodes that this version talks with: see `storage.records`."""

STREAMS_LEVEL: Final = 6
"""That at which nodes know topics, `on_duplicate` and `unless`: see there, too."""


class Facts(NamedTuple):
    """About one action.

    `about`: see `About`. `gathered`: see `Gathered`, where it may concern several shards.
    `writes`: puts records into the log. `asks_node`: answered by the
    node that was reached, from its own view; otherwise the leader answers. `is_long`: its reply may be as long as a
    reply can be, so a connection has one of them open at a time. `needs_space`: makes the backlog larger, so a full
    disk refuses it. `is_repeatable`: doing it twice is the same as once, so that a client may ask again when it does
    not know whether it was done (a produce with a key, too). `may_wait`: with `wait` it may be answered much later, and
    only as long as its client is there. `unless_gone`: it sets or clears something, so it is not done late, when its
    client has given up and may have asked for something else. `any_node`: another node's view does as well.
    `by_datagram`: who asks need not be known. `level`: the feature level that the cluster needs for it.
    """

    action: Action
    name: str
    right: str
    about: str
    gathered: str = ""
    writes: bool = False
    asks_node: bool = False
    is_long: bool = False
    needs_space: bool = False
    is_repeatable: bool = False
    may_wait: bool = False
    unless_gone: bool = False
    any_node: bool = False
    by_datagram: bool = True
    level: int = BASE_LEVEL


TABLE: Final = (
    Facts(Action.PRODUCE, "produce", Right.PRODUCE, About.QUEUE, writes=True, needs_space=True),
    Facts(*(Action.CONSUME, "consume", Right.CONSUME, About.QUEUES), writes=True, is_repeatable=True, may_wait=True),
    Facts(Action.CONFIRM, "confirm", Right.CONSUME, About.MESSAGES, Gathered.SUM, writes=True, is_repeatable=True),
    Facts(Action.MONITOR, "monitor", Right.LOOK, About.QUEUE, is_repeatable=True),
    Facts(
        *(Action.CONFIGURE, "configure", Right.MANAGE, About.QUEUE),
        writes=True,
        needs_space=True,
        is_repeatable=True,
        unless_gone=True,
    ),
    Facts(Action.CLEAR, "clear", Right.MANAGE, About.QUEUE, writes=True, unless_gone=True),
    Facts(Action.LIST, "list", Right.LOOK, About.EVERY_SHARD, Gathered.LIST, is_long=True, is_repeatable=True),
    Facts(
        *(Action.LEADER, "leader", Right.ANY, About.LEADER, Gathered.LEADERS),
        asks_node=True,
        is_repeatable=True,
        any_node=True,
    ),
    Facts(Action.RELEASE, "release", Right.CONSUME, About.MESSAGES, Gathered.SUM, writes=True),
    Facts(Action.EXTEND, "extend", Right.CONSUME, About.MESSAGES, Gathered.SUM, writes=True),
    Facts(Action.PEEK, "peek", Right.LOOK, About.QUEUE, is_long=True, is_repeatable=True),
    Facts(
        *(Action.SHOW, "show", Right.LOOK, About.MESSAGE, Gathered.FOUND),
        is_long=True,
        is_repeatable=True,
        may_wait=True,
    ),
    Facts(Action.REMOVE, "remove", Right.MANAGE, About.QUEUE, writes=True, unless_gone=True),
    Facts(
        *(Action.LOG, "log", Right.LOG, About.LOG),
        asks_node=True,
        is_long=True,
        is_repeatable=True,
        any_node=True,
        by_datagram=False,
    ),
    Facts(
        *(Action.CLUSTER, "cluster", Right.OPERATE, About.CLUSTER),
        is_repeatable=True,
        unless_gone=True,
        by_datagram=False,
    ),
    Facts(
        *(Action.AUTHENTICATE, "authenticate", Right.NONE, About.CLIENT),
        asks_node=True,
        is_repeatable=True,
        by_datagram=False,
    ),
    Facts(
        *(Action.POSITION, "position", Right.LOG, About.LOG),
        writes=True,
        is_repeatable=True,
        unless_gone=True,
        by_datagram=False,
    ),
    Facts(Action.WATCH, "watch", Right.CONSUME, About.QUEUES, is_repeatable=True, may_wait=True),
    Facts(Action.CANCEL, "cancel", Right.ANY, About.WAIT, is_repeatable=True, by_datagram=False),
    Facts(Action.BURY, "bury", Right.CONSUME, About.MESSAGES, Gathered.SUM, writes=True),
    Facts(*(Action.MOVE, "move", Right.CONSUME, About.QUEUE), writes=True, unless_gone=True),
    Facts(Action.WITHHOLD, "withhold", Right.CONSUME, About.MESSAGES, Gathered.SUM, writes=True),
    Facts(Action.SCAN, "scan", Right.LOOK, About.SHARD, is_long=True, is_repeatable=True),
    Facts(*(Action.FIND, "find", Right.LOOK, About.MESSAGE, Gathered.FOUND), is_repeatable=True),
    Facts(
        *(Action.TOPIC, "topic", Right.MANAGE, About.TOPIC, Gathered.TOPICS),
        writes=True,
        is_long=True,
        is_repeatable=True,
        unless_gone=True,
        level=STREAMS_LEVEL,
    ),
    Facts(
        *(Action.APPEND, "append", Right.PRODUCE, About.TOPIC),
        writes=True,
        needs_space=True,
        level=STREAMS_LEVEL,
    ),
    Facts(
        *(Action.READ, "read", Right.CONSUME, About.TOPIC),
        asks_node=True,
        is_long=True,
        is_repeatable=True,
        may_wait=True,
        any_node=True,
        level=STREAMS_LEVEL,
    ),
    Facts(
        *(Action.GROUP, "group", Right.CONSUME, About.TOPIC),
        writes=True,
        is_long=True,
        is_repeatable=True,
        may_wait=True,
        level=STREAMS_LEVEL,
    ),
    Facts(
        *(Action.COMMIT, "commit", Right.CONSUME, About.TOPIC),
        writes=True,
        is_repeatable=True,
        level=STREAMS_LEVEL,
    ),
    Facts(
        *(Action.TRANSACTION, "transaction", Right.ANY, About.OPERATIONS),
        writes=True,
        by_datagram=False,
        level=STREAMS_LEVEL,
    ),
    Facts(
        *(Action.PREPARED, "prepared", Right.PRODUCE, About.SHARD),
        writes=True,
        is_long=True,
        is_repeatable=True,
        by_datagram=False,
        level=STREAMS_LEVEL,
    ),
    Facts(Action.NODE_MONITOR, "node monitor", Right.LOOK, About.QUEUE, asks_node=True, is_repeatable=True),
    Facts(
        *(Action.NODE_LIST, "node list", Right.LOOK, About.EVERY_SHARD, Gathered.LIST),
        asks_node=True,
        is_long=True,
        is_repeatable=True,
    ),
    Facts(
        *(Action.NODE_STATUS, "node status", Right.LOOK, About.EVERY_SHARD, Gathered.STATUS),
        asks_node=True,
        is_repeatable=True,
        by_datagram=False,
    ),
    Facts(
        *(Action.NODE_METRICS, "node metrics", Right.LOOK, About.EVERY_SHARD, Gathered.METRICS),
        asks_node=True,
        is_repeatable=True,
        by_datagram=False,
    ),
    Facts(
        *(Action.CLIENT, "client", Right.NONE, About.CLIENT),
        asks_node=True,
        by_datagram=False,
    ),
    Facts(
        *(Action.NODE_DESCRIBE, "node describe", Right.ANY, About.NODE),
        asks_node=True,
        is_repeatable=True,
        by_datagram=False,
    ),
    Facts(
        *(Action.NODE_CONFIG, "node config", Right.OPERATE, About.CLIENT),
        asks_node=True,
        is_repeatable=True,
        by_datagram=False,
    ),
    Facts(
        *(Action.NODE_LEAVE, "node leave", Right.OPERATE, About.EVERY_SHARD, Gathered.ALL),
        asks_node=True,
        is_repeatable=True,
        by_datagram=False,
    ),
    Facts(
        *(Action.NODE_READY, "node ready", Right.NONE, About.EVERY_SHARD, Gathered.ALL),
        asks_node=True,
        is_repeatable=True,
        by_datagram=False,
    ),
    Facts(Action.NODE_INIT, "node init", Right.OPERATE, About.NODE, asks_node=True, by_datagram=False),
)
"""Every action, by its number."""

BY_NUMBER: Final[dict[int, Facts]] = {facts.action: facts for facts in TABLE}
WRITES: Final = frozenset(facts.action for facts in TABLE if facts.writes)
AUDITED: Final = frozenset(f.action for f in TABLE if f.right in (Right.MANAGE, Right.OPERATE)) | {
    Action.MOVE,
    Action.GROUP,
}
"""What is written down though it is allowed: it manages queues, or operates a node."""

OF_TRANSACTIONS: Final = frozenset(
    {Action.PRODUCE, Action.APPEND, Action.CONFIRM, Action.RELEASE, Action.BURY, Action.COMMIT}
)
"""What may be an operation of a transaction."""

OF_COMMAND: Final[dict[int, dict[str | None, str]]] = {
    int(Action.TOPIC): {"list": Right.LOOK, "show": Right.LOOK},
    int(Action.GROUP): {"list": Right.LOOK, "show": Right.LOOK, "reset": Right.MANAGE, "remove": Right.MANAGE},
}
"""The rights that some commands of an action take, where they are others than the action's."""

OF_TOPICS: Final = frozenset(facts.action for facts in TABLE if facts.about == About.TOPIC)
OF_ALL_TOPICS: Final = "list"
"""The command of the action topic that is about all of them."""

LATER: Final[dict[int, int]] = {facts.action: facts.level for facts in TABLE if facts.level > BASE_LEVEL}
"""The actions that the oldest nodes do not know, each with its feature level."""

ASKS_NODE: Final = frozenset(facts.action for facts in TABLE if facts.asks_node)
UNLESS_GONE: Final = frozenset(facts.action for facts in TABLE if facts.unless_gone)
WAITS: Final = frozenset(facts.action for facts in TABLE if facts.may_wait)
LONG_REPLIES: Final = frozenset(facts.action for facts in TABLE if facts.is_long)
NEEDS_SPACE: Final = frozenset(facts.action for facts in TABLE if facts.needs_space)
REPEATABLE: Final = frozenset(facts.action for facts in TABLE if facts.is_repeatable)
LOOKS: Final = frozenset(f.action for f in TABLE if not f.writes and not f.asks_node and f.action != Action.CLUSTER)
"""What the leader answers and nothing changes by: asked again without a thought."""
CHANGE_NOTHING: Final = frozenset(
    facts.action
    for facts in TABLE
    if not facts.writes and facts.action not in (Action.CLUSTER, Action.NODE_INIT, Action.NODE_LEAVE)
)
"""Whatever becomes of a try, nothing is to be known of it."""

NAMES: Final[dict[int, str]] = {int(facts.action): facts.name for facts in TABLE}

ANY_NODE: Final = frozenset(facts.action for facts in TABLE if facts.any_node)
NOT_BY_DATAGRAM: Final = frozenset(facts.action for facts in TABLE if not facts.by_datagram)
"""What needs a client that can be known."""


DONE_BY_SHARDS: Final = frozenset(facts.action for facts in TABLE if facts.about != About.CLIENT)
"""What reaches a shard's owner."""


def about(*what: str) -> frozenset[Action]:
    """List the actions that are about that: see `About`."""
    return frozenset(facts.action for facts in TABLE if facts.about in what)


NAME_NO_QUEUE: Final = frozenset(facts.action for facts in TABLE if facts.about not in OF_SOME_QUEUE)
"""What is about no queue that the request names; a list shows those that its client may see."""

NAME_QUEUES: Final = about(About.QUEUES)
"""What may name several queues."""


class Command(NamedTuple):
    """About one command of the action cluster, None: it names none. `looks`: it changes nothing.

    `gathered`: see `Gathered`; "": it is done by one shard, the first one, or `has_shard`: that which it names.
    """

    name: str | None
    gathered: str = ""
    looks: bool = False
    has_shard: bool = False


COMMANDS: Final = (
    Command(None, Gathered.MEMBERS, looks=True),
    Command("status", Gathered.MEMBERS, looks=True),
    Command("add", Gathered.AFTER_ALL),
    Command("remove", Gathered.AFTER_ALL),
    Command("transfer", has_shard=True),
    Command("upgrade", Gathered.ALL),
    Command("balance", Gathered.ALL),
)
COMMAND_OF: Final[dict[str | None, Command]] = {command.name: command for command in COMMANDS}
CLUSTER_LOOKS: Final = frozenset(command.name for command in COMMANDS if command.looks)
"""Commands that change nothing."""
