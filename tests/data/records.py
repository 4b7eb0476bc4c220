"""A log made by hand: entries with records of every kind, for decoding and for reports."""

from storage import entry_codec
from storage.message_ids import message_id
from storage.records import (
    Append,
    Bury,
    Clear,
    Configure,
    Confirm,
    Decide,
    Deliver,
    DropGroup,
    DropTopic,
    Encoding,
    Expire,
    Extend,
    Lead,
    Move,
    Offsets,
    Position,
    Prepare,
    Produce,
    Put,
    Record,
    Release,
    Remove,
    Retire,
    Take,
    Topic,
    Withhold,
)

TIME = 1_800_000_000.0


class LogMaker:
    """Puts records into entries, one every second."""

    def __init__(self, shard: int = 0) -> None:
        self.shard = shard
        self.entries: list[bytes] = []
        self.trans_id = 0
        self.time = TIME

    def add(self, *records: Record) -> None:
        """As one entry."""
        self.entries.append(entry_codec.encode(1, self.trans_id + 1, self.time, list(records)))
        self.trans_id += len(records)
        self.time += 1.0

    def produce(
        self, queue: str, data: bytes = b'"x"', key: str | None = None, encoding: int = Encoding.JSON
    ) -> Produce:
        """The next record produces a message."""
        msg_id = message_id(self.trans_id + 1, self.shard)
        made = Produce(queue, msg_id, data, self.time, self.time, self.time + 3600, 60.0, 3, key, encoding=encoding)
        self.add(made)
        return made


def every_kind() -> LogMaker:
    """Each kind of record, once at least."""
    log = LogMaker()
    log.add(Lead("", 1))
    log.add(Configure("a", 10, 60.0, 5.0, 2, "dead", False))
    one = log.produce("a", b'{"n":1}', key="k")
    two = log.produce("a", b"\x00\xff", encoding=Encoding.PLAIN)
    ids, before = [one.msg_id, two.msg_id], [3, 4]
    log.add(
        Deliver("a", ids, before, [log.time + 60] * 2, [1, 1], "worker"), Extend("a", ids[:1], [5], [log.time + 90])
    )
    log.add(Release("a", ids[1:], [5], [log.time + 1]), Confirm("a", ids[:1], [6]))
    log.add(Bury("a", "dead", ids[1:], [7], [log.time], [log.time + 3600]))
    three, four, five = log.produce("b"), log.produce("b"), log.produce("b")
    log.add(Take("b", [three.msg_id], [10]), Expire("b", [four.msg_id], [11]), Clear("b", [five.msg_id], [12]))
    log.add(Move("dead", "a", ids[1:], [9], [log.time], [log.time + 3600]))
    log.add(Position("", "archive", 5, log.time), Remove("b"))
    log.add(Withhold("a", ids[1:], [16], [log.time + 30]))
    log.add(Topic("t", 1, 2, 3600.0, 0, made_at=log.time))
    log.add(
        Append("t", 1, 0, 0, b'{"n":1}', Encoding.JSON, log.time, "k"),
        Append("t", 1, 1, 0, b"text", Encoding.TEXT, log.time),
        Append("t", 1, 1, 1, b"\x00\xff", Encoding.PLAIN, log.time),
    )
    log.add(Offsets("t", 1, "g", [1], [1], log.time), DropGroup("t", 1, "g"))
    log.add(Prepare("", "XID:1:a:b:q", log.time, [Put("t", 1, 0, b"x", Encoding.PLAIN)]))
    log.add(Decide("", "XID:1:a:b:q", False))
    log.add(Retire("t", 1, [1], [1], [24], [log.time]), DropTopic("t", 1))
    return log
