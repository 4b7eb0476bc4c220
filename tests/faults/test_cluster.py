"""A real cluster under real faults: after each, every acknowledged message is there exactly by its rules."""

import json
import os
import shutil
import signal
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from net.peers.proof import MAGIC
from quorate import Client, ConnectionFailedError, RefusedError
from quorate.protocol import Action
from tests.cluster import Cluster, wait_for
from tests.faults.load import Load
from tests.faults.proxy import Proxy
from tests.node import free_port


def ports(cluster: Cluster) -> list[int]:
    return [node.port for node in cluster.nodes.values()]


def check(cluster: Cluster, load: Load) -> None:
    """All that was acknowledged is there, as any node tells."""
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log, node.log
    cluster.wait_whole()
    with Client(nodes=[("127.0.0.1", port) for port in ports(cluster)], timeout=20) as client:
        load.check(client)


@pytest.mark.slow
def test_kill_9_of_the_leader_again_and_again_loses_nothing(cluster: Cluster) -> None:
    load = Load(ports(cluster))
    for _ in range(4):
        time.sleep(0.5)
        leader = cluster.leader()
        leader.kill()
        load.wait_more(10)
        leader.start()
    load.stop()
    assert load.confirmed
    check(cluster, load)


def test_kill_9_of_a_follower_is_not_noticed(cluster: Cluster) -> None:
    load = Load([cluster.leader().port])
    for _ in range(2):
        follower = cluster.followers()[0]
        follower.kill()
        load.wait_more(50)
        follower.start()
    load.stop()
    assert not load.failures
    check(cluster, load)


@pytest.mark.slow
def test_kill_9_of_all_at_once_loses_nothing(cluster: Cluster) -> None:
    load = Load(ports(cluster))
    for _ in range(3):
        time.sleep(0.5)
        for node in cluster.nodes.values():
            node.kill()
        for node in cluster.nodes.values():
            node.start()
        load.wait_more(10)
    load.stop()
    check(cluster, load)


def test_a_leader_that_was_stopped_acknowledges_nothing_when_it_wakes(cluster: Cluster) -> None:
    leader = cluster.leader()
    pid = leader.worker_pid
    with leader.client() as client:
        client.produce("load", "before", retry=300)
        load = Load([node.port for node in cluster.followers()])
        os.kill(pid, signal.SIGSTOP)
        outcome: list[object] = []

        def produce() -> None:
            try:
                outcome.append(client.produce("late", "while it slept", retry=300))
            except (RefusedError, ConnectionFailedError) as error:
                outcome.append(error)

        asked = threading.Thread(target=produce)
        asked.start()
        try:
            others = [node for node in cluster.nodes.values() if node is not leader]
            wait_for(lambda: any(cluster.shard(node)["role"] == "leader" for node in others))
            load.wait_more(50)
        finally:
            os.kill(pid, signal.SIGCONT)
        asked.join()
    load.stop()
    check(cluster, load)
    with cluster.leader().client() as client:
        found = [message.data for message in client.peek("late", 10)] if outcome_is_id(outcome) else []
    assert not outcome_is_id(outcome) or found == ["while it slept"], "it was forwarded, and is where the leader is"


def test_a_machine_that_stands_still_with_all_nodes_keeps_their_leader(cluster: Cluster) -> None:
    """Each of them finds its time over when it wakes, and what the others said meanwhile unread."""
    lead = cluster.shard(cluster.leader())["vote_id"]
    kept = 0
    for _ in range(3):
        pids = [node.worker_pid for node in cluster.nodes.values()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.0)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.5)
        with cluster.leader().client(10.0) as client:
            client.produce("q", "after it", retry=300)
        before, lead = lead, cluster.shard(cluster.leader())["vote_id"]
        kept += lead == before
    assert kept > 1, "a busy machine may cost one"


def test_what_a_leader_is_asked_that_was_replaced_while_it_slept_is_done_by_the_next(cluster: Cluster) -> None:
    """A review's: it led on until it had read of the other, and of 20 requests the outcome of 20 was unknown."""
    leader = cluster.leader()
    others = [node for node in cluster.nodes.values() if node is not leader]
    pid = leader.worker_pid
    clients = [leader.client(20.0) for _ in range(8)]
    with ExitStack() as stack:
        for client in clients:
            stack.enter_context(client)
            client.produce("q", "before", retry=300)
        os.kill(pid, signal.SIGSTOP)
        try:
            outcomes: list[object] = []

            def produce(client: Client) -> None:
                try:
                    outcomes.append(client.produce("q", "while it slept", retry=300))
                except (RefusedError, ConnectionFailedError) as error:
                    outcomes.append(error)

            asked = [threading.Thread(target=produce, args=(client,)) for client in clients]
            for one in asked:
                one.start()
            wait_for(lambda: any(cluster.shard(node)["role"] == "leader" for node in others))
        finally:
            os.kill(pid, signal.SIGCONT)
        for one in asked:
            one.join()
    assert [type(one) for one in outcomes] == [int] * len(clients), outcomes


def test_who_waits_at_a_leader_that_was_replaced_while_it_slept_gets_the_message_from_the_next(
    cluster: Cluster,
) -> None:
    """A review's: its alarm rang before it had read of the other, and the outcome of the consume was unknown."""
    leader = cluster.leader()
    others = [node for node in cluster.nodes.values() if node is not leader]
    pid = leader.worker_pid
    with leader.client() as producer, socket.create_connection(("127.0.0.1", leader.port), timeout=30.0) as consumer:
        msg_id = producer.produce("q", "due while it slept", delay=1.5, retry=0)
        consumer.sendall(b'{"action": 2, "queue": "q", "wait": 20}\n')
        wait_for(lambda: producer.monitor("q")["wait_status"])
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_for(lambda: any(cluster.shard(node)["role"] == "leader" for node in others))
            time.sleep(1.3)  # it is due
        finally:
            os.kill(pid, signal.SIGCONT)
        reply = json.loads(consumer.makefile("rb").readline())
    assert (reply["code"], reply.get("msg_id")) == (0, msg_id), reply


def outcome_is_id(outcome: list[object]) -> bool:
    return isinstance(outcome[0], int)


def test_a_node_that_comes_back_empty_may_not_vote_until_it_is_added_again(cluster: Cluster) -> None:
    with cluster.leader().client() as client:
        for number in range(100):
            client.produce("q", number, retry=300)
    follower = cluster.followers()[0]
    node_id = next(n for n, node in cluster.nodes.items() if node is follower)
    follower.kill()
    shutil.rmtree(follower.config["data_dir"])
    follower.start()
    leader = cluster.leader()
    wait_for(lambda: "comes with another disk" in leader.log)
    wait_for(lambda: "comes with another disk" in follower.log)
    assert cluster.shard(follower)["messages"] == 0
    third = next(node for node in cluster.nodes.values() if node not in (leader, follower))
    third.kill()
    with leader.client(2.0) as client, pytest.raises((RefusedError, ConnectionFailedError)):
        client.produce("q", "no majority", retry=300)
    third.start()
    with Client(nodes=[("127.0.0.1", leader.port), ("127.0.0.1", third.port)], timeout=20) as client:
        client.request(Action.CLUSTER, command="remove", node_id=node_id)
        client.request(
            Action.CLUSTER, command="add", node_id=node_id, host="127.0.0.1", port=cluster.node_port(node_id)
        )
    cluster.wait_whole()
    wait_for(lambda: cluster.shard(follower)["messages"] >= 100)


def test_rolling_restart_under_load_fails_no_request(cluster: Cluster) -> None:
    load = Load(ports(cluster), threads=4, timeout=20)
    for node in cluster.nodes.values():
        time.sleep(0.3)
        assert node.stop(10.0) == 0
        node.start()
        cluster.wait_whole()
    time.sleep(0.3)
    load.stop()
    assert not load.failures
    assert len(load.produced) > 100
    check(cluster, load)


def test_a_follower_that_is_stopped_while_entries_stream_in_stops_in_order(cluster: Cluster) -> None:
    """Its disk is still writing when it ends: the log writer was gone before the last write was told to it once."""
    load = Load([cluster.leader().port], threads=8)
    follower = cluster.followers()[0]
    for _ in range(5):
        load.wait_more(50)
        assert follower.stop(10.0) == 0
        assert "CRITICAL" not in follower.log, follower.log
        follower.start()
    load.stop()
    check(cluster, load)


def test_a_leader_that_hears_nobody_steps_down_and_a_slow_link_does_no_harm(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3, {})
    proxies = {n: Proxy(cluster.node_port(n)) for n in (2, 3)}
    for node_id, node in cluster.nodes.items():
        node.config["node_port"] = cluster.node_port(node_id)
        node.config["cluster_node_list"] = [
            {**one, "port": proxies[one["node_id"]].port} if one["node_id"] in proxies else one
            for one in cluster.listed
        ]
    try:
        cluster.start()
        with cluster.nodes[1].client(20) as client:
            client.request(Action.CLUSTER, command="transfer", node_id=2)
        assert wait_for(cluster.leader) is cluster.nodes[2]
        load = Load([cluster.nodes[1].port, cluster.nodes[3].port], timeout=20)
        time.sleep(0.3)
        proxies[2].cut()  # it can speak, but nobody answers
        wait_for(lambda: cluster.shard(cluster.nodes[2])["role"] != "leader")
        others = (cluster.nodes[1], cluster.nodes[3])
        wait_for(lambda: any(cluster.shard(node)["role"] == "leader" for node in others))
        proxies[3].delay_s = 0.02
        load.wait_more(20)
        proxies[2].mend()
        proxies[3].delay_s = 0.0
        load.stop()
        check(cluster, load)
    finally:
        for proxy in proxies.values():
            proxy.close()
        cluster.kill()


def test_a_node_that_redirects_says_where_the_leader_is(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3, {"forward_request": 0})
    try:
        cluster.start()
        follower, leader = cluster.followers()[0], cluster.leader()
        with socket.create_connection(("127.0.0.1", follower.port), timeout=10) as sock:
            sock.sendall(b'{"action": 1, "queue": "q", "data": 1, "seq": "s"}')
            reply = json.loads(sock.makefile().readline())
        assert reply["code"] == -2
        assert (reply["leader_host"], reply["leader_port"], reply["seq"]) == ("127.0.0.1", leader.port, "s")
        with follower.client() as client:
            assert client.produce("q", 1) > 0, "the library goes there by itself"
    finally:
        cluster.kill()


def test_a_stranger_and_garbage_are_refused_and_harm_nobody(cluster: Cluster, tmp_path: Path) -> None:
    leader = cluster.leader()
    for garbage in (MAGIC + b"\xff" * 100, MAGIC + b"\x00\x00\x00\x05hello", MAGIC + os.urandom(5000)):
        with socket.create_connection(("127.0.0.1", cluster.node_port(cluster.id_of(leader))), timeout=5) as sock:
            sock.sendall(garbage)
            while sock.recv(1000):
                pass  # until it is cut
    with socket.create_connection(("127.0.0.1", leader.port), timeout=5) as sock:
        sock.sendall(MAGIC + b"x" * 100)
        assert b"bad_json" in sock.recv(1000), "the clients' port does not speak the nodes' protocol"
    own = {"node_id": 9, "host": "127.0.0.1", "port": free_port()}
    stranger = cluster.make(9, free_port(), [*cluster.listed, own])
    stranger.config["node_type"] = 77
    stranger.start()
    try:
        wait_for(lambda: "is of cluster number (node_type) 77" in leader.log)
        wait_for(lambda: "is of cluster number (node_type) 77" in stranger.log)
    finally:
        stranger.kill()
    with leader.client() as client:
        assert client.produce("q", 1) > 0


def test_clients_that_use_up_all_connections_do_not_keep_the_nodes_apart(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3, {"max_connections": 5})
    try:
        cluster.start()
        follower = cluster.followers()[0]
        leader = cluster.leader()
        crowd = [leader.connect() for _ in range(5 + 16)]  # those on this machine have some places more
        follower.kill()
        follower.start()
        wait_for(lambda: cluster.shard(follower)["role"] == "follower")
        for sock in crowd:
            sock.close()
    finally:
        cluster.kill()


def test_a_datagram_to_a_follower_is_forwarded(cluster: Cluster) -> None:
    follower = cluster.followers()[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.sendto(b'{"action": 1, "queue": "u", "data": 7, "retry": 9}', ("127.0.0.1", follower.port))
        assert json.loads(sock.recv(65536))["code"] == 0
    with cluster.leader().client() as client:
        assert client.monitor("u")["ready"] == 1


def test_no_request_of_a_client_ends_a_node(cluster: Cluster) -> None:
    """Each of these once did, or looked as if it might (found by review)."""
    follower = cluster.followers()[0]
    pids = [node.worker_pid for node in cluster.nodes.values()]
    bad = [
        b'{"action":15,"command":"add","node_id":9,"host":"a..b","port":5}',
        b'{"action":1,"queue":"q","data":1,"seq":1180591620717411303424}',
        b'{"action":18446744073709551616,"queue":"q"}',
        b'{"action":1,"queue":"q","messages":[{"data":"","encoding":"utf8"}]}',
        b'{"action":2,"queue":"q","count":3}',
    ]
    with follower.connect() as sock:
        for request in bad:
            sock.sendall(request)
            assert json.loads(sock.makefile().readline())["code"] in (0, -1)
    with cluster.leader().client() as client:
        client.request(Action.CLUSTER, command="add", node_id=9, host="no-such-name.invalid", port=5)
        client.request(Action.CLUSTER, command="remove", node_id=9)
    assert [node.worker_pid for node in cluster.nodes.values()] == pids
