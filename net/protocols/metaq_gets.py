"""MetaQ's get and offset: raw reads of a topic's partition, by the positions of its messages (bytes)."""

from typing import Final, cast

from net.protocols.metaq_client import FORBIDDEN, OK, Made, MetaqClient, Step
from net.protocols.metaq_framing import LONG_MAX, MalformedError, number_in, result, value
from net.protocols.metaq_stats import GET, GET_MISS, OFFSET
from net.protocols.session import Ask, Found, Say
from quorate.protocol import MSG_ID_MAX, PARTITIONS_MAX, Action, Code, ErrorWord, Reply, Request
from quorate.request_faults import group_fault
from quorate.stream_replies import GoneReply, RawReadReplyWithFrames

GO_TO: Final = 301
BAD: Final = 400
NOT_FOUND: Final = 404

_READ: Final = int(Action.READ)
_OK: Final = int(Code.OK)


def get(client: MetaqClient, words: list[str], body: bytes) -> Found:
    """Read: get topic group partition offset maxSize opaque."""
    if len(words) != 7:
        raise MalformedError
    topic, group, partition = words[1], words[2], number_in(words[3])
    offset, size_max, opaque = number_in(words[4], LONG_MAX), number_in(words[5]), number_in(words[6])
    its = _Got(client, opaque, topic, partition, offset, size_max)
    if not client.has_topic(topic) or not 0 <= partition < PARTITIONS_MAX:
        return Say(its.missed(its.unknown()))
    request = its.request()
    if offset == LONG_MAX or size_max <= 0:
        request.offset, request.max_bytes = "latest", 1
    elif offset < 0:
        request.offset, request.max_bytes, request.count = "earliest", 1, 1
    else:
        request.position, request.max_bytes = min(offset, MSG_ID_MAX), size_max
    if group and group_fault(group) is None:  # it may have a filter
        request.group = group
    return Ask(request, its)


class _Placed(Step):
    """Where a position of a partition is was looked up. `is_get`: a closed partition is refused."""

    is_get = False

    def __init__(self, client: MetaqClient, opaque: int, topic: str, partition: int, position: int) -> None:
        super().__init__(client, opaque)
        self.topic = topic
        self.partition = partition
        self.position = position
        self.is_counted = False

    def request(self) -> Request:
        """Make a raw read, which does not say from where on."""
        return Request(_READ, topic=self.topic, partition=self.partition, raw=True)

    def unknown(self) -> str:
        """Say that there is no such partition, or that it never had a message."""
        return f"The topic `{self.topic}` in partition `{self.partition}` is not exists"

    def missed(self, text: str) -> bytes:
        """Say that there is nothing."""
        self.count(is_there=False)
        self.client.worker.stats.note(GET_MISS, self.topic, is_there=False)
        return result(NOT_FOUND, text, self.opaque)

    def count(self, *, is_there: bool) -> None:
        """Count it, once."""
        if not self.is_counted:
            self.is_counted = True
            self.client.worker.stats.note(GET if self.is_get else OFFSET, self.topic, is_there=is_there)

    def closed(self) -> bytes:
        """Say that the partition is closed."""
        return result(
            FORBIDDEN, f"Partition[{self.client.listener.shard}-{self.partition}] has been closed", self.opaque
        )

    def not_read(self, reply: Reply) -> Made:
        """Say why nothing was read; or where to go on, where messages are gone."""
        self.count(is_there=False)
        error = reply.error
        if error in (ErrorWord.NO_SUCH_TOPIC, ErrorWord.IS_A_QUEUE, ErrorWord.WRONG_PARTITION):
            return self.missed(self.unknown())
        if error == ErrorWord.NOT_ACCEPTED:
            return self.closed()
        if not isinstance(reply, GoneReply):
            return self.refused(reply)
        if reply.closed and self.is_get:
            return self.closed()
        if reply.position is not None:
            return self.go_to(reply.position)
        request = self.request()  # a damaged block: the next message's position is known by reading that
        request.offset, request.max_bytes, request.count = reply.next, 1, 1
        return Ask(request, self)

    def go_to(self, position: int) -> bytes:
        """Say that the client is to go on there."""
        raise NotImplementedError  # abstract: the class says why there is a body


class _Got(_Placed):
    """Messages were read, or not."""

    is_get = True

    def __init__(
        self, client: MetaqClient, opaque: int, topic: str, partition: int, position: int, size_max: int
    ) -> None:
        super().__init__(client, opaque, topic, partition, position)
        self.size_max = size_max

    def told(self, reply: Reply) -> Made:
        """Send them."""
        if reply.code != _OK or not isinstance(reply, RawReadReplyWithFrames):
            return self.not_read(reply)
        self.count(is_there=True)
        if reply.closed:
            return self.closed()
        if reply.end_position == 0:
            return self.missed(self.unknown())
        if self.size_max <= 0:
            return result(BAD, f"Bad request,invalid max size:{self.size_max}", self.opaque)
        if self.position == LONG_MAX:
            return self.go_to(reply.end_position)
        if self.position < reply.first_position:
            return self.go_to(reply.first_position)
        if reply.bytes and reply.position == self.position:
            return self._frames(reply)
        if self.position >= reply.end_position:
            return self.missed(f"Could not find message at position {self.position}")
        return self.go_to(reply.position)

    def _frames(self, reply: RawReadReplyWithFrames) -> bytes:
        size, frames = reply.bytes, cast("list[bytes]", reply.frames)
        if size <= self.size_max:
            return value(frames, size, self.opaque)
        return value([b"".join(frames)[: self.size_max]], self.size_max, self.opaque)

    def go_to(self, position: int) -> bytes:
        """Say that the client is to go on there."""
        return result(GO_TO, str(position), self.opaque)


def offset(client: MetaqClient, words: list[str], body: bytes) -> Found:
    """Find where a message begins: offset topic group partition offset opaque."""
    if len(words) != 6:
        raise MalformedError
    topic, partition, position = words[1], number_in(words[3]), number_in(words[4], LONG_MAX)
    its = _OffsetFound(client, number_in(words[5]), topic, partition, position)
    if not client.has_topic(topic) or not 0 <= partition < PARTITIONS_MAX:
        return Say(its.missed(its.unknown()))
    request = its.request()
    request.position, request.max_bytes, request.count = min(max(position, 0), MSG_ID_MAX), 1, 1
    return Ask(request, its)


class _OffsetFound(_Placed):
    """It was looked up where a message begins; the leader says so, since it knows of all."""

    def request(self) -> Request:
        """Ask the leader."""
        request = super().request()
        request.fresh = True
        return request

    def told(self, reply: Reply) -> Made:
        """Say where."""
        if reply.code != _OK or not isinstance(reply, RawReadReplyWithFrames):
            return self.not_read(reply)
        self.count(is_there=True)
        if reply.end_position == 0:
            return self.missed(self.unknown())
        if self.position >= reply.end_position:
            return self.go_to(reply.end_position)
        return self.go_to(max(reply.position, reply.first_position))

    def go_to(self, position: int) -> bytes:
        """Say where."""
        return result(OK, str(position), self.opaque)
