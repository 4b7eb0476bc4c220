"""qctl topic and qctl group, run as a user runs them."""

import json
import subprocess

import pytest

from bench.metaq_wire import Metaq
from cli.quantities import seconds, size, start
from tests.cli.test_qctl import QCTL, qctl
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.node import Node, free_port


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


def test_a_topic_from_its_beginning_to_its_end(node: Node) -> None:
    def topic(*words: object, code: int = 0, text: str = "") -> str:
        return qctl("topic", *words, "--port", node.port, code=code, text=text)

    made = topic("create", "orders", "--partitions", 2, "--keep", "7d", "--keep-bytes", "1GB").splitlines()
    assert made[1].split() == ["orders", "2", "7d", "1000000000", "no", "10737418240"]
    assert "with other settings" in topic("create", "orders", "--partitions", 3, code=1)
    assert topic("append", "orders", "tea", "--key", "42", "-H", "a: b").strip() == "0:0"
    assert topic("append", "orders", '{"n": 1}', "--parse", "--partition", 1).strip() == "1:0"
    assert topic("append", "orders", "--lines", "--partition", 1, text="one\ntwo\n") == "2 messages appended\n"
    assert topic("append", "orders", "-", "--partition", 1, text="from\nstdin").strip() == "1:3"
    assert "--lines takes" in topic("append", "orders", "x", "--lines", code=1)
    assert topic("ls").splitlines()[1].split()[:3] == ["orders", "2", "5"]
    assert json.loads(topic("ls", "--pattern", "ord*", "--json"))["messages"] == 5
    assert topic("ls", "--pattern", "no").splitlines()[1:] == []
    read = topic("read", "orders", "--partition", 0).split()
    assert (read[0], read[2], read[3]) == ("0:0", "42", "tea")
    assert json.loads(topic("read", "orders", "--from", "1", "--partition", 1, "--count", 1, "--json"))["data"] == "one"
    assert "--partition says which" in topic("read", "orders", "--from", "1", code=1)
    assert len(topic("read", "orders", "--from", "1h").splitlines()) == 6
    assert len(topic("read", "orders", "--group", "g", "--count", 2).splitlines()) == 2
    shown = topic("show", "orders")
    assert "owner" in shown
    whole = json.loads(topic("show", "orders", "--json"))
    assert sum(row["lag"] for row in whole["groups"][0]["partitions"]) == 3
    assert topic("configure", "orders", "--keep", "forever", "--partitions", 3).count("forever") == 1
    assert "nothing to change" in topic("configure", "orders", code=1)
    assert "--yes does it" in topic("trim", "orders", "--before", "latest", code=2)
    assert "3 messages gone" in topic("trim", "orders", "--before", 3, "--partition", 1, "--yes")
    assert "no topic 'nope'" in topic("show", "nope", code=3)
    assert "removed with 2 messages" in topic("remove", "orders", "--yes")


def test_lines_are_appended_as_soon_as_they_are_there(node: Node) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=1)
        words = [QCTL, "topic", "append", "t", "--lines", "--port", str(node.port)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
            assert process.stdin is not None
            process.stdin.write(b"one\ntw")
            wait_for(lambda: [one.data for one in client.read("t")] == ["one"])
            process.stdin.write(b"o\nthree")
            wait_for(lambda: [one.data for one in client.read("t")] == ["one", "two"])
            process.stdin.close()
            assert process.wait(20) == 0
            assert process.stdout is not None
            assert process.stdout.read() == b"3 messages appended\n"
        qctl("topic", "append", "t", "--lines", "--port", node.port, text="x\n" * 1201)
        assert sum(1 for _ in client.read("t")) == 1204


def test_a_group_is_looked_at_set_elsewhere_and_removed(node: Node) -> None:
    def group(*words: object, code: int = 0) -> str:
        return qctl("group", *words, "--port", node.port, code=code)

    with node.client() as client:
        client.create_topic("t", partitions=1)
        client.append_many("t", ["a", "b", "c"])
        client.commit_positions("t", "g", {0: 2})
        assert group("ls", "t").splitlines()[1].split()[:3] == ["g", "0", "1"]
        assert json.loads(group("ls", "t", "--json"))["lag"] == 1
        assert group("show", "t", "g").splitlines()[1].split()[:4] == ["g", "0", "2", "1"]
        assert group("reset", "t", "g", "--to", "earliest").splitlines()[1].split() == ["0", "0"]
        assert group("reset", "t", "g", "--to", "2", "--partition", 0).splitlines()[1].split() == ["0", "2"]
        assert "--partition says which" in group("reset", "t", "g", "--to", "2", code=1)
        client.heartbeat("t", "g", "somebody")
        assert "'somebody'" in group("reset", "t", "g", "--to", "latest", code=1)
        assert group("reset", "t", "g", "--to", "latest", "--force").splitlines()[1].split() == ["0", "3"]
        assert "g of t removed" in group("remove", "t", "g", "--force")
        assert "no group" in group("show", "t", "g", code=3)


def test_partitions_are_closed_and_groups_get_filters(node: Node) -> None:
    def topic(*words: object, code: int = 0) -> str:
        return qctl("topic", *words, "--port", node.port, code=code)

    topic("create", "t", "--partitions", 4)
    assert "closed partitions: 1, 3" in topic("configure", "t", "--close", 1, "--close", 3)
    told = topic("configure", "t", "--open", 3, "--filter", "g=red,b*", "--filter", "h=x", "--no-accept-read")
    assert "closed partitions: 1\n" in told
    assert "the group g reads red, b*" in told
    assert "nothing is read" in told
    assert "the group g" not in topic("configure", "t", "--no-filter", "g", "--accept-read")
    assert "the group h reads x" in topic("show", "t")
    for wrong in ("g", "=x", "g="):
        assert "GROUP=ATTRIBUTE" in topic("configure", "t", "--filter", wrong, code=1)
    assert "closed: partition 9" in topic("configure", "t", "--close", 9, code=1)
    assert "is closed" in topic("append", "t", "x", "--partition", 1, code=1)
    topic("append", "t", "x", "--partition", 0, "--attribute", "red")
    assert json.loads(topic("read", "t", "--json"))["attribute"] == "red"


def test_prepared_transactions_are_decided_by_hand(start_node: StartNode) -> None:
    port = free_port()
    node = start_node(listeners=[{"protocol": "metaq", "port": port}])

    def prepared(*words: object, code: int = 0) -> str:
        return qctl("topic", "prepared", *words, "--port", node.port, code=code)

    with node.client() as client, Metaq(port) as metaq:
        client.create_topic("t", partitions=1)
        for number in range(2):
            key = f"XID:{number}:aa:bb:tm"
            metaq.transaction(key, "BEGIN")
            metaq.put("t", b"x", 0, transaction=key)
            metaq.transaction(key, "PREPARE")
        rows = [line.split() for line in prepared("ls").splitlines()]
        assert [row[0] for row in rows] == ["xid", "XID:0:aa:bb:tm", "XID:1:aa:bb:tm"]
        assert rows[1][-3:] == ["1", "1", "t"]
        assert json.loads(prepared("ls", "--json").splitlines()[0])["xid"] == "XID:0:aa:bb:tm"
        assert "--yes does it" in prepared("commit", "XID:0:aa:bb:tm", code=2)
        assert "1 messages appended" in prepared("commit", "XID:0:aa:bb:tm", "--yes")
        assert "rolled back" in prepared("rollback", "XID:1:aa:bb:tm", "--yes")
        assert "there is no prepared transaction" in prepared("commit", "XID:1:aa:bb:tm", "--yes", code=1)
        assert client.topic("t").partitions[0].next == 1


def test_durations_sizes_and_places_are_read_as_people_write_them() -> None:
    assert [seconds(text) for text in ("90", "1.5m", "12h", "7d", "forever")] == [90, 90, 43_200, 604_800, 0]
    assert [size(text) for text in ("0", "1GB", "2 MiB", "1.5KB")] == [0, 10**9, 2**21, 1500]
    assert [start("earliest"), start("17")] == ["earliest", 17]
    for text in ("7 days", "-1", "", "1gb", "x"):
        with pytest.raises(ValueError, match="is no"):
            seconds(text)
    for text in ("1gb", "big", "1e3"):
        with pytest.raises(ValueError, match="is no"):
            size(text)
    for text in ("first", "-1", "2026-13-01"):
        with pytest.raises(ValueError, match="is no place"):
            start(text)
