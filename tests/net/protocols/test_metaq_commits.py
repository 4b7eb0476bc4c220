"""MetaQ's transactions beside a shard of ours: local ones, and branches of distributed ones."""

import pytest
from msgspec import Raw

from net.protocols.metaq_transactions import OPEN_MAX, Holder, Staging
from net.protocols.session import Ask
from quorate.protocol import Action, ErrorWord, Reply, Request
from tests.net.protocols.metaq_broker import Broker, Client, result


@pytest.fixture
def broker() -> Broker:
    return Broker()


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
    lists = [Holder() for _ in range(64)]
    why_not: str | None = None
    for number, of in enumerate(lists):
        assert staging.begin(of, "TX:a:1", 5 if number == 0 else 0, 0.0) is None
        why_not = staging.why_not(of.by_key["TX:a:1"], put, 4 << 20, 0.0)
        if why_not is None:
            staging.add(of.by_key["TX:a:1"], put)
    assert why_not == "overloaded: transactions that are open hold 67108864 bytes already"
    assert staging.why_not(lists[-1].by_key["TX:a:1"], put, 4 << 20, 6.0) is None, "one is over"
    many = Holder()
    for number in range(OPEN_MAX - len(staging)):
        many = many if number % 100 else Holder()
        assert staging.begin(many, f"TX:{number}:1", 0, 6.0) is None
    assert staging.begin(Holder(), "TX:a:1", 0, 6.0) == "limit_reached: 10000 transactions are open"


def test_a_commit_waits_for_the_puts_that_a_pipelining_client_sent_before(broker: Broker) -> None:
    """What was refused is not part of it; who ends it twice is told so."""
    said = (
        "transaction TX:s:1 s BEGIN 1\r\nput t 0 1 0 -1 TX:s:1 2\r\na"
        "put t 9 1 0 -1 TX:s:1 3\r\nbtransaction TX:s:1 s COMMIT_ONE_PHASE 4\r\n"
    )
    assert broker.client().pipelined(said) == [200, 200, 500, 200]
    assert ends(broker) == [1, 0]
    assert broker.client().pipelined(said + "put t 0 1 0 -1 TX:s:1 5\r\nc") == [200, 500, 200, 500, 200]
    assert ends(broker) == [2, 0], "a put behind the commit is none of it"
    twice = broker.client().pipelined(said + "transaction TX:s:1 s COMMIT_ONE_PHASE 5\r\n")
    assert sorted(twice) == [200, 200, 200, 500, 500]
    assert ends(broker) == [3, 0]
    assert sorted(broker.client().pipelined(said + "transaction TX:s:1 s ROLLBACK 5\r\n")) == [200, 200, 200, 500, 500]
    assert ends(broker) == [3, 0]


@pytest.mark.parametrize("key", ["TX:s:1", "XID:1:0aff:bb01:tm"])
def test_a_commit_that_nobody_could_do_may_be_asked_again(broker: Broker, key: str) -> None:
    broker.say(f"transaction {key} s BEGIN 1\r\nput t 0 1 0 -1 {key} 1\r\na")
    for error, word in ((ErrorWord.NO_LEADER, b"503"), (ErrorWord.OVERLOADED, b"503")):
        [ask] = broker.session.session.receive(f"transaction {key} s COMMIT_ONE_PHASE 1\r\n".encode())
        assert isinstance(ask, Ask)
        made = broker.session.session.answered(ask.request, Reply(action=0, code=-1, error=error), ask.note)
        assert isinstance(made, bytes)
        assert made.split()[1] == word
    assert broker.say(f"transaction {key} s COMMIT_ONE_PHASE 1\r\n") == result(200, "")
    assert ends(broker) == [1, 0]
    assert broker.facts.metaq.worker.staging.held == 0


def test_a_branch_of_whose_prepare_nobody_knows_is_in_the_log_or_not(broker: Broker) -> None:
    xa(broker, "BEGIN")
    put_in(broker, "a")
    [ask] = broker.session.session.receive(f"transaction {XID} s PREPARE 1\r\n".encode())
    assert isinstance(ask, Ask)
    unknown = Reply(action=0, code=-1, error=ErrorWord.UNKNOWN_OUTCOME)
    assert bytes(broker.session.session.answered(ask.request, unknown, ask.note)).startswith(b"result 500")  # type: ignore[arg-type]
    assert broker.facts.metaq.worker.staging.held == 0
    assert xa(broker, "COMMIT_TWO_PHASE") == result(500, UNKNOWN_XID)


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
    said = f"transaction {XID} s BEGIN 1\r\nput t 0 1 0 -1 {XID} 2\r\na"
    session = broker.client()
    session.say(said)
    behind = f"put t 0 1 0 -1 {XID} 4\r\nbtransaction {XID} s ROLLBACK 5\r\n"
    assert session.pipelined(f"transaction {XID} s PREPARE 3\r\n{behind}") == [500, 200, 200]
    assert broker.state.topics.prepared.by_key == {}
    whole = f"{said}transaction {XID} s PREPARE 3\r\n{behind}"
    assert sorted(session.pipelined(whole)) == [200, 200, 200, 500, 500], "rolled back, and then not prepared"
    assert broker.state.topics.prepared.by_key == {}
    assert broker.facts.metaq.worker.staging.held == 0
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
