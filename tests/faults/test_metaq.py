"""MetaQ's clients, ZooKeeper and leaders that are killed: real ones. What was acknowledged is read by consumers that
know ZooKeeper alone, and everything is registered again."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from bench.metaq_wire import Metaq, MetaqError
from bench.zookeeper import ZooKeeper
from quorate import Client
from tests.cluster import Cluster, wait_for
from tests.node import Node, free_port

KILLS = 3
"""Of leaders; 10 of them, with a hundred thousand messages, are a benchmark's (`bench.metaq`)."""

BROKER = "/meta/brokers/ids/0"
PARTITIONS = 2


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path / "zookeeper", free_port()) as server:
        yield server


@pytest.fixture
def tree(zookeeper: ZooKeeper) -> Iterator[Any]:
    client = KazooClient(zookeeper.address)
    client.start(timeout=30)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Cluster]:
    made = Cluster(tmp_path, 3, {})
    for node in made.nodes.values():
        node.config["listeners"] = [
            {"protocol": "metaq", "host": "127.0.0.1", "port": free_port(), "zookeeper": zookeeper.address}
        ]
    made.start()
    yield made
    made.kill()


def text_of(tree: Any, path: str) -> str:
    with suppress(KazooException):
        return str(tree.get(path)[0].decode())
    return ""


def master_of(tree: Any) -> int:
    """The port of the leader's broker, as ZooKeeper has it; 0: none is registered."""
    return int(text_of(tree, f"{BROKER}/master").rpartition(":")[2] or 0)


def address(cluster: Cluster, node_id: int) -> str:
    return f"meta://127.0.0.1:{cluster.nodes[node_id].config['listeners'][0]['port']}"


def is_registered(tree: Any, cluster: Cluster, topic: str = "t") -> bool:
    """Whether the broker of who leads now, its slaves and the topic are there."""
    leader = cluster.id_of(cluster.leader())
    slaves = {f"slave{one}": address(cluster, one) for one in cluster.nodes if one != leader}
    wanted = {"master": address(cluster, leader), **slaves}
    return (
        all(text_of(tree, f"{BROKER}/{name}") == its for name, its in wanted.items())
        and text_of(tree, f"/meta/brokers/topics/{topic}/0-m") == str(PARTITIONS)
        and len(tree.get_children(f"/meta/brokers/topics-sub/{topic}")) == 3
        and tree.get_children(f"/meta/brokers/topics-pub/{topic}") == ["0-m"]
    )


class Traffic:
    """A producer and a consumer that find their broker in ZooKeeper; one `has_enough`, then the other is to `stop`.

    `sent`: what was acknowledged; `unknown`: of what nobody knows whether it was appended; `read`: what was read.
    """

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.stop = threading.Event()
        self.has_enough = threading.Event()
        self.sent: list[bytes] = []
        self.unknown: set[bytes] = set()
        self.read: list[bytes] = []
        self.threads = [threading.Thread(target=self.produce), threading.Thread(target=self.consume)]

    def produce(self) -> None:
        number = 0
        while not self.has_enough.is_set():
            with suppress(OSError, ValueError), Metaq(master_of(self.tree), 5) as client:
                while not self.has_enough.is_set():
                    number += 1
                    self._put(client, number)
            time.sleep(0.05)

    def _put(self, client: Metaq, number: int) -> None:
        """Put one message, or two in a transaction."""
        payloads = [b"%d.%d" % (number, part) for part in range(1 + (number % 3 == 0))]
        try:
            if len(payloads) == 1:
                client.put("t", payloads[0], number % PARTITIONS)
            else:
                key = f"TX:s:{number}"
                client.transaction(key, "BEGIN")
                for payload in payloads:
                    client.put("t", payload, number % PARTITIONS, transaction=key)
                client.transaction(key, "COMMIT_ONE_PHASE")
        except (OSError, MetaqError) as error:
            if not isinstance(error, MetaqError) or "unknown_outcome" in str(error):
                self.unknown.update(payloads)
            raise ConnectionError("another broker, then") from error
        self.sent += payloads

    def consume(self) -> None:
        places = [0] * PARTITIONS
        while not self.stop.is_set():
            with suppress(OSError, ValueError, MetaqError), Metaq(master_of(self.tree), 5) as client:
                while True:
                    for partition in range(PARTITIONS):
                        self._get(client, places, partition)
                    if self.stop.is_set():
                        return
            time.sleep(0.05)

    def _get(self, client: Metaq, places: list[int], partition: int) -> None:
        try:
            got = client.get("t", partition, places[partition])
        except MetaqError as error:
            if error.answer.code != 404:
                raise
            time.sleep(0.01)
            return
        self.read += [one.payload for one in got]
        places[partition] = got[-1].position + 20 + len(got[-1].payload)

    def __enter__(self) -> "Traffic":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        self.has_enough.set()
        self.stop.set()
        for thread in self.threads:
            thread.join(30)


@pytest.mark.slow(60)
def test_nothing_that_was_acknowledged_is_missing_though_leaders_and_zookeeper_are_killed(
    cluster: Cluster, zookeeper: ZooKeeper, tree: Any
) -> None:
    with Client(nodes=[f"127.0.0.1:{node.port}" for node in cluster.nodes.values()], timeout=20) as client:
        client.create_topic("t", partitions=PARTITIONS)
        wait_for(lambda: is_registered(tree, cluster))
        with Traffic(tree) as traffic:
            for _ in range(KILLS):
                before = len(traffic.sent)
                wait_for(lambda before=before: len(traffic.sent) > before + 200, 40)  # type: ignore[misc]
                leader = cluster.leader()
                leader.kill()
                wait_for(lambda: master_of(tree) not in (0, int(leader.config["listeners"][0]["port"])))  # noqa: B023
                leader.start()
                cluster.wait_whole()
            zookeeper.kill()
            with Metaq(int(cluster.leader().config["listeners"][0]["port"])) as near:
                for number in range(50):  # nobody but who looks for a broker notices
                    near.put("t", b"meanwhile %d" % number, 0)
            wait_for(lambda: "ZooKeeper can't be reached" in Cluster.shard(cluster.leader())["zookeeper"])
            zookeeper.start()
            wait_for(lambda: is_registered(tree, cluster), 15)
            before = len(traffic.sent)
            wait_for(lambda: len(traffic.sent) > before + 100, 40)
            traffic.has_enough.set()
            traffic.threads[0].join(30)
            wait_for(lambda: {*traffic.sent} <= {*traffic.read}, 40)
        read, sent = traffic.read, {*traffic.sent}
        assert sent <= {*read}, "missing at the consumer"
        twice = {one for one in read if read.count(one) > 1} if len(read) != len({*read}) else set()
        assert not twice, "a position is read once"
        assert {*read} - sent - {b"meanwhile %d" % number for number in range(50)} <= traffic.unknown
        both = {one.split(b".")[0] for one in read if one.endswith(b".1")}
        assert all(number + b".0" in {*read} for number in both), "a transaction is there whole"
        wait_for(lambda: is_registered(tree, cluster))


def port_of(node: Node) -> int:
    return int(node.config["listeners"][0]["port"])


@pytest.mark.slow(30)
def test_prepared_transactions_survive_kills_elections_trimming_and_snapshots(tmp_path: Path) -> None:
    """All decided in the end, half of them each way: each message is there once, or never."""
    cluster = Cluster(tmp_path, 3, {"queue_log_size": 200})
    for node in cluster.nodes.values():
        node.config["listeners"] = [{"protocol": "metaq", "host": "127.0.0.1", "port": free_port()}]
    cluster.start()
    keys = [f"XID:1:{number:02x}:bb:tm" for number in range(12)]
    try:
        with Client(nodes=[f"127.0.0.1:{node.port}" for node in cluster.nodes.values()], timeout=20) as client:
            client.create_topic("t", partitions=2)
            for number, key in enumerate(keys):
                with Metaq(port_of(cluster.leader())) as metaq:
                    metaq.transaction(key, "BEGIN")
                    for part in range(3):
                        metaq.put("t", b"%d.%d" % (number, part), part % 2, transaction=key)
                    assert metaq.transaction(key, "PREPARE") == "0"
                if number % 4 == 3:
                    leader = cluster.leader()
                    leader.kill()
                    wait_for(lambda: len(client.prepared()) == number + 1)  # noqa: B023
                    for _ in range(6):  # the head of the log goes: it comes back by a snapshot
                        client.append_many("t", ["x" * 200] * 100, partition=0)
                    leader.start()
                    cluster.wait_whole()
            cluster.kill()
            for node in cluster.nodes.values():
                node.start()
            cluster.wait_whole()
            follower = cluster.followers()[0]
            with Metaq(port_of(follower)) as metaq:
                assert metaq.transaction("null", "RECOVER", "tm").split("\r\n") == keys
                for number, key in enumerate(keys):
                    metaq.transaction(key, "COMMIT_TWO_PHASE" if number % 2 else "ROLLBACK")
                assert metaq.transaction("null", "RECOVER") == ""
            read = [message.data for message in client.read("t") if not isinstance(message.data, str)]
            assert sorted(read) == sorted(b"%d.%d" % (number, part) for number in range(1, 12, 2) for part in range(3))
            assert client.prepared() == []
    finally:
        cluster.kill()


@pytest.mark.slow(20)
def test_the_registrar_follows_topics_groups_and_stops(cluster: Cluster, tree: Any) -> None:
    with Client(nodes=[f"127.0.0.1:{node.port}" for node in cluster.nodes.values()], timeout=20) as client:
        client.create_topic("t", partitions=PARTITIONS)
        wait_for(lambda: is_registered(tree, cluster))
        client.configure_topic("t", accept_append=False)
        wait_for(lambda: tree.get_children("/meta/brokers/topics-pub/t") == [])
        client.configure_topic("t", accept_append=True)
        client.append("t", "x" * 80, partition=1)
        consumers = "/meta/consumers/g"
        tree.create(f"{consumers}/offsets/t/0-1", b"5120-40", makepath=True)
        tree.create(f"{consumers}/owners/t/0-1", b"g_host-1", makepath=True)
        tree.create(f"{consumers}/ids/g_host-1", b"t,u", makepath=True)
        [group] = wait_for(lambda: client.topic("t").metaq_groups)
        assert (group.group, group.members) == ("g", 1)
        [place] = group.partitions
        assert (place.partition, place.position, place.msg_id, place.lag_bytes, place.owner) == (
            *(1, 40, 5120, 60),
            "g_host-1",
        )
        assert wait_for(
            lambda: all(Cluster.shard(node)["zookeeper"] == "registered" for node in cluster.nodes.values())
        )
        client.remove_topic("t")
        wait_for(lambda: tree.get_children("/meta/brokers/topics/t") == [])
        follower = cluster.id_of(cluster.followers()[0])
        cluster.nodes[follower].stop()
        wait_for(lambda: not tree.exists(f"{BROKER}/slave{follower}"), 3)
