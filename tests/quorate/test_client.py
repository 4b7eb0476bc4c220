"""The client library against a real node, and against one that goes away."""

import json
import pickle
import socket
import threading
import time
from typing import Any

import pytest

from quorate import (
    Client,
    ConnectionFailedError,
    DuplicateKeyError,
    Key,
    Message,
    NewMessage,
    NotInFlightError,
    ProtocolViolationError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
)
from quorate.credentials import Credentials
from quorate.lost import Lost
from quorate.nodes import Nodes
from quorate.protocol import Action, ErrorWord
from quorate.trying import ALWAYS, Trying
from tests.cluster import wait_for
from tests.conftest import StartNode


def test_a_message_goes_through(start_node: StartNode) -> None:
    node = start_node()
    with Client("127.0.0.1", node.port) as client:
        msg_id = client.produce("mail", {"to": "ada"}, delay=0.05, retry=60, priority=3, key="k")
        assert client.consume("mail") is None
        message = client.consume(["other", "mail"], wait=5)
        assert message is not None
        assert (message.msg_id, message.queue, message.data, message.deliveries) == (msg_id, "mail", {"to": "ada"}, 1)
        client.extend(message, 100)
        client.release(message)
        again = client.consume("mail")
        assert again is not None
        assert again.deliveries == 2
        assert client.confirm(again) == 1
        assert client.confirm(again) == 0
        ids = client.produce_many("mail", [1, 2, 3], retry=60)
        assert [m.data for m in client.consume_many("mail", 10)] == [1, 2, 3]
        assert client.confirm(ids) == 3


def test_a_refusal_carries_its_word_and_its_reason(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        client.produce("q", "x", key="k")
        with pytest.raises(RefusedError, match="has the key 'k'") as caught:
            client.produce("q", "y", key="k")
        assert caught.value.error == "duplicate_key"


def test_a_client_comes_back_by_itself_after_a_restart(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        msg_id = client.produce("q", "x", key="k", retry=5)
        node.kill()
        node.start()
        assert client.show(msg_id).data == "x", "what only looks is repeated"
        node.kill()
        node.start()
        assert client.consume("q") is not None, "the node closed the connection before anything was asked"


class FakeNode:
    """Answers each connection with the next of some scripts: bytes to send when a request has come, then closes."""

    def __init__(self, scripts: list[bytes]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.requests: list[bytes] = []
        self._scripts = scripts
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self._listener:
            for script in self._scripts:
                connection, _ = self._listener.accept()
                with connection:
                    self.requests.append(request := connection.recv(65536))
                    seq = json.loads(request)["seq"]
                    connection.sendall(script.replace(b"{", b'{"seq":%d,' % seq, 1))


def test_a_produce_with_a_key_is_repeated_and_its_duplicate_taken_for_success() -> None:
    refused = b'{"action":1,"code":-1,"error":"duplicate_key","reason":"there","msg_id":1024}\n'
    ours = b'{"action":12,"code":0,"message":{"msg_id":1024,"data":"x"}}\n'
    gone = b'{"action":12,"code":-1,"error":"no_such_message","reason":"confirmed since"}\n'
    for held in (ours, gone):
        fake = FakeNode([b"", refused, held])
        with Client("127.0.0.1", fake.port) as client:
            assert client.produce("q", "x", key="k") == 1024
        assert len(fake.requests) == 3


def test_a_key_that_another_produce_holds_is_no_success() -> None:
    refused = b'{"action":1,"code":-1,"error":"duplicate_key","reason":"there","msg_id":1024}\n'
    others = b'{"action":12,"code":0,"message":{"msg_id":1024,"data":"of somebody else"}}\n'
    fake = FakeNode([b"", refused, others])
    with Client("127.0.0.1", fake.port) as client, pytest.raises(RefusedError, match="duplicate_key"):
        client.produce("q", "x", key="k")


def test_a_produce_without_a_key_is_not_repeated() -> None:
    fake = FakeNode([b"", b'{"code":0,"msg_id":1}\n'])
    with Client("127.0.0.1", fake.port) as client, pytest.raises(ConnectionFailedError) as caught:
        client.produce("q", "x")
    assert caught.value.outcome_unknown
    assert len(fake.requests) == 1


def test_what_is_no_reply_is_told() -> None:
    fake = FakeNode([b"HTTP/1.1 400 Bad Request\n"])
    with Client("127.0.0.1", fake.port) as client, pytest.raises(ProtocolViolationError):
        client.status()


def test_an_unknown_outcome_has_one_shape() -> None:
    for script in (b"", b'{"action":1,"code":-1,"error":"unknown_outcome","reason":"who knows"}\n'):
        fake = FakeNode([script])
        with Client("127.0.0.1", fake.port) as client, pytest.raises(UnknownOutcomeError) as caught:
            client.produce("q", "x")
        assert caught.value.outcome_unknown


@pytest.mark.parametrize(
    ("left_s", "elsewhere", "counted"), [(60.0, 0, 2), (60.0, 1, 1), (3.0, 0, None), (-1.0, 0, None), (3.0, 2, 0)]
)
def test_a_repeated_confirm_says_whose_it_was_where_that_can_be_known(
    left_s: float, elsewhere: int, counted: int | None
) -> None:
    """It said True to two consumers: of what is gone nobody knows who confirmed it, once its lease may be over."""
    fake = FakeNode([b"", b'{"action":3,"code":0,"confirmed":0,"elsewhere":%d}\n' % elsewhere])
    due_at = time.time() + left_s
    held = [Message(msg_id, "q", None, 1, due_at=due_at, retry=60.0) for msg_id in (1024, 2048)]
    with Client("127.0.0.1", fake.port) as client:
        if counted is None:
            with pytest.raises(UnknownOutcomeError):
                client.confirm(held)
        else:
            assert client.confirm(held) == counted


def test_whose_it_was_is_not_known_of_an_id() -> None:
    fake = FakeNode([b"", b'{"action":3,"code":0,"confirmed":0}\n'])
    with Client("127.0.0.1", fake.port) as client, pytest.raises(UnknownOutcomeError, match="gone"):
        client.confirm(1024)


KEYED = {"queue": "q", "key": "k", "data": 1}
WORDS = [value for name, value in vars(ErrorWord).items() if name.isupper()]


@pytest.mark.parametrize("was_lost", [True, False])
@pytest.mark.parametrize("word", WORDS)
def test_what_may_have_been_done_is_never_said_to_be_refused(word: str, was_lost: bool) -> None:
    """The second of two tries was refused, and the first had been done."""
    for action, body in (
        (Action.PRODUCE, KEYED),
        (Action.CONFIRM, {"msg_id": 1024}),
        (Action.CONFIGURE, {"queue": "q"}),
    ):
        trying = Trying(action, body, Nodes([("h", 1)]), 1.0, now=0.0)
        if was_lost:
            trying.lost(0.1, Lost("gone", was_sent=True))
        else:
            assert trying.replied(0.1, {"code": -1, "error": "unknown_outcome"}) is not None
        reply = {"code": -1, "error": word, "reason": "why"}
        trying.replied(0.99, reply)
        is_certain = word in ALWAYS or word == ErrorWord.DUPLICATE_KEY
        is_hidden = action == Action.PRODUCE and word == ErrorWord.DUPLICATE_KEY  # by whom it is held is not said
        with pytest.raises(RefusedError if is_certain and not is_hidden else UnknownOutcomeError):
            trying.ended(reply)


def test_of_what_changes_nothing_no_outcome_is_unknown() -> None:
    """While nobody led, lists and looks ended in "unknown outcome"."""
    no_leader = {"code": -1, "error": "no_leader", "reason": "why"}
    for refusal, raises in ((None, ConnectionFailedError), (no_leader, UnavailableError)):
        trying = Trying(Action.LIST, {}, Nodes([("h", 1)]), 10.0, now=0.0)
        if refusal is not None:
            assert trying.replied(1.0, refusal) is not None
        trying.lost(2.0, Lost("gone", was_sent=True))
        with pytest.raises(raises) as caught:
            trying.lost(10.0, Lost("no answer in time", was_sent=True))
        assert not isinstance(caught.value, UnknownOutcomeError)
    with pytest.raises(ConnectionFailedError) as caught:
        Trying(Action.LIST, {}, Nodes([("h", 1)]), 10.0, now=0.0).ended({"code": -1, "error": "unknown_outcome"})
    assert not isinstance(caught.value, UnknownOutcomeError)


@pytest.mark.parametrize("timeout_s", [0.3, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 30.0])
@pytest.mark.parametrize("by_itself_s", [0.0, 0.5, 4.0])
def test_while_nobody_leads_every_try_has_time_to_be_answered(timeout_s: float, by_itself_s: float) -> None:
    """The last of them was held for 4 ms by its node, and lost: 18 of 66 were told "unknown outcome"."""
    trying = Trying(Action.PRODUCE, {"queue": "q", "data": 1}, Nodes([("h", 1)]), timeout_s, now=0.0)
    reply = {"code": -1, "error": "no_leader", "reason": "why"}
    now = 0.0
    while True:
        body, left_s, _ = trying.next(now)
        held_s = min(by_itself_s, body.get("patience", 4.0))
        assert left_s - held_s >= min(0.5, timeout_s / 6) - 0.001
        now += held_s + 0.002
        pause_s = trying.replied(now, reply)
        if pause_s is None:
            break
        now += pause_s
    assert timeout_s / 2 <= now <= timeout_s
    with pytest.raises(UnavailableError):
        trying.ended(reply)


@pytest.mark.parametrize("data", [b"\x00\xff", b"plain", b"", None, {"a": [1, 2.5, None, True]}, "text", 2**60, []])
def test_data_come_back_as_they_went(start_node: StartNode, data: object) -> None:
    with start_node().client() as client:
        client.produce("q", data)
        message = client.consume("q")
        assert message is not None
        assert message.data == data
        assert type(message.data) is type(data)


@pytest.mark.parametrize("data", [{1: 2}, {"a": {"b": b"x"}}, {1: {2}}, object()])
def test_what_would_not_come_back_is_refused_before_it_is_sent(data: object) -> None:
    with pytest.raises(TypeError):
        Client("127.0.0.1", 1).produce("q", data)
    with pytest.raises(ValueError, match="JSON can't say"):
        Client("127.0.0.1", 1).produce("q", {"a": [float("nan")]})


def test_messages_of_one_request_have_options_of_their_own(start_node: StartNode) -> None:
    with start_node().client() as client:
        ids = client.produce_many("q", ["low", NewMessage(b"high", priority=9, key="k")], retry=60)
        assert [m.data for m in client.consume_many("q", 2)] == [b"high", "low"]
        assert client.show(queue="q", key="k").msg_id == ids[1]
        with pytest.raises(ValueError, match="1001 messages"):
            client.produce_many("q", list(range(1001)))


def test_a_consumer_that_waits_holds_up_no_other_thread(start_node: StartNode) -> None:
    with start_node().client() as client:
        found: list[object] = []
        waiting = threading.Thread(target=lambda: found.append(client.consume("later", wait=30)))
        waiting.start()
        for number in range(20):
            client.produce("other", number)
        assert not found
        client.produce("later", "x")
        waiting.join()
        assert isinstance(found[0], Message)


def test_a_consumer_waits_on_over_a_restart_of_its_only_node(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client, node.client() as other:
        found: list[object] = []
        waiting = threading.Thread(target=lambda: found.append(client.consume("q", wait=30)))
        waiting.start()
        wait_for(lambda: other.status()["shards"][0]["waiting_consumers"] == 1)
        node.stop()
        node.start()
        other.produce("q", "after the restart")
        waiting.join()
        assert isinstance(found[0], Message)


def test_nodes_are_named_in_any_usual_way() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Client(nodes=[])
    with pytest.raises(ValueError, match="HOST:PORT"):
        Client(nodes=["localhost:no"])
    Client(nodes=["[::1]:1111", ("127.0.0.1", 1112), "localhost"])


def test_what_a_node_says_to_an_idle_connection_answers_no_request(start_node: StartNode) -> None:
    node = start_node(idle_timeout_s=0.2)
    with node.client() as client:
        client.produce("q", 1)
        time.sleep(2.5)
        assert client.produce("q", 2) > 0


@pytest.mark.parametrize(
    ("shown", "raises"),
    [
        (RefusedError("no_such_message", "why", {}), None),
        (RefusedError("not_allowed", "why", {}), UnknownOutcomeError),
        (RefusedError("no_such_queue", "why", {}), UnknownOutcomeError),
        (ConnectionFailedError("away"), DuplicateKeyError),
        ({"message": {"msg_id": 1024, "data": 1}}, None),
        ({"message": {"msg_id": 1024, "data": 2}}, DuplicateKeyError),
        ({"message": {"msg_id": 2048, "data": 2}}, None),
    ],
)
def test_whose_key_it_is_is_not_guessed_where_it_can_not_be_seen(shown: Any, raises: type[Exception] | None) -> None:
    """A key that another message has by now was this one's before, when the request was repeated."""
    trying = Trying(1, {"queue": "q", "key": "k", "data": 1}, Nodes([("h", 1)]), 1.0, now=0.0)
    reply = {"code": -1, "error": "duplicate_key", "reason": "taken", "msg_id": 1024}
    if raises is None:
        assert trying.of_holder(reply, shown) == {**reply, "code": 0}
    else:
        with pytest.raises(raises):
            trying.of_holder(reply, shown)


def test_where_nobody_led_the_last_try_is_answered_before_its_time_is_over() -> None:
    """It was held by its node for longer than there was time, and what a user heard was "no answer in time"."""
    trying = Trying(1, {"queue": "q", "data": 1}, Nodes([("h", 1)]), 10.0, now=0.0)
    no_leader = {"code": -1, "error": "no_leader", "reason": "why"}
    assert trying.next(0.0) == ({"queue": "q", "data": 1}, 10.0, 0.0)
    assert trying.replied(4.0, no_leader) is not None
    assert "patience" not in trying.next(4.0)[0], "the node gives up soon enough by itself"
    assert trying.replied(8.0, no_leader) is not None
    assert trying.next(8.0) == ({"queue": "q", "data": 1, "patience": 1.5}, 2.0, 0.0)
    assert trying.replied(9.5, no_leader) is None, "that is the answer: another try would have no time to be answered"
    assert Trying(1, {}, Nodes([("h", 1)]), 3.0, now=0.0).next(0.0) == ({"patience": 2.5}, 3.0, 0.0), (
        "nor does the first"
    )
    waiting = Trying(2, {"queue": "q", "wait": 1.0, "patience": 7.0}, Nodes([("h", 1)]), 3.0, now=0.0)
    waiting.replied(1.0, no_leader)
    assert waiting.next(2.0)[0]["patience"] == 7.0, "its own"


@pytest.mark.parametrize(
    ("held", "is_ours"),
    [
        ({"queue": "q", "data": 1}, True),
        ({"queue": "other", "data": 1}, False),
        ({"queue": "q.dead", "data": 1, "dead": {"queue": "q"}}, True),
        ({"queue": "q", "data": 2}, False),
    ],
)
def test_who_has_a_key_that_is_one_among_all_is_asked_by_it(held: dict[str, Any], is_ours: bool) -> None:
    """It was asked by its queue, where such a key is never found: another's message was taken for this one's."""
    trying = Trying(1, {"queue": "q", "key": "k", "scope": "all", "data": 1}, Nodes([("h", 1)]), 1.0, now=0.0)
    assert trying.holder == {"key": "k", "scope": "all"}
    reply = {"code": -1, "error": "duplicate_key", "reason": "taken", "msg_id": 1024}
    if is_ours:
        assert trying.of_holder(reply, {"message": {"msg_id": 1024, **held}})["code"] == 0
    else:
        with pytest.raises(DuplicateKeyError):
            trying.of_holder(reply, {"message": {"msg_id": 1024, **held}})


def test_keys_that_are_one_among_all(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        client.produce_many("a", [NewMessage(1, key="one", scope="all"), NewMessage(2, key="two")])
        with pytest.raises(DuplicateKeyError):
            client.produce("b", 1, key="one", scope="all")
        client.produce("b", 2, key="two", scope="all")
        assert client.show(key="two").queue == "b"
        with pytest.raises(NotInFlightError) as refused:
            client.confirm(Key("one"), held=True)
        assert (refused.value.reply["state"], refused.value.reply["deliveries"]) == ("ready", 0)
        assert client.consume("a") is not None
        assert client.extend(Key("one"), 90) == 1
        assert client.confirm(Key("one"), held=True) == 1
        assert client.confirm(Key("one")) == 0


def test_credentials_travel_and_do_not_show_their_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORATE_TOKEN", "from.environment")
    given = Credentials.of("a.token")
    assert given.token == "a.token"
    assert "a.token" not in repr(given)
    assert pickle.loads(pickle.dumps(given)) == given
    assert Credentials.of().token == "from.environment"
    assert Credentials.of(ca="x").has_tls
    with pytest.raises(ConnectionFailedError, match="ca nowhere: can't be used"):
        _ = Credentials.of(ca="nowhere").context


def test_all_messages_of_a_state_are_browsed(start_node: StartNode) -> None:
    with start_node().client() as client:
        ids = client.produce_many("q", list(range(250)))
        later = client.produce("q", "later", delay=100)
        taken = {message.msg_id for message in client.consume_many("q", 120)}
        assert {one.msg_id for one in client.browse("q", "in_flight")} == taken
        assert [one.msg_id for one in client.browse("q", "ready")] == ids[120:]
        assert [one.data for one in client.browse("q", "delayed")] == ["later"]
        assert client.release(later) == 1
        assert not list(client.browse("q", "delayed"))
        with pytest.raises(RefusedError, match="one of ready, delayed, in_flight"):
            list(client.browse("q", "gone"))


def test_dead_letters_are_moved_back_all_at_once(start_node: StartNode) -> None:
    with start_node().client() as client:
        client.configure("q", dead_letter="q.dead")
        for _ in range(2):
            client.produce_many("q", list(range(600)))
            client.bury(client.consume_many("q", 600), "no use")
        client.produce("q.dead", "no dead letter")
        moved = client.move("q.dead")
        assert (moved.moved, moved.stayed) == (1200, 1)
        assert "no dead letter" in str(moved.reason)
        assert client.monitor("q")["ready"] == 1200
        assert client.move("q", "other", count=3, create=True).moved == 3
        assert client.move("q", "other", messages=[]).moved == 0
        with pytest.raises(RefusedError, match="no_such_queue"):
            client.move("q", "none")


def test_a_client_with_another_limit_has_the_same_connections(start_node: StartNode) -> None:
    node = start_node()
    with node.client(timeout=20.0) as client:
        brief = client.within(0.5)
        client.produce("q", 1)
        assert brief.consume("q") is not None
        assert client.metrics()["shards"][0]["connections"] == 1
        with pytest.raises(ValueError, match="timeout"):
            client.within(0)
    silent = socket.create_server(("127.0.0.1", 0))
    with Client("127.0.0.1", silent.getsockname()[1], timeout=20.0) as client:
        begun = time.monotonic()
        with pytest.raises(ConnectionFailedError):
            client.within(0.5).queues()
        assert time.monotonic() < begun + 5
    silent.close()
