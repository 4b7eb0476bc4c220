"""What MetaQ's `stats` says of a broker: of its worker at once, of topics when the node has answered."""

import os
import threading
from typing import Final
from zlib import crc32

from net.protocols.metaq_client import FAILED, OK, UNAVAILABLE, Made, MetaqClient, Step
from net.protocols.metaq_framing import result
from net.protocols.metaq_stats import HELP, text
from net.protocols.session import Ask, Found, Say
from quorate.protocol import BATCH_MAX, Action, Code, ErrorWord, Reply, Request
from quorate.stream_replies import PartitionRow, TopicListReply, TopicReply, TopicRow
from quorate.version import VERSION

Line = tuple[object, ...]

LINES_MAX: Final = 20_000
"""A reply tells of no more topics, or partitions."""

LISTS_MAX: Final = 4
"""So many lists of topics are made at once in a worker: each may hold some MB."""

_OK: Final = int(Code.OK)


def report(client: MetaqClient, item: str, opaque: int) -> Found:
    """Make the answer to `stats`, or what is to be asked for it."""
    if item == "help":
        return Say(result(OK, text(HELP), opaque))
    if item == "config":
        return Say(result(FAILED, "not_supported: the configuration is not shown here: qctl config show", opaque))
    if item == "reset":
        return Ask(Request(Action.NODE_CONFIG, command="check"), _Numbers(client, opaque, resets=True))
    if item == "realtime":
        return Ask(Request(Action.TOPIC, command="list", count=1), _Numbers(client, opaque, resets=False))
    if item not in ("", "topics", "offsets"):
        if not client.has_topic(item):
            return Say(_of_topic(client, opaque, item, None))
        return Ask(Request(Action.TOPIC, topic=item, command="show"), _Topic(client, opaque, item))
    if client.worker.lists >= LISTS_MAX:
        return Say(result(UNAVAILABLE, f"overloaded: {LISTS_MAX} lists of topics are being made already", opaque))
    client.worker.lists += 1
    client.lists += 1
    return _Topics(client, opaque, item).ask(None)


def _of_topic(client: MetaqClient, opaque: int, name: str, partitions: list[PartitionRow] | None) -> bytes:
    rows = partitions or []
    known = 1 if partitions is None else 0 if any(row.next for row in rows) else 2
    lines: list[Line] = [(name,), ("resultCode", known), ("partitions", len(rows))]
    lines += [("message_count", sum([row.messages for row in rows])), ("bytes", sum([row.bytes for row in rows]))]
    return result(OK, text([*lines, *client.worker.stats.lines(client.listener.monotonic(), name)]), opaque)


class _Numbers(Step):
    """The client may see what is counted of all topics, and, with the right operate, begin anew; or it may not."""

    def __init__(self, client: MetaqClient, opaque: int, *, resets: bool) -> None:
        super().__init__(client, opaque)
        self.resets = resets

    def told(self, reply: Reply) -> Made:
        """Do that."""
        stats, now = self.client.worker.stats, self.client.listener.monotonic()
        if reply.code != _OK:
            return self.refused(reply)
        if self.resets:
            stats.reset(now)
        return result(OK, text([("reset", "ok")] if self.resets else stats.lines(now)), self.opaque)


class _Topic(Step):
    """The node has told of one topic."""

    def __init__(self, client: MetaqClient, opaque: int, name: str) -> None:
        super().__init__(client, opaque)
        self.name = name

    def told(self, reply: Reply) -> Made:
        """Say what is known of it."""
        if reply.error in (ErrorWord.NO_SUCH_TOPIC, ErrorWord.IS_A_QUEUE):
            return _of_topic(self.client, self.opaque, self.name, None)
        if reply.code != _OK or not isinstance(reply, TopicReply):
            return self.refused(reply)
        return _of_topic(self.client, self.opaque, self.name, reply.partitions)


class _Topics(Step):
    """The node has told of all topics, page by page; for `offsets` of the partitions of one after the other, too."""

    def __init__(self, client: MetaqClient, opaque: int, item: str) -> None:
        super().__init__(client, opaque)
        self.item = item
        self.rows: list[TopicRow] = []
        self.names: list[str] = []
        self.lines: list[Line] = []

    def ask(self, after: str | None) -> Ask:
        """Ask for a page."""
        return Ask(Request(Action.TOPIC, command="list", count=BATCH_MAX, after=after), self)

    def told(self, reply: Reply) -> Made:
        """Ask for the next page, or say what was found."""
        made = self._next(reply)
        if isinstance(made, bytes):
            self.client.lists -= 1
            self.client.worker.lists -= 1
        return made

    def _next(self, reply: Reply) -> Made:
        if isinstance(reply, TopicReply):
            name = reply.topic
            for row in reply.partitions or ():
                if row.next:
                    offsets = "min_offset", row.first_position, "max_offset", row.first_position + row.bytes
                    self.lines.append((name, "part", row.partition, *offsets))
        elif isinstance(reply, TopicListReply):
            if self.client.listener.shard in (reply.missing_shards or ()):
                return result(UNAVAILABLE, "no_leader: nobody leads the shard of this port: ask again", self.opaque)
            rows = [row for row in reply.topics if self.client.has_topic(row.name)]
            if self.item == "offsets":
                self.names += [row.name for row in rows]
            else:
                self.rows += rows
            if reply.next is not None and len(self.rows) + len(self.names) < LINES_MAX:
                return self.ask(reply.next)
            self.names.reverse()
        elif reply.error != ErrorWord.NO_SUCH_TOPIC:  # it went meanwhile
            return self.refused(reply)
        if self.item == "offsets":
            if self.names and len(self.lines) < LINES_MAX:
                name = self.names.pop()
                return Ask(Request(Action.TOPIC, topic=name, command="show"), self)
        elif self.item == "topics":
            self.lines = [_line(row) for row in self.rows]
        else:
            self.lines = _broker(self.client, self.rows)
        return result(OK, text(self.lines), self.opaque)


def _line(row: TopicRow) -> Line:
    if not row.appended:
        return row.name, "*Empty*"
    counts = "partitions", row.partitions, "message_count", row.messages, "message_bytes", row.bytes
    appends, reads = str(row.accept_append).lower(), str(row.accept_read).lower()
    return (row.name, *counts, "accept_publish", appends, "accept_subscribe", reads)


def _broker(client: MetaqClient, rows: list[TopicRow]) -> list[Line]:
    facts, stats = client.facts, client.worker.stats
    total = stats.total
    settings = [f"{row.name} {row.partitions} {row.accept_append} {row.accept_read}" for row in rows]
    return [
        ("pid", os.getpid()),
        ("broker_id", client.listener.shard),
        ("port", client.listener.port),
        ("uptime", int(client.listener.monotonic() - stats.began)),
        ("version", VERSION),
        ("slave", str(facts.leader not in (0, facts.node_id)).lower()),
        ("curr_connections", stats.connections),
        ("threads", threading.active_count()),
        *[(f"cmd_{what}", total[what]) for what in ("put", "get", "offset")],
        *[(what, total[what]) for what in ("tx_begin", "tx_xa_begin", "tx_commit", "tx_rollback")],
        *[(what, total[what]) for what in ("get_miss", "put_failed")],
        ("total_messages", sum([row.messages for row in rows])),
        ("topics", len(rows)),
        ("config_checksum", crc32("\n".join(settings).encode())),
    ]
