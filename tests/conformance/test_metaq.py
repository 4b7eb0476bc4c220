"""MetaQ's protocol on real nodes, over real sockets."""

import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.metaq_wire import Metaq, MetaqError, messages_in
from quorate import Client, RefusedError
from quorate.shards import shard_of_queue
from tests.cluster import Cluster, wait_for
from tests.conftest import StartNode
from tests.faults.security import TOKENS, Authority, access_file
from tests.node import Node, free_port, free_ports

MIB = 1 << 20


def listening(**more: Any) -> dict[str, Any]:
    """A listener's configuration."""
    return {"protocol": "metaq", "host": "127.0.0.1", "port": free_port(), **more}


def port_of(node: Node, shard: int = 0) -> int:
    return int(node.config["listeners"][0]["port"]) + shard


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node(
        listeners=[listening()], max_data_bytes=4 * MIB, max_request_bytes=5 * MIB, journal_segment_bytes=32 * MIB
    )


@pytest.fixture
def metaq(node: Node) -> Iterator[Metaq]:
    with Metaq(port_of(node)) as client:
        yield client


def fails(metaq: Metaq, command: str, body: bytes = b"") -> tuple[int, str]:
    answer = metaq.ask(command, body)
    return answer.code, answer.text


def test_one_topic_is_used_from_json_and_from_metaq_at_once(node: Node, metaq: Metaq) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=2)
        msg_id, partition, position = metaq.put("t", "grüße".encode(), 1)
        assert (partition, position) == (1, 0)
        appended = client.append("t", {"n": 1}, partition=1, attribute="paid", key="k")
        client.append("t", b"\xff\x00", partition=1)
        metaq.put("t", b"\0\0\0\3blueSky", 1, flag=5)
        got = metaq.get("t", 1, 0)
        assert [one.payload for one in got] == [
            "grüße".encode(),
            b'\0\0\0\4paid{"n":1}',
            b"\xff\x00",
            b"\0\0\0\3blueSky",
        ]
        assert [one.flag for one in got] == [0, 1, 0, 5]
        assert [one.msg_id for one in got[:2]] == [msg_id, appended.msg_id]
        read = client.read_part("t", 1).messages
        assert [one.data for one in read] == ["grüße".encode(), {"n": 1}, b"\xff\x00", b"eSky"]
        assert [one.attribute for one in read] == [None, "paid", None, "blu"]
        assert [one.position for one in read] == [one.position for one in got]
        assert read[3].flag == 4, "bit 0 says that there is an attribute"
        with client.read("t", group="both", start="earliest") as messages:
            assert next(iter(messages)).msg_id == msg_id


@pytest.mark.parametrize("size", [MIB, 4 * MIB])
def test_a_message_of_the_greatest_size_is_read_to_its_end(node: Node, metaq: Metaq, size: int) -> None:
    """As clients do that got no whole message: with twice the size, until there is one."""
    payload = bytes(range(256)) * (size // 256)
    with node.client() as client:
        client.create_topic("t", partitions=1)
        metaq.put("t", payload, 0)
        metaq.put("t", b"behind", 0)
        asked, got = 512 << 10, metaq.get("t", 0, 0, 512 << 10)
        while not got:
            asked *= 2
            got = metaq.get("t", 0, 0, asked)
        assert got[0].payload == payload
        assert metaq.get("t", 0, 20 + size)[0].payload == b"behind"
        detail = fails(metaq, f"put t 0 {4 * MIB + 1} 0", bytes(4 * MIB + 1))
        assert detail[0] == 500
        assert detail[1].endswith(f"too_large: data: {4 * MIB + 1} bytes, and {4 * MIB} are allowed")


def test_a_body_that_is_announced_too_large_ends_the_connection(node: Node, metaq: Metaq) -> None:
    metaq.send(b"version 1\r\nput t 0 7000000 0 2\r\n")
    assert metaq.answer().opaque == 1
    with pytest.raises(ConnectionError):
        metaq.answer()


def test_all_that_is_kept_can_be_read_from_blocks_in_pieces_of_any_size(node: Node, metaq: Metaq) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=1)
        texts = [f"{number:06}" * (1 + number % 40) for number in range(2000)]
        for begin in range(0, 2000, 500):
            client.append_many("t", texts[begin : begin + 500], partition=0)
        for size in (1000, 33_333, MIB):
            position, found = 0, []
            while True:
                answer = metaq.ask(f"get t g 0 {position} {size}")
                if answer.code == 404:
                    break
                assert answer.code == 0
                assert len(answer.data) <= size
                got = messages_in(answer.data, position)
                found += [one.payload.decode() for one in got]
                position = got[-1].position + 20 + len(got[-1].payload)
            assert found == texts
        assert metaq.offset("t", 0, position // 2) <= position // 2
        client.trim_topic("t", partition=0, before=1000)
        begins = metaq.offset("t", 0, 0)
        assert fails(metaq, "get t g 0 0 1000") == (301, str(begins))
        assert metaq.get("t", 0, 0)[0].payload.decode() == texts[1000]


def test_replies_leave_when_they_are_there(metaq: Metaq) -> None:
    metaq.send(b"".join(b"stats topics %d\r\nversion %d\r\n" % (one, one + 1) for one in range(0, 40, 2)))
    assert sorted(metaq.answer().opaque for _ in range(40)) == [*range(40)]


def test_what_is_open_is_answered_when_the_client_has_said_its_last_word(node: Node) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=1)
    with Metaq(port_of(node)) as metaq:
        metaq.send(b"put t 0 2 0 1\r\nhiquit\r\n")
        assert metaq.answer().code == 200
        with pytest.raises(ConnectionError):
            metaq.answer()


def test_local_transactions(node: Node, metaq: Metaq) -> None:
    with node.client() as client, Metaq(port_of(node)) as other:
        client.create_topic("t", partitions=2)
        metaq.transaction("TX:a:1", "BEGIN", "30")
        assert metaq.put("t", b"one", 0, transaction="TX:a:1")[1:] == [0, -1]
        metaq.put("t", b"two", 1, transaction="TX:a:1")
        assert [row.next for row in client.topic("t").partitions] == [0, 0]
        with pytest.raises(MetaqError, match="has not been started"):
            other.put("t", b"three", 0, transaction="TX:a:1")
        metaq.transaction("TX:a:1", "COMMIT_ONE_PHASE")
        assert [one.payload for part in (0, 1) for one in metaq.get("t", part, 0)] == [b"one", b"two"]
        other.transaction("TX:b:1", "BEGIN")
        other.put("t", b"never", 0, transaction="TX:b:1")
        other.close()
        time.sleep(0.1)
        assert len(metaq.get("t", 0, 0)) == 1


def test_shards_have_ports_of_their_own_and_a_topic_is_at_its_shards(start_node: StartNode) -> None:
    node = start_node(shards=2, listeners=[{**listening(auto_create=True), "port": free_ports(2)}])
    name = next(f"t{number}" for number in range(9) if shard_of_queue(f"t{number}", 2) == 1)
    with Metaq(port_of(node, 0)) as first, Metaq(port_of(node, 1)) as second:
        assert "The server do not accept topic" in fails(first, f"put {name} 0 2 0", b"hi")[1]
        assert second.put(name, b"hi", 0)[1:] == [0, 0], "it was made"
        assert fails(first, f"get {name} g 0 0 100")[0] == 404
        assert [first.done("stats ").split("broker_id ")[1][0], second.done("stats ").split("broker_id ")[1][0]] == [
            "0",
            "1",
        ]
        assert "topics 0\r\n" in first.done("stats ")
        assert f"{name} partitions 1 message_count 1" in second.done("stats topics")


def test_tls(start_node: StartNode, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    node = start_node(listeners=[listening(tls=True)], tls_cert=str(authority.issue("127.0.0.1")))
    context = ssl.create_default_context(cafile=authority.ca)
    with (
        socket.create_connection(("127.0.0.1", port_of(node)), 5) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as sock,
    ):
        sock.sendall(b"version 5\r\n")
        assert sock.recv(100).startswith(b"result 200")


def test_clients_may_what_anonymous_may(start_node: StartNode, tmp_path: Path) -> None:
    """MetaQ has no log-in: an access file names what those without one may do."""
    rights = ["produce:open*", "consume:open*", "manage:made*", "produce:made*"]
    access = access_file(tmp_path, anonymous=rights, operator=["manage"])
    node = start_node(listeners=[listening(auto_create=True)], access_file=str(access))
    with Client("127.0.0.1", node.port, token=TOKENS["operator"]) as client:
        client.create_topic("open.t", partitions=1)
        client.create_topic("shut", partitions=1)
    with Metaq(port_of(node)) as metaq:
        metaq.put("open.t", b"hi", 0)
        assert len(metaq.get("open.t", 0, 0)) == 1
        metaq.put("made.t", b"hi", 0)
        assert fails(metaq, "put shut 0 2 0", b"hi")[1].endswith(
            "not_allowed: the right produce for what the request names is missing"
        )
        assert fails(metaq, "put open.u 0 2 0", b"hi")[1].endswith(
            "not_allowed: the right manage for what the request names is missing"
        )
        for command in ("get shut g 0 0 100", "offset shut g 0 0"):
            assert fails(metaq, command) == (
                500,
                "not_allowed: the right consume for what the request names is missing",
            )
        metaq.transaction("TX:a:1", "BEGIN")
        assert "not_allowed" in fails(metaq, "put shut 0 2 0 -1 TX:a:1", b"hi")[1]
        assert fails(metaq, "stats topics")[0] == 500


@pytest.mark.parametrize(
    ("listener", "fault"),
    [
        ({"auto_create": 1}, "auto_create is true or false"),
        ({"auto_create_partitions": 0}, "auto_create_partitions is 0: from 1 to 1024 are wanted"),
        ({"zookeeper": "nowhere"}, "zookeeper is 'nowhere': host:port is wanted"),
        ({"zookeeper": "h:1", "zookeeper_root": "meta"}, "zookeeper_root is 'meta': a path like /meta is wanted"),
        ({"other": 1}, "entry 0 is not an object with"),
        ({"port": 65_535}, "entry 0 has no 2 ports from 65535 on"),
    ],
)
def test_a_listener_that_can_not_be_is_told(tmp_path: Path, listener: dict[str, Any], fault: str) -> None:
    node = Node(tmp_path, {"shards": 2, "listeners": [{**listening(), **listener}]})
    said = node.try_start()
    assert fault in said + node.log, json.dumps(node.config["listeners"])


def test_a_follower_forwards_puts_offsets_and_transactions_and_answers_gets_itself(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3, {})
    for one in cluster.nodes.values():
        one.config["listeners"] = [listening(auto_create=True)]
    cluster.start()
    try:
        follower = cluster.followers()[0]
        with Metaq(port_of(follower)) as metaq, Metaq(port_of(cluster.leader())) as leading:
            for number in range(20):
                assert metaq.put("t", b"%d" % number, 0)[2] == leading.offset("t", 0, 1 << 40) - 20 - len(str(number))
                assert metaq.offset("t", 0, 1 << 40) == leading.offset("t", 0, 1 << 40)
            metaq.transaction("TX:a:1", "BEGIN")
            metaq.put("t", b"in one", 0, transaction="TX:a:1")
            metaq.transaction("TX:a:1", "COMMIT_TWO_PHASE")
            assert leading.get("t", 0, 0)[-1].payload == b"in one"
            assert wait_for(lambda: len(metaq.get("t", 0, 0)) == 21)
            assert "slave true" in metaq.done("stats ")
            assert "slave false" in leading.done("stats ")
    finally:
        cluster.kill()


def test_a_topic_that_is_closed_says_so_to_both(node: Node, metaq: Metaq) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=1)
        metaq.put("t", b"hi", 0)
        client.configure_topic("t", closed=[0])
        assert fails(metaq, "get t g 0 0 100") == (403, "Partition[0-0] has been closed")
        with pytest.raises(RefusedError, match="closed"):
            client.append("t", 1)


def test_the_example_of_the_documents_runs(start_node: StartNode, capfd: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "metaq.md").read_text()
    [program] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    node = start_node(listeners=[listening(auto_create=True)])
    exec(program.replace("8123", str(port_of(node))), {})
    put, got = capfd.readouterr().out.splitlines()
    assert put.startswith("([b'result', b'200'], b'")
    assert got.endswith("hello')")
