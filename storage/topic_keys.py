"""The keys of the rows that LMDB has of topics, groups and producers: see `storage.topics`."""

from hashlib import sha256
from typing import Final

from storage.records import Append, Decide, DropGroup, Offsets, OfPrepared, OfTopic, Prepare, Topic

NUMBER_BYTES: Final = 4
TOPIC_ROW: Final = b"t"
GROUP_ROW: Final = b"g"
PRODUCER_ROW: Final = b"p"
COUNT_ROW: Final = b"n"
PREPARED_ROW: Final = b"x"
"""The first byte of a row's key says what it is of. Behind it stands a topic's name; or its number, and the name of a
group or producer; or nothing: the number that the next topic gets; or the xid of a prepared transaction, of which the
beginning and a checksum where it is long."""

XID_BYTES: Final = 200
"""Of an xid, in a key: LMDB's have at most 511 bytes."""


def topic_key(name: str) -> bytes:
    """Make the key of a topic's row."""
    return TOPIC_ROW + name.encode()


def group_key(number: int, group: str) -> bytes:
    """Make the key of a group's row."""
    return b"".join([GROUP_ROW, number.to_bytes(NUMBER_BYTES, "big"), group.encode()])


def producer_key(number: int, producer: str) -> bytes:
    """Make the key of a producer's row."""
    return b"".join([PRODUCER_ROW, number.to_bytes(NUMBER_BYTES, "big"), producer.encode()])


def prepared_key(xid: str) -> bytes:
    """Make the key of a prepared transaction's row."""
    data = xid.encode()
    if len(data) > XID_BYTES:
        data = data[:XID_BYTES] + sha256(data).digest()
    return PREPARED_ROW + data


def keys_of(record: OfTopic | OfPrepared) -> list[bytes]:
    """List the keys of the rows that a record may change."""
    if isinstance(record, (Prepare, Decide)):
        return [prepared_key(record.xid)]
    keys = [topic_key(record.queue)]
    if isinstance(record, Topic):
        keys.append(COUNT_ROW)
    elif isinstance(record, (Offsets, DropGroup)):
        return [group_key(record.number, record.group)]
    elif isinstance(record, Append) and record.producer is not None:
        keys.append(producer_key(record.number, record.producer))
    return keys
