"""How long a reply is, of which nobody makes bytes, since its client has left."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from net.clients.reply_length import ROW_BYTES, reply_bytes
from net.peers.forwarding import PackedReply, packed_reply, unpacked_reply
from quorate.log_replies import LogReply, LogReplyWithEntries
from quorate.protocol import DeliveredItem, DeliveredReply, MessageView, PeekReply, Reply, ShowReply
from storage.kinds import shown
from storage.records import Produce

SIZE = 100_000
DATA = b'"' + b"x" * SIZE + b'"'
VIEW = MessageView(
    msg_id=1, queue="q", data=Raw(DATA), state="ready", produced_at=1.0, due_at=1.0, expires_at=2.0, retry=0.0,
    priority=0, deliveries=0, trans_id=1,
)  # fmt: skip
RECORD = shown(1, 1.0, Produce("q", 1024, DATA, 1.0, 1.0, 2.0, 0.0, 0, None))
BOUNDS: dict[str, Any] = {"shard": 0, "first_trans_id": 1, "last_trans_id": 1, "committed": 1}
REPLIES: list[tuple[Reply, int]] = [
    (Reply(action=2, code=0, data=Raw(DATA)), 1),
    (DeliveredReply(action=2, code=0, messages=[DeliveredItem(1, Raw(DATA), "q", 1)] * 3), 3),
    (PeekReply(action=11, code=0, messages=[VIEW] * 2), 2),
    (ShowReply(action=12, code=0, message=VIEW), 1),
    (LogReply(action=14, code=0, records=[RECORD] * 4, **BOUNDS), 4),
    (LogReplyWithEntries(action=14, code=0, bytes=2 * SIZE, entries=[DATA] * 2, **BOUNDS), 2),
]


@pytest.mark.parametrize(("reply", "messages"), REPLIES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("was_forwarded", [False, True])
def test_all_that_it_holds_counts(reply: Reply, messages: int, *, was_forwarded: bool) -> None:
    if was_forwarded:
        packed = msgspec.msgpack.decode(msgspec.msgpack.encode(packed_reply(reply)), type=PackedReply)
        reply = unpacked_reply(packed)
    assert messages * SIZE <= reply_bytes(reply) <= messages * (SIZE + 500 + ROW_BYTES) + ROW_BYTES
