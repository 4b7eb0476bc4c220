"""What replies say of queues: their settings, their counts, and lists of them."""

from typing import Any

import msgspec

from quorate.protocol import Reply


class QueueSettings(msgspec.Struct, gc=False):
    """A queue's settings (`max_size`, `max_deliveries` 0: no limit; `expires_after` 0: never); times in seconds.

    `paused`: nothing is given out; "in": nothing comes in; "all": neither. `system`: lists leave it out unless asked.
    """

    max_size: int
    default_ttl: float
    default_retry: float
    max_deliveries: int
    dead_letter: str | None
    paused: bool | str
    expires_after: float = 0.0
    system: bool = False


class SettingsReply(Reply, kw_only=True):
    """The reply to configure: the queue's settings as they now hold, as in `QueueSettings`."""

    max_size: int
    default_ttl: float
    default_retry: float
    max_deliveries: int
    dead_letter: str | None
    paused: bool | str
    expires_after: float = 0.0
    system: bool = False


class QueueTotals(msgspec.Struct, gc=False, omit_defaults=True):
    """What has become of a queue's messages since Unix second `since`, when its leader began to lead.

    `delivered` counts each time, `redelivered` those that were not a message's first; `taken` those that were delivered
    at most once. `arrived` came from other queues, buried or moved.
    """

    since: float
    produced: int = 0
    delivered: int = 0
    redelivered: int = 0
    confirmed: int = 0
    released: int = 0
    expired: int = 0
    buried: int = 0
    moved: int = 0
    taken: int = 0
    cleared: int = 0
    arrived: int = 0


class QueueRow(msgspec.Struct, gc=False, omit_defaults=True):
    """One queue of a list; counts as in monitor. The rest is there in a list that is `full`.

    `oldest`: since when (Unix seconds) the message that is ready for longest is so. `dead_letter`: where its dead
    letters go; `dead_letters`: how many are there. `came`, `left`: how many did in a second, between the last two times
    that somebody asked for sums; None: nobody has, lately. `age`: how long it has been there, `idle`: unused (s);
    `was_ready`: how often a message of it became ready, `given_out`: how often one was handed out. All four are of the
    time since its leader knows the queue.
    """

    name: str
    size: int
    ready: int
    delayed: int
    in_flight: int
    max_size: int
    max_id: int
    wait_status: int
    paused: bool | str
    oldest: float | None = None
    dead_letter: str | None = None
    dead_letters: int | None = None
    totals: QueueTotals | None = None
    came: float | None = None
    left: float | None = None
    age: float | None = None
    idle: float | None = None
    was_ready: int | None = None
    given_out: int | None = None
    system: bool = False


class MonitorReply(Reply, kw_only=True):
    """The reply to monitor: counts of messages, trans_ids and records.

    `wait_status` is the number of consumers that wait on the queue; `max_id` its newest message's id. `settings` are
    all of the queue's. `row`: as in a list, if it was to be `full`. `exists`: False of no queue, which is no error.
    """

    size: int
    ready: int
    delayed: int
    in_flight: int
    max_size: int
    max_id: int
    wait_status: int
    paused: bool | str
    leader_node_id: int
    node_id: int
    trans_id: int
    log_size: int
    max_log_size: int
    settings: QueueSettings | None = None
    row: QueueRow | None = None
    exists: bool | None = None


class ListReply(Reply, kw_only=True):
    """The reply to list: queues in the order of their names, or in that which was asked for.

    `queue_count` match in all. `next`: there are more of them, to be asked for `after` that. `partial`: those of
    `missing_shards` could not be asked for. `sums`: an object for each shard.
    """

    queue_list: list[QueueRow]
    queue_count: int
    next: str | None = None
    sums: list[Any] | None = None
    partial: bool = False
    missing_shards: list[int] | None = None


class MoveReply(Reply):
    """Of move: how many messages are in another queue now, and how many that were looked at stayed, with the `reason`
    of the first of them. `next`: what to ask for `after`, where there are more than could be looked at.
    """

    moved: int
    stayed: int
    next: str | None = None
