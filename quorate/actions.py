"""One table of what is to be known about every action; connection, routing, broker, client and docs go by it.

A new action is a row here; nothing else enumerates actions but the broker, which says what each one does.
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


class Facts(NamedTuple):
    """About one action.

    `writes`: puts records into the log. `in_pieces`: its records come in several entries. `asks_node`: answered by the
    node that was reached, from its own view; otherwise the leader answers. `is_long`: its reply may be as long as a
    reply can be, so a connection has one of them open at a time. `needs_space`: makes the backlog larger, so a full
    disk refuses it. `is_repeatable`: doing it twice is the same as once, so that a client may ask again when it does
    not know whether it was done (a produce with a key, too). `may_wait`: with `wait` it may be answered much later, and
    only as long as its client is there. `unless_gone`: it sets or clears something, so it is not done late, when its
    client has given up and may have asked for something else. `level`: the feature level that the cluster needs for it.
    """

    action: Action
    name: str
    right: str
    writes: bool = False
    in_pieces: bool = False
    asks_node: bool = False
    is_long: bool = False
    needs_space: bool = False
    is_repeatable: bool = False
    may_wait: bool = False
    unless_gone: bool = False
    level: int = 1


READERS_LEVEL: Final = 3
"""From this feature level on the log keeps its readers' positions."""

TABLE: Final = (
    Facts(Action.PRODUCE, "produce", Right.PRODUCE, writes=True, needs_space=True),
    Facts(Action.CONSUME, "consume", Right.CONSUME, writes=True, is_repeatable=True, may_wait=True),
    Facts(Action.CONFIRM, "confirm", Right.CONSUME, writes=True, is_repeatable=True),
    Facts(Action.MONITOR, "monitor", Right.LOOK, is_repeatable=True),
    Facts(
        Action.CONFIGURE, "configure", Right.MANAGE, writes=True, needs_space=True, is_repeatable=True, unless_gone=True
    ),
    Facts(Action.CLEAR, "clear", Right.MANAGE, writes=True, in_pieces=True, unless_gone=True),
    Facts(Action.LIST, "list", Right.LOOK, is_long=True, is_repeatable=True),
    Facts(Action.LEADER, "leader", Right.ANY, asks_node=True, is_repeatable=True),
    Facts(Action.RELEASE, "release", Right.CONSUME, writes=True),
    Facts(Action.EXTEND, "extend", Right.CONSUME, writes=True),
    Facts(Action.PEEK, "peek", Right.LOOK, is_long=True, is_repeatable=True),
    Facts(Action.SHOW, "show", Right.LOOK, is_long=True, is_repeatable=True),
    Facts(Action.REMOVE, "remove", Right.MANAGE, writes=True, in_pieces=True, unless_gone=True),
    Facts(Action.LOG, "log", Right.LOG, asks_node=True, is_long=True, is_repeatable=True),
    Facts(Action.CLUSTER, "cluster", Right.OPERATE, is_repeatable=True, unless_gone=True),
    Facts(Action.AUTHENTICATE, "authenticate", Right.NONE, asks_node=True, is_repeatable=True),
    Facts(
        Action.POSITION, "position", Right.LOG, writes=True, is_repeatable=True, unless_gone=True, level=READERS_LEVEL
    ),
    Facts(Action.WATCH, "watch", Right.CONSUME, is_repeatable=True, may_wait=True),
    Facts(Action.NODE_MONITOR, "node monitor", Right.LOOK, asks_node=True, is_repeatable=True),
    Facts(Action.NODE_LIST, "node list", Right.LOOK, asks_node=True, is_long=True, is_repeatable=True),
    Facts(Action.NODE_STATUS, "node status", Right.LOOK, asks_node=True, is_repeatable=True),
    Facts(Action.NODE_INIT, "node init", Right.OPERATE, asks_node=True),
)
"""Every action, by its number."""

BY_NUMBER: Final = {facts.action: facts for facts in TABLE}
WRITES: Final = frozenset(facts.action for facts in TABLE if facts.writes)
LATER: Final[dict[int, int]] = {facts.action: facts.level for facts in TABLE if facts.level > 1}
"""The actions that the first nodes did not know, each with its feature level."""

IN_PIECES: Final = frozenset(facts.action for facts in TABLE if facts.in_pieces)
ASKS_NODE: Final = frozenset(facts.action for facts in TABLE if facts.asks_node)
UNLESS_GONE: Final = frozenset(facts.action for facts in TABLE if facts.unless_gone)
WAITS: Final = frozenset(facts.action for facts in TABLE if facts.may_wait)
LONG_REPLIES: Final = frozenset(facts.action for facts in TABLE if facts.is_long)
NEEDS_SPACE: Final = frozenset(facts.action for facts in TABLE if facts.needs_space)
REPEATABLE: Final = frozenset(facts.action for facts in TABLE if facts.is_repeatable)
LOOKS: Final = frozenset(f.action for f in TABLE if not f.writes and not f.asks_node and f.action != Action.CLUSTER)
"""What the leader answers and nothing changes by: asked again without a thought."""
NAMES: Final[dict[int, str]] = {int(facts.action): facts.name for facts in TABLE}

CLUSTER_LOOKS: Final = frozenset({None, "status"})
"""Commands of the action cluster that change nothing."""

NAME_NO_QUEUE: Final = frozenset(
    {
        *(Action.LIST, Action.NODE_LIST, Action.LEADER, Action.NODE_STATUS, Action.LOG, Action.POSITION),
        *(Action.CLUSTER, Action.NODE_INIT, Action.AUTHENTICATE),
    }
)
"""What is about no queue that the request names; a list shows those that its client may see."""

NAME_QUEUES: Final = frozenset({Action.CONSUME, Action.WATCH})
"""What may name several queues."""

NOT_BY_DATAGRAM: Final = frozenset(
    {Action.LOG, Action.POSITION, Action.CLUSTER, Action.NODE_INIT, Action.NODE_STATUS, Action.AUTHENTICATE}
)
"""What is not about queues: it needs a client that can be known."""
