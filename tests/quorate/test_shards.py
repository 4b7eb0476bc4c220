"""Which shard holds what never changes: data and clients go by it."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from quorate.shards import shard_of_message, shard_of_queue


def test_the_shard_of_a_queue_is_the_crc_32_of_its_name() -> None:
    assert zlib.crc32(b"123456789") == 0xCBF43926, "the CRC's check value: ISO-HDLC, as zlib, PNG and Ethernet have it"
    assert shard_of_queue("123456789", 1000) == 0xCBF43926 % 1000
    assert shard_of_queue("grün", 7) == zlib.crc32("grün".encode()) % 7


def test_of_a_name_with_a_tag_only_the_tag_counts() -> None:
    assert shard_of_queue("{order}.in", 64) == shard_of_queue("a{order}.dead", 64) == shard_of_queue("order", 64)
    assert shard_of_queue("{a}{b}", 64) == shard_of_queue("a", 64)
    assert shard_of_queue("{}x", 1000) == zlib.crc32(b"{}x") % 1000
    assert shard_of_queue("{open", 1000) == zlib.crc32(b"{open") % 1000


@given(st.text(min_size=1), st.integers(1, 1024))
def test_every_name_has_a_shard_that_there_is(name: str, shards: int) -> None:
    assert 0 <= shard_of_queue(name, shards) < shards


def test_a_message_says_its_shard() -> None:
    assert shard_of_message(5 * 1024 + 3) == 3
