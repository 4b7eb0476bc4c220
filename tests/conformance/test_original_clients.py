"""A real node, spoken to over real sockets as the original's clients do: no newline, one read, absolute seconds."""

import contextlib
import json
import select
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from quorate import Client, RefusedError
from tests.cluster import Cluster, wait_for
from tests.conftest import StartNode
from tests.node import Node, free_port


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


def exchange(sock: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    """Send without a newline; read once: that is a whole JSON object."""
    sock.sendall(json.dumps(request, separators=(",", ":")).encode())
    reply = json.loads(sock.recv(65536))
    assert isinstance(reply, dict)
    return reply


def test_produce_consume_confirm_over_tcp_with_absolute_times(node: Node) -> None:
    now = int(time.time())
    with node.connect() as sock:
        produced = exchange(
            sock, {"action": 1, "queue": "q", "delay": now, "ttl": now + 60, "retry": 5, "data": "hällo", "seq": 1}
        )
        assert (produced["code"], produced["action"], produced["queue"], produced["seq"]) == (0, 1, "q", 1)
        consumed = exchange(sock, {"action": 2, "queue": "q", "seq": 2})
        assert (consumed["data"], consumed["msg_id"]) == ("hällo", produced["msg_id"])
        assert exchange(sock, {"action": 3, "queue": "q", "msg_id": consumed["msg_id"]})["code"] == 0
        empty = exchange(sock, {"action": 2, "queue": "q"})
        assert empty["code"] == 0
        assert "msg_id" not in empty


def test_the_same_over_udp(node: Node) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.connect(("127.0.0.1", node.port))
        msg_id = exchange(sock, {"action": 1, "queue": "q", "data": 1, "seq": "a"})["msg_id"]
        consumed = exchange(sock, {"action": 2, "queue": "q", "seq": "b"})
        assert (consumed["msg_id"], consumed["seq"]) == (msg_id, "b")
        sock.send(b"garbage")
        assert json.loads(sock.recv(65536))["error"] == "bad_json"


def test_a_message_too_large_for_a_datagram_is_not_lost_to_it(node: Node) -> None:
    with node.client() as client, socket.socket(type=socket.SOCK_DGRAM) as sock:
        client.produce("big", "x" * 100_000)
        sock.settimeout(10)
        sock.connect(("127.0.0.1", node.port))
        assert exchange(sock, {"action": 2, "queue": "big"})["error"] == "too_large"
        message = client.consume("big")
        assert message is not None
        assert len(message.data) == 100_000


def test_objects_may_follow_each_other_in_any_way(node: Node) -> None:
    with node.connect() as sock:
        stream = b'{"action":7}{"action":7}\n\n {"action":7}\r\n{"action":8,"queue":"q"}'
        for at in range(0, len(stream), 3):
            sock.sendall(stream[at : at + 3])
        replies = b""
        while replies.count(b"\n") < 4:
            replies += sock.recv(65536)
    assert [json.loads(line)["action"] for line in replies.splitlines()] == [7, 7, 7, 8]


def test_the_leader_is_named_as_the_original_names_it(node: Node) -> None:
    with node.connect() as sock:
        reply = exchange(sock, {"action": 8, "queue": "q"})
    assert (reply["leader_node_id"], reply["leader_host"], reply["leader_port"]) == (1, "127.0.0.1", node.port)


def test_monitor_has_the_originals_fields(node: Node) -> None:
    with node.client() as client:
        client.produce("q", "x")
    with node.connect() as sock:
        reply = exchange(sock, {"action": 4, "queue": "q"})
    for field in ("size", "max_size", "max_id", "wait_status", "leader_node_id", "node_id", "trans_id", "log_size"):
        assert field in reply


def test_a_long_poll_wakes_when_a_message_comes_and_is_answered_in_vain_otherwise(node: Node) -> None:
    with node.connect() as waiting, node.client() as client:
        waiting.sendall(b'{"action":2,"queue":"q","wait":30}')
        wait_for(lambda: client.status()["shards"][0]["waiting_consumers"] > 0)
        client.produce("q", "now")
        assert json.loads(waiting.recv(65536))["data"] == "now"
        assert "msg_id" not in exchange(waiting, {"action": 2, "queue": "q", "wait": 0.1})


def test_a_consumer_that_closed_its_connection_gets_no_message(node: Node) -> None:
    with node.client() as client:
        for _ in range(3):
            gone = node.connect()
            gone.sendall(b'{"action":2,"queue":"q","wait":30}' * 40)
            wait_for(lambda: client.status()["shards"][0]["waiting_consumers"] > 0)
            gone.close()
            wait_for(lambda: client.status()["shards"][0]["waiting_consumers"] == 0)
        client.produce("q", "kept", retry=0)
        message = client.consume("q")
        assert message is not None
        assert message.data == "kept"


def test_a_virtual_queue_copies_to_its_queues_and_takes_nothing_else(start_node: StartNode) -> None:
    node = start_node(virtual_queue_list={"all": ["a", "b"]})
    with node.connect() as sock:
        reply = exchange(sock, {"action": 1, "queue": "all", "data": "x", "retry": 9})
        assert len(set(reply["msg_ids"])) == 2
        assert reply["msg_id"] == reply["msg_ids"][0]
        for queue in ("a", "b"):
            assert exchange(sock, {"action": 2, "queue": queue})["data"] == "x"
        assert exchange(sock, {"action": 2, "queue": "all"})["error"] == "not_supported"
        assert exchange(sock, {"action": 5, "queue": "a", "dead_letter": "all"})["error"] == "not_supported"
        exchange(sock, {"action": 5, "queue": "b", "max_size": 1})
        refused = exchange(sock, {"action": 1, "queue": "all", "data": "y"})
        assert refused["error"] == "queue_full"
        assert len(refused["msg_ids"]) == 1


def test_the_log_can_be_read_in_order_and_says_what_is_trimmed(start_node: StartNode) -> None:
    node = start_node(queue_log_size=100)
    with node.client() as client:
        for number in range(50):
            client.produce_many("q", [number] * 10)
        last = client.status()["shards"][0]["trans_id"]
        assert last - 500 in (2, 3), "before them: who leads, the members, and who leads once more, by its number"

        def is_trimmed() -> bool:
            shard = client.status()["shards"][0]
            return bool(shard["log_size"] <= 110 and shard["checkpointed"] >= last)

        wait_for(is_trimmed)
        first = client.status()["shards"][0]["first_trans_id"]

        def begins_at() -> int:
            with node.connect() as sock:
                trimmed = exchange(sock, {"action": 14, "after": 0})
            assert trimmed["error"] == "trimmed"
            return int(trimmed["first_trans_id"])

        def is_read_in_order() -> bool:
            """Whether all was read; a trim that is still under way may take what is read next."""
            begins = begins_at()
            assert begins >= first
            after, seen = begins - 1, []
            while after < last:
                try:
                    reply = client.log(after, 37)
                except RefusedError:
                    assert begins_at() > begins
                    return False
                seen += [record["trans_id"] for record in reply["records"]]
                after = reply["last_trans_id"]
            assert seen == list(range(begins, last + 1))
            return True

        wait_for(is_read_in_order)
        record = client.log(last - 1, 1)["records"][0]
        assert (record["kind"], record["queue"], record["data"]) == ("produce", "q", 49)


def test_those_who_do_not_behave_do_not_stop_the_others(start_node: StartNode) -> None:
    node = start_node(max_connections=4, request_timeout_s=1.0)  # and 16 more for those on this machine
    bad_manners = [b"garbage", b'{"action":', b'{"action":7}' * 2000, b'{"action":2,"queue":"w","wait":30}' * 500]
    hogs = [node.connect() for _ in range(19)]
    for number, hog in enumerate(hogs):
        hog.sendall(bad_manners[number % 4])
    with node.client() as client:
        for number in range(100):
            client.produce("q", number)
            assert client.consume("q") is not None
        with node.connect() as surplus:
            assert json.loads(surplus.recv(65536))["error"] == "overloaded"
            assert surplus.recv(1) == b""
    slow = hogs[1]
    reply = json.loads(slow.recv(65536))
    assert reply["error"] == "too_slow"
    for hog in hogs:
        hog.close()


@pytest.mark.parametrize("ago", [0, 1])
def test_a_message_whose_ttl_is_its_delay_is_delivered_once(node: Node, ago: int) -> None:
    """The original's own test sends that: both now, or a second ago by the time it arrives."""
    now = int(time.time()) - ago
    with node.connect() as sock:
        produced = exchange(sock, {"action": 1, "queue": "q", "delay": now, "ttl": now, "data": "x"})
        assert produced["code"] == 0
        assert exchange(sock, {"action": 2, "queue": "q"})["data"] == "x"
        assert "msg_id" not in exchange(sock, {"action": 2, "queue": "q"})


@pytest.mark.parametrize("action", [7, 107])
def test_a_list_holds_objects(node: Node, action: int) -> None:
    with node.client() as client:
        client.produce("test1", "x")
    with node.connect() as sock:
        reply = exchange(sock, {"action": action, "pattern": "test"})
    [row] = reply["queue_list"]
    assert (row["name"], row["size"], row["wait_status"]) == ("test1", 1, 0)
    assert reply["queue_count"] == 1


def test_a_client_that_ends_its_side_is_answered(node: Node) -> None:
    """As `printf ... | nc` does."""
    with node.connect() as sock:
        sock.sendall(b'{"action":1,"queue":"q","data":"x","retry":9}{"action":2,"queue":"none","wait":60}')
        sock.shutdown(socket.SHUT_WR)
        replies = b"".join(iter(lambda: sock.recv(65536), b""))
    assert [json.loads(line)["code"] for line in replies.splitlines()] == [0, 0]


def test_a_request_that_is_too_large_is_refused_however_much_comes_behind_it(node: Node) -> None:
    with node.client() as client, pytest.raises(RefusedError) as caught:
        client.produce("q", "x" * 40_000_000)
    assert caught.value.error == "too_large"


def test_many_long_replies_at_once_do_not_fill_the_memory(node: Node) -> None:
    with node.client(30) as client:
        msg_id = client.produce("q", "x" * 900_000, retry=60)
        before = client.status()["resident_bytes"]
        with node.connect() as sock:
            for _ in range(20):
                sock.sendall(b'{"action":12,"msg_id":%d}' % msg_id * 6)
            time.sleep(0.5)
            grown = client.status()["resident_bytes"] - before
    assert grown < 60 << 20, "120 replies of 900 kB were asked for and none was read"


def test_unfinished_requests_of_all_clients_together_are_bounded(start_node: StartNode) -> None:
    node = start_node(max_partial_bytes=2 << 20)
    with node.client() as client, contextlib.ExitStack() as stack:
        hogs = [stack.enter_context(node.connect()) for _ in range(6)]
        part = b'{"action":1,"queue":"q","data":"' + b"x" * 500_000
        for hog in hogs:
            hog.sendall(part)
        refused, _, _ = select.select(hogs, [], [], 10)
        assert b"overloaded" in refused[0].recv(65536)
        assert client.produce("q", 1) > 0
    wait_for(lambda: node.log.count("clients' requests and replies take") == 1)


def test_consumers_that_wait_for_datagrams_are_few(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client, socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.connect(("127.0.0.1", node.port))
        for _ in range(70):
            sock.send(b'{"action":2,"queue":"q","wait":600}')
        assert json.loads(sock.recv(65536))["error"] == "overloaded"
        assert client.status()["shards"][0]["waiting_consumers"] == 64
        assert client.consume("q", wait=0.1) is None, "those who wait over TCP are not kept out"


def test_another_port_serves_clients_too(start_node: StartNode) -> None:
    port = free_port()
    node = start_node(listeners=[{"protocol": "json", "host": "127.0.0.1", "port": port}])
    with Client("127.0.0.1", port) as client:
        client.produce("q", b"\x00\xff", retry=5)
    with node.client() as client:
        message = client.consume("q")
        assert message is not None
        assert message.data == b"\x00\xff"


@pytest.mark.parametrize("forwards", [0, 1])
def test_the_first_second_of_a_cluster_as_the_originals_configuration_has_it(tmp_path: Path, forwards: int) -> None:
    """Held until it is known who leads and where, then forwarded or redirected with an address."""
    cluster = Cluster(tmp_path, 3, {"forward_request": forwards, "queue_data_blocks": 128})
    try:
        for node in cluster.nodes.values():
            node.start()
        replies = []
        for node in cluster.nodes.values():
            with node.connect() as sock:
                replies += [exchange(sock, {"action": 1, "queue": "q", "data": n}) for n in range(5)]
        for reply in replies:
            assert reply["code"] == 0 or (reply["code"] == -2 and reply["leader_port"] > 0), reply
        assert forwards == 0 or all(reply["code"] == 0 for reply in replies)
        assert "queue_data_blocks is not used here" in cluster.nodes[1].log
    finally:
        cluster.kill()
