"""MetaQ's protocol beside a shard of ours: commands to replies, without a node."""

import struct
import zlib
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from actors.messages.call import Call
from net.node_facts import ListenerFacts, NodeFacts
from net.protocols.json_session import encode_reply
from net.protocols.metaq_session import MetaqSession
from net.protocols.metaq_transactions import OPEN_MAX, Staged, Staging
from net.protocols.session import Ask, Close, RequestLimits, Say
from quorate.protocol import Action, ErrorWord, Reply, Request
from quorate.shards import shard_of_queue
from quorate.stream_replies import RawReadReplyWithFrames
from tests.actors.queues.shard import NOBODY, Shard

PUT = "Put message to [broker 'meta://127.0.0.1:8123'] [partition '{}'] failed.Detail:"


class Broker(Shard):
    """A shard with a topic `t` of two partitions, asked by sessions."""

    def __init__(self, *, shards: int = 1, shard: int = 0, auto_create: bool = False, **limits: Any) -> None:
        super().__init__(**limits)
        self.raw: dict[int, Reply] = {}
        self.passed_s = 0.0
        self.facts = NodeFacts(1, 7, shards)
        self.listener = ListenerFacts(
            port=8123,
            shard=shard,
            monotonic=lambda: self.passed_s,
            auto_create=auto_create,
            auto_create_partitions=3,
        )
        self.broker.context.view.leader_node_id = self.broker.context.view.node_id
        self.ask(Action.TOPIC, command="create", topic="t", partitions=2)
        self.session = self.client()

    def client(self, bytes_max: int = 4 << 20) -> "Client":
        return Client(self, MetaqSession(RequestLimits(bytes_max), self.facts, listener=self.listener))

    def say(self, data: bytes | str) -> str:
        return self.session.say(data)

    def do(self, request: Request) -> Reply:
        self._calls += 1
        order = self._calls
        self.execute([Call(request, self, order, NOBODY)])
        self.settle()
        return self.raw.pop(order)

    def _take_answers(self) -> None:
        for call, reply in self.broker.ledger.take_answers():
            self.raw[call.order] = reply
            if not isinstance(reply, RawReadReplyWithFrames):
                self.replies[call.order] = msgspec.json.decode(encode_reply(reply))


class Client:
    """One client's session; what it asks is done at once, one after the other."""

    def __init__(self, broker: Broker, session: MetaqSession) -> None:
        self.broker = broker
        self.session = session
        self.is_closed = False

    def say(self, data: bytes | str) -> str:
        return self.heard(data).decode("latin-1")

    def heard(self, data: bytes | str) -> bytes:
        """What comes back; `closed` at its end, where the connection ends."""
        heard = b""
        found = self.session.receive(data.encode() if isinstance(data, str) else data)
        while self.session.has_more:
            found += self.session.receive(b"")
        for one in found:
            if isinstance(one, Close):
                self.session.discard()
                return heard + b"closed"
            if isinstance(one, Say):
                heard += one.data
                continue
            assert isinstance(one, Ask)
            made: Any = one
            while not isinstance(made, bytes):
                reply = self.broker.do(made.request)
                made = self.session.answered(made.request, reply, made.note)
            heard += made
        return heard


@pytest.fixture
def broker() -> Broker:
    return Broker()


def result(code: int, text: str, opaque: int = 1) -> str:
    return f"result {code} {len(text.encode())} {opaque}\r\n{text}"


def frame(msg_id: int, payload: bytes, flag: int = 0) -> bytes:
    return struct.pack(">iIqi", len(payload), zlib.crc32(payload) & 0x7FFFFFFF, msg_id, flag) + payload


def test_the_exchanges_of_a_client(broker: Broker) -> None:
    """With a checksum and without, with an attribute, read from the second on."""
    assert broker.say("put t 0 5 0 1\r\nhello") == result(200, "2048 0 0")
    assert broker.say("put t 0 5 0 980881731 2\r\nworld") == result(200, "3072 0 25", 2)
    assert broker.say("put t 0 15 1 643294685 3\r\n\0\0\0\4attrpayload") == result(200, "4096 0 50", 3)
    frames = frame(3072, b"world") + frame(4096, b"\0\0\0\4attrpayload", 1)
    assert broker.session.heard("get t g 0 25 30 9\r\n") == b"value 25 9\r\n" + frames[:25]
    assert broker.session.heard("get t g 0 25 60 9\r\n") == b"value 60 9\r\n" + frames
    [message] = broker.ask(Action.READ, topic="t", partition=0, offset=2)["messages"]
    assert (message["attribute"], message["data"]) == ("attr", "payload")


@pytest.mark.parametrize(
    ("command", "code", "detail"),
    [
        ("put nope 0 5 0 1\r\nhello", 500, "The server do not accept topic nope"),
        ("put t 9 5 0 1\r\nhello", 500, "wrong partition 9"),
        ("put t -7 5 0 1\r\nhello", 500, "wrong partition -7"),
        ("put t 2000 5 0 1\r\nhello", 500, "wrong partition 2000"),
        (
            "put t 0 5 0 5 1\r\nhello",
            500,
            "Checksum failure,message may be corrupted when transfering on networking.",
        ),
        (
            "put t 0 3 1 1\r\nabc",
            500,
            "field_error: the flag says that there is an attribute, and the message is shorter than it",
        ),
        (
            "put t 0 5 1 1\r\n\0\0\0\2a",
            500,
            "field_error: the flag says that there is an attribute, and the message is shorter than it",
        ),
        (
            "put t 0 4 1 1\r\n\x7f\x7f\x7f\x7f",
            500,
            "field_error: the flag says that there is an attribute, and the message is shorter than it",
        ),
    ],
)
def test_a_put_that_fails_says_why(broker: Broker, command: str, code: int, detail: str) -> None:
    words = command.split()
    assert broker.say(command) == result(code, PUT.format(f"{words[1]}-{words[2]}") + detail)
    assert broker.state.topics.by_name["t"].partitions[0].next == 0


def test_a_put_of_more_than_a_message_may_have_is_refused() -> None:
    broker = Broker(data_bytes_max=10)
    detail = "too_large: data: 11 bytes, and 10 are allowed"
    assert broker.say("put t 0 11 0 1\r\nhello world") == result(500, PUT.format("t-0") + detail)


def test_the_broker_picks_a_partition_and_an_empty_message_is_one(broker: Broker) -> None:
    assert [broker.say("put t -1 0 0 1\r\n").split()[-2:] for _ in range(3)] == [["0", "0"], ["1", "0"], ["0", "20"]]


def test_a_topic_that_is_not_there_is_made_where_the_listener_says_so() -> None:
    broker = Broker(auto_create=True)
    assert broker.say("put new 2 2 0 1\r\nhi").startswith("result 200")
    assert len(broker.state.topics.by_name["new"].partitions) == 3
    assert broker.say("put new 3 2 0 1\r\nhi") == result(500, PUT.format("new-3") + "wrong partition 3")
    assert broker.say("get other g 0 0 10 1\r\n") == result(404, "The topic `other` in partition `0` is not exists")
    assert "other" not in broker.state.topics.by_name
    broker.say("transaction TX:a:1 a BEGIN 1\r\n")
    assert broker.say("put third 0 2 0 -1 TX:a:1 1\r\nhi") == result(200, "-1 0 -1")
    assert broker.say("transaction TX:a:1 a COMMIT_ONE_PHASE 1\r\n") == result(200, "")
    assert broker.state.topics.by_name["third"].partitions[0].next == 1
    broker.ask(Action.PRODUCE, queue="q", data=1)
    assert broker.say("put q 0 2 0 1\r\nhi") == result(500, PUT.format("q-0") + "The server do not accept topic q")


def test_a_topic_of_another_shard_does_not_exist_at_a_shards_port() -> None:
    shard = shard_of_queue("t", 4)
    here, elsewhere = Broker(shards=4, shard=shard), Broker(shards=4, shard=(shard + 1) % 4, auto_create=True)
    assert here.say("put t 0 2 0 1\r\nhi").startswith("result 200")
    refused = result(500, PUT.format("t-0") + "The server do not accept topic t")
    assert elsewhere.say("put t 0 2 0 1\r\nhi") == refused
    assert "result 404" in elsewhere.say("get t g 0 0 10 1\r\n")
    assert "result 404" in elsewhere.say("offset t g 0 0 1\r\n")
    assert "resultCode 1" in elsewhere.say("stats t 1\r\n")


def test_reads_say_where_to_go_on(broker: Broker) -> None:
    for text in ("hello", "world!"):
        broker.say(f"put t 0 {len(text)} 0 1\r\n{text}")
    for position, code, text in (
        (3, 301, "0"),
        (26, 301, "25"),
        (-1, 301, "0"),
        (2**63 - 1, 301, "51"),
        (51, 404, "Could not find message at position 51"),
        (2**60, 404, f"Could not find message at position {2**60}"),
    ):
        assert broker.say(f"get t g 0 {position} 100 1\r\n") == result(code, text)
    assert broker.say("get t g 0 0 0 1\r\n") == result(400, "Bad request,invalid max size:0")
    assert broker.say("get t g 0 0 -4 1\r\n") == result(400, "Bad request,invalid max size:-4")
    for partition in (1, 2, -1, 4000):
        unknown = f"The topic `t` in partition `{partition}` is not exists"
        for size in (0, 10):
            assert broker.say(f"get t g {partition} 0 {size} 1\r\n") == result(404, unknown)
        assert broker.say(f"offset t g {partition} 0 1\r\n") == result(404, unknown)
    for position, found in ((-3, 0), (0, 0), (24, 0), (25, 25), (50, 25), (51, 51), (2**62, 51)):
        assert broker.say(f"offset t g 0 {position} 1\r\n") == result(200, str(found))
    broker.ask(Action.TOPIC, command="trim", topic="t", partition=0, offset=1)
    assert broker.say("get t g 0 0 100 1\r\n") == result(301, "25")
    assert broker.say("get t g 0 -1 100 1\r\n") == result(301, "25")
    assert broker.say("offset t g 0 0 1\r\n") == result(200, "25")
    broker.ask(Action.TOPIC, command="trim", topic="t", partition=0, offset="latest")
    assert broker.say("get t g 0 51 100 1\r\n") == result(404, "Could not find message at position 51")


def test_a_message_that_is_larger_than_what_is_asked_for_is_cut(broker: Broker) -> None:
    broker.say(b"put t 0 100 0 1\r\n" + b"x" * 100)
    assert broker.session.heard("get t g 0 0 30 5\r\n") == b"value 30 5\r\n" + frame(2048, b"x" * 100)[:30]


def test_closed_partitions_and_topics_are_told_from_unknown_ones(broker: Broker) -> None:
    broker.say("put t 0 5 0 1\r\nhello")
    broker.ask(Action.TOPIC, command="configure", topic="t", closed=[0])
    closed = PUT.format("t-0") + "partition[0-0] has been closed"
    assert broker.say("put t 0 5 0 1\r\nhello") == result(403, closed)
    assert broker.say("get t g 0 0 100 1\r\n") == result(403, "Partition[0-0] has been closed")
    assert [broker.say("put t -1 2 0 1\r\nhi").split()[-2] for _ in range(3)] == ["1", "1", "1"], "only the open one"
    broker.ask(Action.TOPIC, command="configure", topic="t", closed=[], accept_append=False, accept_read=False)
    refused = PUT.format("t-0") + "The server do not accept topic t"
    assert broker.say("put t 0 5 0 1\r\nhello") == result(500, refused)
    assert broker.say("get t g 0 0 100 1\r\n") == result(403, "Partition[0-0] has been closed")


def test_a_filter_gives_a_group_what_it_accepts_and_each_once(broker: Broker) -> None:
    attributes = ["red", "blue", "redder", "green", None, "blue", "red"]
    for number, attribute in enumerate(attributes):
        broker.ask(Action.APPEND, topic="t", partition=0, data=str(number), attribute=attribute)
    broker.ask(Action.TOPIC, command="configure", topic="t", filters={"warm": ["red*"], "cold": ["blue", "green"]})

    def read(group: str) -> str:
        position, found = 0, b""
        while True:
            answer = broker.session.heard(f"get t {group} 0 {position} 1000 1\r\n")
            line, data = answer.split(b"\r\n", 1)
            if line.startswith(b"value"):
                at = 0
                while at < len(data):
                    length = int.from_bytes(data[at : at + 4], "big")
                    found += data[at + 20 + length - 1 : at + 20 + length]
                    at += 20 + length
                position += at
            elif line.startswith(b"result 301"):
                position = int(data)
            else:
                assert line.startswith(b"result 404")
                return found.decode()

    assert read("warm") == "026"
    assert read("cold") == "135"
    assert read("all") == "0123456"


@pytest.mark.parametrize(
    "data",
    [
        "\r\n",
        "PUT t 0 5 0 1\r\nhello",
        "get t g 0 0 100\r\n",
        "get  t g 0 0 100 1\r\n",
        "get t g zero 0 100 1\r\n",
        "get t g 0 0 100 99999999999\r\n",
        "get t g 0 99999999999999999999 100 1\r\n",
        "get t g \u0663 0 100 1\r\n",
        "get t g 0_0 0 100 1\r\n",
        "put t 0 -1 0 1\r\n",
        "put t 0 5000000 0 1\r\n",
        "put t 0 5 1\r\nhello",
        "put t 0 5 0 1 x:1 2 3\r\nhello",
        "put t 0 5 0 notakey 3\r\nhello",
        "sync t 0 5 0 1\r\nhello",
        "quit\r\n",
        "transaction TX:a:1 a BEGUN 1\r\n",
        "transaction TX:a:1 a BEGIN\r\n",
        "transaction nokey a BEGIN 1\r\n",
        "transaction null a BEGIN 1\r\n",
        "transaction XID:1:zz:cd:q a BEGIN 1\r\n",
        "transaction TX:a:1 a BEGIN 1 2 3 4\r\n",
        "version 1 2\r\n",
        "stats a 1 2\r\n",
        "version x\r\n",
        "x" * 5000,
        b"version \xff\r\n",
        "result 200\r\n",
        "value x 1\r\n",
    ],
)
def test_what_is_no_command_ends_the_connection_without_a_word(broker: Broker, data: bytes | str) -> None:
    assert broker.say("version 5\r\n").startswith("result 200")
    assert broker.say(data) == "closed"
    assert broker.say("version 5\r\n") in ("closed", broker.say("version 5\r\n"))


def test_blanks_at_the_end_and_replies_are_ignored_and_versions_need_no_opaque(broker: Broker) -> None:
    heard = broker.say("version 5   \r\nresult 200 3 1\r\nabcvalue 2 1\r\nxyversion\r\n")
    assert heard.startswith("result 200")
    assert heard.count("quorate-") == 2
    assert " 2147483647\r\n" in heard


def test_what_stands_before_what_is_no_command_is_answered(broker: Broker) -> None:
    assert broker.say("version 5\r\nnonsense\r\nversion 6\r\n").endswith("closed")
    assert broker.client().say("version 5\r\n" * 1200 + "x" * 5000).count("quorate-") == 1200


# -- local transactions ----------------------------------------------------------------------------------------------


def test_a_local_transaction_is_one_entry_or_nothing(broker: Broker) -> None:
    first = broker.say("put t 0 1 0 1\r\na")
    assert broker.say("transaction TX:s:1 s BEGIN 30 7\r\n") == result(200, "", 7)
    assert broker.say("transaction TX:s:1 s BEGIN 7\r\n") == result(200, "", 7)
    before = broker.state.trans_id
    assert broker.say("put t 0 1 0 TX:s:1 8\r\nb") == result(200, "-1 0 -1", 8)
    assert broker.say("put t 1 1 0 -1 TX:s:1 8\r\nc") == result(200, "-2 1 -1", 8)
    assert broker.say("put t 9 1 0 -1 TX:s:1 8\r\nd").startswith("result 500")
    assert broker.say("put nope 0 1 0 -1 TX:s:1 8\r\nd").startswith("result 500")
    assert broker.say("put t 0 1 0 5 TX:s:1 8\r\nd").startswith("result 500")
    assert broker.say("put t -1 1 0 -1 TX:s:1 8\r\nd") == result(500, "Invalid partition for transaction command:-1", 8)
    assert broker.state.trans_id == before, "nothing is in the log"
    prepare = "XAException:code=-3,msg=Prepare not implemented on Local Transactions."
    assert broker.say("transaction TX:s:1 s PREPARE 7\r\n") == result(500, prepare, 7)
    assert broker.say("transaction TX:s:1 s COMMIT_TWO_PHASE 7\r\n") == result(200, "", 7)
    assert broker.state.trans_id == before + 2
    assert [one.next for one in broker.state.topics.by_name["t"].partitions] == [2, 1]
    assert first.startswith("result 200")
    assert broker.facts.metaq.worker.staging.held == 0


@pytest.mark.parametrize("kind", ["PREPARE", "COMMIT_ONE_PHASE", "COMMIT_TWO_PHASE", "ROLLBACK"])
def test_a_local_transaction_that_is_not_open_is_named(broker: Broker, kind: str) -> None:
    unknown = "Local transaction 'TX:a:1' has not been started."
    assert broker.say(f"transaction TX:a:1 s {kind} 1\r\n") == result(500, unknown)
    assert broker.say("put t 0 1 0 -1 TX:a:1 1\r\nb") == result(500, unknown)
    assert broker.say("transaction TX:a:1 s FORGET 1\r\n") == result(
        500, "XAException:code=-4,msg=TX:a:1 is not a valid xid"
    )
    assert broker.say("transaction TX:a:1 s END 1\r\n") == ""


def test_a_transaction_ends_with_its_connection_its_rollback_and_its_time(broker: Broker) -> None:
    staging, other = broker.facts.metaq.worker.staging, broker.client()
    other.say("transaction TX:s:1 s BEGIN 7\r\nput t 0 1 0 -1 TX:s:1 8\r\nb")
    assert broker.say("transaction TX:s:1 s COMMIT_ONE_PHASE 7\r\n").startswith("result 500"), "another's"
    assert staging.held > 0
    other.session.discard()
    assert (staging.held, len(staging)) == (0, 0)
    broker.say("transaction TX:s:1 s BEGIN 7\r\nput t 0 1 0 -1 TX:s:1 8\r\nb")
    assert broker.say("transaction TX:s:1 s ROLLBACK 7\r\n") == result(200, "", 7)
    assert (staging.held, len(staging)) == (0, 0)
    broker.say("transaction TX:s:2 s BEGIN 5 7\r\nput t 0 1 0 -1 TX:s:2 8\r\nb")
    broker.passed_s += 4.9
    assert broker.say("put t 0 1 0 -1 TX:s:2 8\r\nc").startswith("result 200")
    broker.passed_s += 0.2
    assert broker.say("put t 0 1 0 -1 TX:s:2 8\r\nc").startswith("result 500")
    assert (staging.held, len(staging)) == (0, 0)
    broker.say("transaction TX:s:3 s BEGIN 3600 7\r\nput t 0 1 0 -1 TX:s:3 8\r\nb")
    broker.passed_s += 61
    broker.client().say("transaction TX:s:9 s BEGIN 7\r\n")
    assert len(staging) == 1, "the one that is over was let go of, since somebody looked"
    assert broker.state.topics.by_name["t"].partitions[0].next == 0


def test_transactions_are_bounded(broker: Broker) -> None:
    for number in range(100):
        assert broker.say(f"transaction TX:s:{number} s BEGIN 7\r\n").startswith("result 200")
    refused = "limit_reached: 100 transactions are open on this connection"
    assert broker.say("transaction TX:s:100 s BEGIN 7\r\n") == result(500, refused, 7)
    heard = broker.say("".join(f"put t 0 1 0 -1 TX:s:1 {number}\r\nx" for number in range(1001)))
    assert heard.count("result 200") == 1000
    assert "limit_reached: a transaction has at most 1000 messages" in heard
    assert broker.say("transaction TX:s:1 s COMMIT_ONE_PHASE 7\r\n") == result(200, "", 7), "it stays open"
    small = broker.client(bytes_max=3000)
    small.say("transaction TX:s:1 s BEGIN 7\r\nput t 0 1000 0 -1 TX:s:1 8\r\n" + "x" * 1000)
    assert "limit_reached: a transaction has at most 3000 bytes" in small.say(
        "put t 0 2000 0 -1 TX:s:1 8\r\n" + "x" * 2000
    )


def test_what_all_transactions_of_a_worker_hold_is_bounded() -> None:
    staging = Staging()
    put = Request(Action.APPEND, data=Raw(b"x" * (1 << 20)))
    lists: list[dict[str, Staged]] = [{} for _ in range(64)]
    why_not: str | None = None
    for number, of in enumerate(lists):
        assert staging.begin(of, "TX:a:1", 5 if number == 0 else 0, 0.0) is None
        why_not = staging.why_not(of["TX:a:1"], put, 4 << 20, 0.0)
        if why_not is None:
            staging.add(of["TX:a:1"], put)
    assert why_not == "overloaded: transactions that are open hold 67108864 bytes already"
    assert staging.why_not(lists[-1]["TX:a:1"], put, 4 << 20, 6.0) is None, "one is over"
    many: dict[str, Staged] = {}
    for number in range(OPEN_MAX - len(staging)):
        many = many if number % 100 else {}
        assert staging.begin(many, f"TX:{number}:1", 0, 6.0) is None
    assert staging.begin({}, "TX:a:1", 0, 6.0) == "limit_reached: 10000 transactions are open"


def test_what_a_pipelining_client_put_in_vain_makes_its_commit_fail(broker: Broker) -> None:
    session = broker.client().session
    found = session.receive(
        b"transaction TX:s:1 s BEGIN 1\r\nput t 0 1 0 -1 TX:s:1 2\r\na"
        b"put t 9 1 0 -1 TX:s:1 3\r\nbtransaction TX:s:1 s COMMIT_ONE_PHASE 4\r\n"
    )
    answers = [session.answered(one.request, broker.do(one.request), one.note) for one in found if isinstance(one, Ask)]
    assert [bytes(one).split()[1] for one in answers if isinstance(one, bytes)] == [b"200", b"500", b"500"]
    assert b"wrong_partition" in bytes(answers[2])  # type: ignore[arg-type]
    assert broker.state.topics.by_name["t"].partitions[0].next == 0, "all of it or nothing"


# -- distributed transactions -----------------------------------------------------------------------------------------

XID = "XID:1:0aff:bb01:tm"
UNKNOWN_XID = f"XAException:code=-4,msg=XA transaction '{XID}' has not been started."


def xa(broker: Broker, kind: str, key: str = XID, more: str = "", client: Client | None = None) -> str:
    return (client or broker.session).say(f"transaction {key} s {kind} {more}1\r\n")


def put_in(broker: Broker, data: str, partition: int = 0, key: str = XID) -> str:
    return broker.say(f"put t {partition} {len(data)} 0 -1 {key} 1\r\n{data}")


def ends(broker: Broker) -> list[int]:
    return [one.next for one in broker.state.topics.by_name["t"].partitions]


def test_a_distributed_transaction_is_prepared_and_committed_from_any_connection(broker: Broker) -> None:
    assert xa(broker, "BEGIN", more="20 ") == xa(broker, "BEGIN") == result(200, "")
    assert put_in(broker, "a") == result(200, "-1 0 -1")
    assert put_in(broker, "b", 1).startswith("result 200")
    assert put_in(broker, "c", 9).startswith("result 500")
    assert xa(broker, "COMMIT_TWO_PHASE") == result(
        500, "XAException:code=-6,msg=Cannot do 2 phase commit if the transaction has not been prepared."
    )
    assert xa(broker, "PREPARE") == result(200, "0")
    assert ends(broker) == [0, 0]
    assert broker.facts.metaq.worker.staging.held == 0
    assert xa(broker, "PREPARE") == result(500, "XAException:code=-6,msg=Cannot call prepare now.")
    assert put_in(broker, "late") == result(500, UNKNOWN_XID.removeprefix("XAException:code=-4,msg="))
    other = broker.client()
    assert xa(broker, "RECOVER", "null", client=other) == result(200, XID)
    assert xa(broker, "RECOVER", "null", "tm ", other) == result(200, XID)
    assert xa(broker, "RECOVER", "null", "else ", other) == result(200, "")
    before = broker.state.trans_id
    assert xa(broker, "COMMIT_TWO_PHASE", client=other) == result(200, "")
    assert ends(broker) == [1, 1]
    assert broker.state.trans_id == before + 3
    assert xa(broker, "COMMIT_TWO_PHASE") == result(500, UNKNOWN_XID)
    assert xa(broker, "RECOVER", "null") == result(200, "")
    assert broker.replayed().topics.prepared.by_key == {}


def test_a_branch_outlives_its_connection_for_a_while_and_may_be_committed_in_one_phase(broker: Broker) -> None:
    first = broker.client()
    xa(broker, "BEGIN", client=first)
    first.say(f"put t 0 1 0 -1 {XID} 1\r\na")
    first.session.discard()
    assert xa(broker, "COMMIT_ONE_PHASE") == result(200, "")
    assert ends(broker) == [1, 0]
    xa(broker, "BEGIN", more="9 ")
    put_in(broker, "b")
    broker.passed_s += 9.1
    for kind in ("PREPARE", "COMMIT_ONE_PHASE", "COMMIT_TWO_PHASE", "ROLLBACK"):
        assert xa(broker, kind) == result(500, UNKNOWN_XID), kind
    xa(broker, "BEGIN")
    broker.passed_s += 60.1
    assert xa(broker, "PREPARE") == result(500, UNKNOWN_XID), "a minute, where it says nothing"


def test_what_has_put_nothing_ends_when_it_is_prepared_and_rollbacks_leave_nothing(broker: Broker) -> None:
    before = broker.state.trans_id
    xa(broker, "BEGIN")
    assert xa(broker, "PREPARE") == result(200, "3")
    assert xa(broker, "ROLLBACK") == result(500, UNKNOWN_XID)
    xa(broker, "BEGIN")
    put_in(broker, "a")
    assert xa(broker, "ROLLBACK") == result(200, "")
    assert broker.state.trans_id == before
    xa(broker, "BEGIN")
    put_in(broker, "a")
    xa(broker, "PREPARE")
    assert xa(broker, "ROLLBACK") == result(200, "")
    assert xa(broker, "FORGET") == result(200, "")
    assert xa(broker, "END") == ""
    assert ends(broker) == [0, 0]


def test_what_comes_behind_a_prepare_that_is_not_answered_yet_is_done_behind_it(broker: Broker) -> None:
    session = broker.client().session
    asks = session.receive(
        f"transaction {XID} s BEGIN 1\r\nput t 0 1 0 -1 {XID} 2\r\na"
        f"transaction {XID} s PREPARE 3\r\nput t 0 1 0 -1 {XID} 4\r\nb"
        f"transaction {XID} s ROLLBACK 5\r\n".encode()
    )
    codes = [
        one.data.split()[1]
        if isinstance(one, Say)
        else bytes(session.answered(one.request, broker.do(one.request), one.note)).split()[1]  # type: ignore[union-attr,arg-type]
        for one in asks
    ]
    assert codes == [b"200", b"200", b"200", b"500", b"200"]
    assert broker.state.topics.prepared.by_key == {}
    assert ends(broker) == [0, 0]


def test_a_prepared_transaction_is_committed_whatever_happened_to_its_topics_since(broker: Broker) -> None:
    broker.ask(Action.TOPIC, command="create", topic="gone", partitions=1)
    xa(broker, "BEGIN")
    put_in(broker, "a")
    broker.say(f"put gone 0 1 0 -1 {XID} 1\r\nb")
    xa(broker, "PREPARE")
    broker.ask(Action.TOPIC, command="configure", topic="t", closed=[0], accept_append=False)
    for command in ("remove", "create"):
        broker.ask(Action.TOPIC, command=command, topic="gone", partitions=1 if command == "create" else None)
    assert xa(broker, "COMMIT_TWO_PHASE") == result(200, "")
    assert ends(broker) == [1, 0]
    assert broker.state.topics.by_name["gone"].partitions[0].next == 0, "it is another topic of that name"


def test_prepared_transactions_are_bounded_and_a_branch_stays_open_where_it_is_not_prepared(broker: Broker) -> None:
    for number in range(1001):
        key = f"XID:{number}:aa:bb:tm"
        xa(broker, "BEGIN", key)
        put_in(broker, "a", key=key)
        prepared = xa(broker, "PREPARE", key)
        assert prepared == result(200, "0") if number < 1000 else prepared.startswith("result 500")
    assert "limit_reached: 1000 transactions are prepared and not decided" in prepared
    xa(broker, "ROLLBACK", "XID:0:aa:bb:tm")
    assert xa(broker, "PREPARE", key) == result(200, "0")


# -- refusals and stats ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ErrorWord.OVERLOADED, 503),
        (ErrorWord.NO_LEADER, 503),
        (ErrorWord.UNKNOWN_OUTCOME, 500),
        (ErrorWord.NOT_ALLOWED, 500),
        (ErrorWord.DISK_FULL, 500),
    ],
)
def test_what_the_node_refuses_is_said_in_its_words(error: str, code: int) -> None:
    session = MetaqSession(RequestLimits())
    refused = Reply(action=0, code=-1, error=error, reason="it is so")
    for command in (
        b"put t 0 1 0 5\r\na",
        b"get t g 0 0 9 5\r\n",
        b"offset t g 0 0 5\r\n",
        b"stats  5\r\n",
        b"stats t 5\r\n",
        b"stats offsets 5\r\n",
    ):
        [ask] = session.receive(command)
        assert isinstance(ask, Ask)
        made = session.answered(ask.request, refused, ask.note)
        assert isinstance(made, bytes)
        assert made.startswith(b"result %d " % code)
        assert made.endswith(f"{error}: it is so".encode())


def test_stats_tell_of_the_broker_its_topics_and_one_of_them(broker: Broker) -> None:
    broker.passed_s = 10.0
    broker.say("put t 1 5 0 1\r\nhelloget t g 1 0 9 1\r\nget t g 0 0 9 1\r\nput t 7 1 0 1\r\nx")
    broker.ask(Action.TOPIC, command="create", topic="u", partitions=1)
    said = broker.say("stats\r\n").split("\r\n")
    assert said[1] == "STATS"
    assert said[-2] == "END"
    told = dict(line.split(" ") for line in said[2:-2])
    assert told["uptime"] == "10"
    counts = ("cmd_put", "cmd_get", "get_miss", "put_failed", "total_messages", "topics", "curr_connections")
    assert [told[name] for name in counts] == ["1", "2", "1", "1", "1", "2", "1"]
    topics = broker.say("stats topics 4\r\n")
    assert "t partitions 2 message_count 1 message_bytes 25 accept_publish true accept_subscribe true\r\n" in topics
    assert "u *Empty*\r\n" in topics
    assert "t part 1 min_offset 0 max_offset 25\r\n" in broker.say("stats offsets 4\r\n")
    one = broker.say("stats t 4\r\n").split("\r\n")
    assert one[2:7] == ["t", "resultCode 0", "partitions 2", "message_count 1", "bytes 25"]
    assert one[7] == "topic_realtime_put Count=1,Value=1,Value/Count=1,Count/Duration=0.1,Duration=10"
    assert one[12] == "topic_realtime_message_size Count=1,Value=5,Value/Count=5,Count/Duration=0.1,Duration=10"
    assert "resultCode 2" in broker.say("stats u 4\r\n")
    assert "resultCode 1" in broker.say("stats nope 4\r\n")
    assert "reset ok" in broker.say("stats reset\r\n")
    assert "realtime_put Count=0,Value=0,Value/Count=0,Count/Duration=0,Duration=0" in broker.say("stats realtime\r\n")
    assert "*EMPTY* " in broker.say("stats help 1\r\n")
    assert broker.say("stats config 1\r\n").startswith("result 500")
    broker.session.session.discard()
    assert broker.facts.metaq.worker.stats.connections == 0
