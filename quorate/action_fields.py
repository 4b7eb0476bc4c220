"""Which fields of a request each action reads, beside `action`, `seq`, `patience` and `consumer`, which any may have.

docs/protocol.md says what they mean. A request may have other fields of `Request`, too: they are not looked at.
"""

from typing import Final

from quorate.protocol import Action

NAMING: Final = ("queue", "msg_id", "msg_ids", "key", "scope", "delivery")
"""What names messages: see `actors.messages.naming.naming_fault`."""

QUEUES: Final = ("queue", "queues", "count", "wait", "in_turn", "full", "as_job", "ttr")
LIST: Final = ("pattern", "count", "after", "full", "sort", "descending", "sums", "system")
MONITOR: Final = ("queue", "full", "as_job")

READS: Final[dict[int, tuple[str, ...]]] = {
    Action.PRODUCE: (
        *("queue", "data", "messages", "delay", "ttl", "retry", "priority", "key", "scope", "encoding", "headers"),
        *("expire", "keep", "max_ready", "replicate", "wait", "on_duplicate", "as_job", "ttr", "asked_delay"),
    ),
    Action.CONSUME: QUEUES,
    Action.CONFIRM: (*NAMING, "held", "early", "discard"),
    Action.MONITOR: MONITOR,
    Action.CONFIGURE: (
        *("queue", "max_size", "default_ttl", "default_retry", "max_deliveries", "dead_letter", "paused"),
        *("expires_after", "system", "as_job"),
    ),
    Action.CLEAR: ("queue",),
    Action.LIST: LIST,
    Action.LEADER: ("queue",),
    Action.RELEASE: (*NAMING, "delay", "nack", "as_job"),
    Action.EXTEND: (*NAMING, "retry", "as_job"),
    Action.PEEK: ("queue", "state", "count", "after", "descending", "as_job"),
    Action.SHOW: ("queue", "msg_id", "key", "scope", "wait", "unless", "as_job"),
    Action.REMOVE: ("queue",),
    Action.LOG: ("shard", "after", "count", "raw"),
    Action.CLUSTER: ("command", "node_id", "host", "port", "shard"),
    Action.AUTHENTICATE: ("token",),
    Action.POSITION: ("reader", "trans_id", "shard", "command"),
    Action.WATCH: QUEUES,
    Action.CANCEL: (),
    Action.BURY: (*NAMING, "reason"),
    Action.MOVE: ("queue", "to", "msg_id", "msg_ids", "count", "after", "create"),
    Action.WITHHOLD: (*NAMING, "delay"),
    Action.SCAN: ("shard", "after", "count", "full", "queue", "state", "sort", "as_job"),
    Action.CLIENT: ("command", "key", "wait"),
    Action.FIND: ("key", "scope"),
    Action.TOPIC: (
        *("topic", "command", "partitions", "keep_s", "keep_bytes", "keep_for_groups", "keep_for_groups_bytes"),
        *("accept_append", "accept_read", "closed", "filters"),
        *("partition", "offset", "time", "pattern", "count", "after"),
    ),
    Action.APPEND: (
        *("topic", "data", "messages", "partition", "key", "headers", "attribute", "flag", "encoding"),
        *("producer", "number", "expected", "command"),
    ),
    Action.READ: (
        *("topic", "partition", "offset", "position", "time", "count", "max_bytes", "wait", "raw", "group", "fresh"),
    ),
    Action.GROUP: (
        *("topic", "group", "command", "member", "owns", "session", "wait", "partition", "offset", "time", "positions"),
        "force",
    ),
    Action.COMMIT: ("topic", "group", "positions", "member", "generation"),
    Action.TRANSACTION: ("operations", "xid"),
    Action.PREPARED: ("command", "shard", "xid"),
    Action.NODE_MONITOR: MONITOR,
    Action.NODE_LIST: LIST,
    Action.NODE_STATUS: (),
    Action.NODE_METRICS: (),
    Action.NODE_DESCRIBE: (),
    Action.NODE_CONFIG: ("command", "key", "value"),
    Action.NODE_LEAVE: ("command",),
    Action.NODE_READY: (),
    Action.NODE_INIT: (),
}
"""By the action's number."""
