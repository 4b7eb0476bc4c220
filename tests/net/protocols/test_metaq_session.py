"""MetaQ's protocol beside a shard of ours: commands to replies, without a node."""

import pytest

from net.protocols.metaq_session import MetaqSession
from net.protocols.session import Ask, RequestLimits, Say
from quorate.protocol import Action, ErrorWord, Reply
from quorate.shards import shard_of_queue
from quorate.stream_replies import TopicListReply
from tests.net.protocols.metaq_broker import Broker, frame, result

PUT = "Put message to [broker 'meta://127.0.0.1:8123'] [partition '{}'] failed.Detail:"


@pytest.fixture
def broker() -> Broker:
    return Broker()


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
    assert broker.say("offset t g 0 0 1\r\n") == result(200, "0")
    broker.ask(Action.TOPIC, command="trim", topic="t", offset="latest")
    assert broker.say("get t g 0 0 100 1\r\n") == result(403, "Partition[0-0] has been closed")
    assert broker.say("offset t g 0 0 1\r\n") == result(200, "25")
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
    broker.may_operate = False
    assert broker.say("stats reset 3\r\n") == result(500, "not_allowed: it may not", 3)
    broker.may_operate = True
    assert "reset ok" in broker.say("stats reset\r\n")
    assert "realtime_put Count=0,Value=0,Value/Count=0,Count/Duration=0,Duration=0" in broker.say("stats realtime\r\n")
    assert "*EMPTY* " in broker.say("stats help 1\r\n")
    assert broker.say("stats config 1\r\n").startswith("result 500")
    broker.session.session.discard()
    assert broker.facts.metaq.worker.stats.connections == 0


def test_only_topics_that_are_there_are_counted_for_themselves_and_a_list_is_whole_or_none(broker: Broker) -> None:
    stats = broker.facts.metaq.worker.stats
    for number in range(50):
        broker.say(f"get no{number} g 0 0 9 1\r\noffset no{number} g 0 0 1\r\nput no{number} 0 1 0 1\r\nx")
    assert [name for name, _ in stats.lines(1.0, "no1")] == [name for name, _ in stats.lines(1.0, "no99")]
    assert not stats._of
    assert stats.total["get"] == 50
    sessions = [broker.client().session for _ in range(6)]
    lists = [session.receive(b"stats offsets 5\r\n")[0] for session in sessions]
    refused = [one.data.decode() for one in lists if isinstance(one, Say)]
    assert refused == [result(503, "overloaded: 4 lists of topics are being made already", 5)] * 2
    for session in sessions:
        session.discard()
    assert broker.facts.metaq.worker.lists == 0
    assert "END" in broker.say("stats offsets 5\r\n")
    assert broker.facts.metaq.worker.lists == 0
    [ask] = broker.session.session.receive(b"stats topics 5\r\n")
    assert isinstance(ask, Ask)
    reply = broker.do(ask.request)
    assert isinstance(reply, TopicListReply)
    reply.missing_shards = [0]
    made = broker.session.session.answered(ask.request, reply, ask.note)
    assert bytes(made).startswith(b"result 503 ")  # type: ignore[arg-type]
