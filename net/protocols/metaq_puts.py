"""MetaQ's put: an append, or a message that its transaction keeps until it is committed."""

from typing import Final
from zlib import crc32

from msgspec import Raw
from msgspec.structs import replace

from net.protocols.metaq_client import CHECK, FAILED, FORBIDDEN, OK, Made, MetaqClient, Step, code_of
from net.protocols.metaq_framing import MalformedError, number_in, result
from net.protocols.metaq_stats import MESSAGE_SIZE, PUT, PUT_FAILED
from net.protocols.metaq_transactions import LOCAL, Staged, check_key, not_begun
from net.protocols.session import Ask, Found, Say
from quorate.protocol import ATTRIBUTE_MAX, PARTITIONS_MAX, PLAIN, Action, Code, ErrorWord, Reply, Request
from quorate.stream_replies import AppendReply

NOTHING: Final = Request(action=0)
"""Stands for a request that is not made yet."""

RANDOM: Final = -1
"""The partition of a put whose client leaves the choice to the broker; and the checksum of one that has none."""

CRC_MASK: Final = 0x7FFFFFFF
HAS_ATTRIBUTE: Final = 1
LENGTH_BYTES: Final = 4
NOT_ACCEPTED: Final = (ErrorWord.NO_SUCH_TOPIC, ErrorWord.IS_A_QUEUE, ErrorWord.NOT_ACCEPTED)

ATTRIBUTE_BYTES_MAX: Final = ATTRIBUTE_MAX * 4
"""What is longer has too many characters, whichever they are."""

_APPEND: Final = int(Action.APPEND)
_OK: Final = int(Code.OK)
_crc32: Final = crc32
_PLAIN: Final = PLAIN


def put(client: MetaqClient, words: list[str], body: bytes) -> Found:
    """Append: put topic partition length flag [checksum] [transaction] opaque."""
    count = len(words)
    if not 6 <= count <= 8:
        raise MalformedError
    topic, partition, flag = words[1], number_in(words[2]), number_in(words[4])
    checksum, transaction, opaque = RANDOM, "", number_in(words[count - 1])
    if count == 8 or (count == 7 and _is_number(words[5])):
        checksum = number_in(words[5])
    if count == 8 or (count == 7 and not _is_number(words[5])):
        transaction = words[count - 2]
        check_key(transaction)
    its = _Put(client, opaque, topic, partition)
    if transaction:
        return _staged(client, its, transaction, body, flag, checksum)
    request = its.request(body, flag, checksum)
    return Say(its.failed(FAILED, request)) if isinstance(request, str) else Ask(request, its)


def _is_number(word: str) -> bool:
    return word[:1] == "-" or word[:1].isdigit()


class _Put(Step):
    """A message was appended, or not. `staged`: the transaction that it belongs to."""

    def __init__(self, client: MetaqClient, opaque: int, topic: str, partition: int) -> None:
        super().__init__(client, opaque)
        self.topic = topic
        self.partition = partition
        self.asked = NOTHING
        self.staged: Staged | None = None
        self.size = 0
        self.may_create = client.listener.auto_create

    def request(self, body: bytes, flag: int, checksum: int) -> Request | str:
        """Make the request to append; or say why that can't be done."""
        self.size = len(body)
        if not self.client.has_topic(self.topic):
            return self.unknown()
        if not RANDOM <= self.partition < PARTITIONS_MAX:
            return f"wrong partition {self.partition}"
        if checksum != RANDOM and checksum != _crc32(body) & CRC_MASK:
            return "Checksum failure,message may be corrupted when transfering on networking."
        attribute: str | None = None
        if flag & HAS_ATTRIBUTE:
            end = LENGTH_BYTES + int.from_bytes(body[:LENGTH_BYTES], "big", signed=True)
            if not LENGTH_BYTES <= end <= len(body):
                return "field_error: the flag says that there is an attribute, and the message is shorter than it"
            if end - LENGTH_BYTES > ATTRIBUTE_BYTES_MAX:
                return f"too_large: the attribute has {end - LENGTH_BYTES} bytes, and {ATTRIBUTE_MAX} are allowed"
            try:
                attribute = body[LENGTH_BYTES:end].decode()
            except UnicodeDecodeError:
                return "field_error: the attribute is not UTF-8"
            if len(attribute) > ATTRIBUTE_MAX:
                return f"too_large: the attribute has {len(attribute)} characters, and {ATTRIBUTE_MAX} are allowed"
            body = body[end:]
        self.asked = Request(
            _APPEND,
            data=Raw(body),
            encoding=_PLAIN,
            topic=self.topic,
            partition=None if self.partition == RANDOM else self.partition,
            attribute=attribute,
            flag=flag,
        )
        return self.asked

    def unknown(self) -> str:
        return f"The server do not accept topic {self.topic}"

    def failed(self, code: int, detail: str) -> bytes:
        """Say that it was not appended."""
        self.client.worker.stats.note(PUT_FAILED, self.topic, is_there=False)
        return result(code, self.client.broker(self.topic, self.partition) + detail, self.opaque)

    def told(self, reply: Reply) -> Made:
        """Say where it is."""
        if reply.code != _OK or not isinstance(reply, AppendReply):
            return self.not_done(reply, Ask(self.asked, self))
        stats = self.client.worker.stats
        stats.note(PUT, self.topic)
        stats.note(MESSAGE_SIZE, self.topic, self.size)
        head = b"%d %d %d" % (reply.msg_id or 0, reply.partition or 0, reply.position or 0)
        return b"result 200 %d %d\r\n%b" % (len(head), self.opaque, head)

    def not_done(self, reply: Reply, again: Ask) -> Made:
        """Say why it is not there; or make its topic first, and ask again."""
        if reply.error == ErrorWord.NO_SUCH_TOPIC and self.may_create:
            self.may_create = False
            count = self.client.listener.auto_create_partitions
            wanted = Request(Action.TOPIC, topic=self.topic, command="create", partitions=count)
            return Ask(wanted, _Created(self, again))
        if self.staged is not None:
            self.staged.unchecked -= 1
            self.client.worker.staging.take_back(self.staged, self.asked)
        if reply.error in NOT_ACCEPTED:
            return self.failed(FAILED, self.unknown())
        if reply.error == ErrorWord.WRONG_PARTITION:
            return self.failed(FAILED, f"wrong partition {self.partition}")
        if reply.error == ErrorWord.CLOSED:
            detail = f"partition[{self.client.listener.shard}-{self.partition}] has been closed"
            return self.failed(FORBIDDEN, detail)
        return self.failed(code_of(reply), f"{reply.error}: {reply.reason}")


class _Created(Step):
    """A put's topic was made, since there was none."""

    def __init__(self, of: _Put, again: Ask) -> None:
        super().__init__(of.client, of.opaque)
        self.of = of
        self.again = again

    def told(self, reply: Reply) -> Made:
        """Ask what was asked before, now that there is a topic."""
        if reply.code == _OK or reply.error == ErrorWord.TOPIC_EXISTS:
            return self.again
        return self.of.not_done(reply, self.again)


def _staged(client: MetaqClient, its: _Put, key: str, body: bytes, flag: int, checksum: int) -> Found:
    """Keep a put until its transaction is committed, and ask whether it could be done now."""
    now, staging = client.listener.monotonic(), client.worker.staging
    of = client.open if key.startswith(LOCAL) else staging.branches
    staged = staging.find(of, key, now)
    if staged is None or staged.is_closed:
        return Say(result(FAILED, not_begun(key), its.opaque))
    if its.partition == RANDOM:
        return Say(result(FAILED, f"Invalid partition for transaction command:{its.partition}", its.opaque))
    request = its.request(body, flag, checksum)
    if not isinstance(request, str):
        why_not = staging.why_not(staged, request, client.limits.request_bytes_max, now)
        if why_not is None:
            its.staged = staged
            staged.unchecked += 1
            return _Checked(its, staged, staging.add(staged, request)).ask()
        request = why_not
    return Say(its.failed(FAILED, request))


class _Checked(Step):
    """A put of a transaction could be done, or not. `provisional`: the id that its client gets."""

    def __init__(self, of: _Put, staged: Staged, provisional: int) -> None:
        super().__init__(of.client, of.opaque)
        self.of = of
        self.staged = staged
        self.provisional = provisional

    def ask(self) -> Ask:
        """Ask whether it could be done."""
        return Ask(replace(self.of.asked, command=CHECK), self)

    def told(self, reply: Reply) -> Made:
        """Say that it is kept; or take it back."""
        of = self.of
        if reply.code != _OK:
            return of.not_done(reply, self.ask())
        self.staged.unchecked -= 1
        of.client.worker.stats.note(PUT, of.topic)
        return result(OK, f"{self.provisional} {of.partition} -1", self.opaque)
