"""The messages of topics in LMDB: what is stored there, let go of, and read.

| message | from | to | meaning |
|---|---|---|---|
| StoreBlocks | QueueOwner | Checkpointer | keep these, with the entries that they are of |
| BlocksStored | Checkpointer | QueueOwner | these are kept |
| DropBlocks | QueueOwner | Checkpointer | these messages are not kept any more |
| ReadBlocks | QueueOwner | BlockReader | read messages |
| BlocksRead | BlockReader | QueueOwner | they were read |
| BlocksMissing | Checkpointer | Replicator | LMDB lacks these messages |
| FetchBlocks, BlocksFetched | Replicator, Checkpointer | the other | blocks that another node lacks |
| FillGap | Replicator | Checkpointer | keep these, which were missing |
| GapFilled | Checkpointer | QueueOwner | they are kept |
| CloseTail | Checkpointer | QueueOwner | another node wants what is in no block yet |
"""

import msgspec

from storage.block_rows import Stored, Wanted
from storage.blocks import Block
from storage.log_store import Gap


class StoreBlocks(msgspec.Struct):
    """Keep these blocks as soon as LMDB's log holds all that is in them."""

    blocks: list[Block]


class BlocksStored(msgspec.Struct):
    """LMDB has the blocks of these partitions: each topic's number, the partition, up to which offset."""

    ends: list[tuple[int, int, int]]


class DropBlocks(msgspec.Struct):
    """Let go of blocks. `kept`: from which offset on each partition of a topic is kept; None: nothing of it is.

    `below`: nor is anything of topics with a smaller number that `kept` does not name; 0: those stay.
    """

    kept: dict[int, dict[int, int] | None]
    below: int = 0


class ReadBlocks(msgspec.Struct):
    """Read messages, at most `count`, and about `bytes_max`; `serial` tells this from other readings."""

    serial: int
    wanted: Wanted
    count: int
    bytes_max: int
    is_raw: bool = False


class BlocksRead(msgspec.Struct):
    """What a `ReadBlocks` with that serial asked for."""

    serial: int
    stored: Stored


class BlocksMissing(msgspec.Struct):
    """Which messages LMDB lacks, all of them."""

    gaps: list[Gap]


class FetchBlocks(msgspec.Struct):
    """Read blocks that node `node_id` lacks, about `bytes_max`."""

    node_id: int
    gap: Gap
    bytes_max: int


class BlocksFetched(msgspec.Struct):
    """Blocks from the one on that holds the gap's first message, as rows; none: it is in no block here."""

    node_id: int
    gap: Gap
    rows: list[tuple[bytes, bytes]]


class FillGap(msgspec.Struct):
    """Keep blocks, as rows, that hold all of a gap's messages before offset `upto`."""

    gap: Gap
    rows: list[tuple[bytes, bytes]]
    upto: int


class GapFilled(msgspec.Struct):
    """Of a topic's number and a partition the messages from one offset up to another are here now."""

    number: int
    partition: int
    begin: int
    upto: int


class CloseTail(msgspec.Struct):
    """Put what is committed of a partition into blocks."""

    number: int
    partition: int
