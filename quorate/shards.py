"""Which shard holds what: rules that never change, so that every client can compute them."""

import re
import zlib
from typing import Final

ID_SHARDS: Final = 1024
"""A message's id is the trans_id of its produce times this, plus its shard."""

TRANS_ID_MAX: Final = 2**43 - 1
"""The last record whose message has an id below 2**53."""

_TAG: Final = re.compile(r"\{([^}]+)\}")


def shard_of_queue(name: str, shards: int) -> int:
    """Give the shard of a queue, of `shards` there are: the CRC-32 (as zlib's and PNG's) of its name's UTF-8, modulo
    those.

    Of a name with a tag in braces only the first tag counts, as in Redis Cluster: `{order}.in` and `{order}.dead` are
    in one shard. Braces with nothing between them are no tag.
    """
    if "{" in name:
        found = _TAG.search(name)
        if found is not None:
            name = found[1]
    return zlib.crc32(name.encode()) % shards


def has_tag(name: str) -> bool:
    """Whether what stands in braces decides about its shard."""
    return _TAG.search(name) is not None


def shard_of_message(msg_id: int) -> int:
    """Give the shard that a message's id names; there need be no such shard."""
    return msg_id % ID_SHARDS
