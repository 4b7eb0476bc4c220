"""Nodes that prove themselves by a secret or by certificates, and strangers who can prove neither."""

import contextlib
import json
import os
import shutil
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from actors.node.private_files import new_secret, write_secrets
from net.peers.proof import OPENING_BYTES, Keyring
from quorate import Client
from tests.cluster import Cluster, wait_for
from tests.faults.load import Load
from tests.faults.security import (
    Authority,
    Stranger,
    evil,
    hello_of,
    messages_at_their_limits,
    reloaded,
)
from tests.node import Node


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


# -- nodes ---------------------------------------------------------------------------------------------------------


def secured(folder: Path, **config: Any) -> tuple[Cluster, str, Path]:
    path, secret = folder / "cluster.secret", new_secret()
    write_secrets(path, [secret])
    return Cluster(folder, 3, {"cluster_secret_file": str(path), **config}), secret, path


def disks_of(node: Node) -> dict[int, int]:
    """By which disk the members know each node, as the log tells every client."""
    disks: dict[int, int] = {}
    with node.client() as client:
        for record in client.log(count=1000)["records"]:
            disks |= {one[0]: one[3] for one in record.get("members", ())}
    return disks


def vote_of(node: Node) -> tuple[int, int]:
    shard = Cluster.shard(node)
    return shard["vote_id"], shard["leader_node_id"]


def test_the_attacks_of_the_trial_fail_whoever_the_stranger_says_that_it_is(tmp_path: Path) -> None:
    cluster, _, _ = secured(tmp_path)
    try:
        cluster.start()
        leader = cluster.leader()
        with leader.client() as client:
            client.produce("q", "real")
            shard = client.status()["shards"][0]
        before, own_id = vote_of(leader), cluster.id_of(leader)
        cluster_id, disks = int(shard["cluster_id"], 16), disks_of(leader)
        for to, node in cluster.nodes.items():
            for node_id in {9, *cluster.nodes} - {to}:
                hello = hello_of(node_id, to, cluster_id, disks.get(node_id, 1))
                for secret in (None, "a secret that was guessed, and wrong"):
                    stranger = Stranger(cluster.node_port(to), hello, secret)
                    assert not stranger.link.is_open
                    assert "closed by the node" in stranger.until_cut()
            assert vote_of(node) == before
        assert "has no cluster secret" in leader.log
        assert "127.0.0.1 is refused on the nodes' port" in leader.log
        with leader.client() as client:
            client.produce("q", "more")
            assert vote_of(leader) == before
            assert own_id == before[1]
    finally:
        cluster.kill()


def test_a_stranger_at_a_cluster_without_a_secret_counts_for_nothing_either(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3, {})
    try:
        cluster.start()
        leader = cluster.leader()
        with leader.client() as client:
            client.produce("q", "real")
            cluster_id = int(client.status()["shards"][0]["cluster_id"], 16)
        before = vote_of(leader)
        for to, node in cluster.nodes.items():
            for node_id in (9, *({1, 2, 3} - {to})):
                stranger = Stranger(cluster.node_port(to), hello_of(node_id, to, cluster_id))
                stranger.say(*evil(before[0], 100))
                stranger.until_cut()
                assert "it refuses this node" in stranger.why
            assert "Traceback" not in node.log
        time.sleep(1.0)
        assert vote_of(leader) == before
        with leader.client() as client:
            client.produce("q", "more")
    finally:
        cluster.kill()


def test_a_member_that_says_anything_at_all_ends_no_worker(tmp_path: Path) -> None:
    """It has the secret, and so may do harm to the cluster; it may not crash a node, or store what can't be."""
    cluster, secret, _ = secured(tmp_path)
    try:
        cluster.start()
        leader = cluster.leader()
        with leader.client() as client:
            client.produce("q", "real", retry=60)
            shard = client.status()["shards"][0]
        disks = disks_of(leader)
        cluster_id, own = int(shard["cluster_id"], 16), cluster.id_of(leader)
        pids = {node_id: node.worker_pid for node_id, node in cluster.nodes.items()}
        poser = next(node_id for node_id in cluster.nodes if node_id != own)
        for to in cluster.nodes:
            poses_as = poser if to != poser else next(n for n in cluster.nodes if n not in (to, own))
            for says_it_is in (poses_as, 9):
                for message in [*messages_at_their_limits(vote_of(leader)[0]), *evil(vote_of(leader)[0], 5)]:
                    hello = hello_of(says_it_is, to, cluster_id, disks.get(says_it_is, 1))
                    stranger = Stranger(cluster.node_port(to), hello, secret)
                    with contextlib.suppress(Exception):  # some can't be said at all
                        stranger.say(message)
                    stranger.sock.close()
            for frame in (b"", b"\x00" * 4, b"\xff" * 4, b"\x00\x00\x00\x05hello", os.urandom(3000)):
                stranger = Stranger(cluster.node_port(to), hello_of(poses_as, to, cluster_id), secret)
                with contextlib.suppress(OSError):
                    stranger.sock.sendall(frame)
                stranger.sock.close()
        for node_id, node in cluster.nodes.items():
            assert "Traceback" not in node.log, node.log
            assert node.worker_pid == pids[node_id], node.log
        cluster.wait_whole()
        with Client(nodes=[("127.0.0.1", node.port) for node in cluster.nodes.values()], timeout=20) as client:
            taken = client.consume("q", wait=5)
            assert taken is not None
            assert taken.data == "real"
            assert client.produce("q", 2) > 0
    finally:
        cluster.kill()


def test_strangers_who_hold_connections_open_are_cut_off_and_nodes_still_find_each_other(tmp_path: Path) -> None:
    cluster, _, _ = secured(tmp_path)
    held: list[socket.socket] = []
    try:
        cluster.start()
        follower = cluster.followers()[0]
        for _ in range(15):
            sock = socket.create_connection(("127.0.0.1", cluster.node_port(cluster.id_of(follower))), timeout=10)
            sock.sendall(Keyring().opening()[:10])
            held.append(sock)
        follower.kill()
        follower.start()
        cluster.wait_whole()
        sock = socket.create_connection(("127.0.0.1", cluster.node_port(cluster.id_of(follower))), timeout=10)
        begun = time.monotonic()
        assert sock.recv(OPENING_BYTES) == b"", "it is cut off, and told nothing"
        assert time.monotonic() - begun < 8
        sock.close()
    finally:
        for sock in held:
            sock.close()
        cluster.kill()


def test_the_secret_is_changed_without_a_stop(tmp_path: Path) -> None:
    cluster, old, path = secured(tmp_path)
    try:
        cluster.start()
        load = Load([node.port for node in cluster.nodes.values()])
        load.wait_more(100)
        for found in ([new_secret(), old], None):
            secrets = found or [path.read_text().splitlines()[0]]
            write_secrets(path, secrets)
            for node in cluster.nodes.values():
                reloaded(node)
            load.wait_more(100)
        load.stop()
        assert all("unknown_outcome" in one for one in load.failures), "what was on a link that was closed, and no more"
        cluster.wait_whole()
        with Client(nodes=[("127.0.0.1", node.port) for node in cluster.nodes.values()], timeout=20) as client:
            load.check(client)
        stranger = Stranger(cluster.node_port(1), hello_of(2, 1, 1), old)
        assert not stranger.link.is_open
        for node in cluster.nodes.values():
            assert old not in node.log
    finally:
        cluster.kill()


def is_let_in(context: ssl.SSLContext, sock: socket.socket) -> bool:
    """Whether anything is answered; with TLS 1.3 who is refused is told with the first answer."""
    with contextlib.suppress(OSError), context.wrap_socket(sock) as inside:
        inside.sendall(Keyring().opening())
        return bool(inside.recv(100))
    return False


def test_nodes_with_certificates_of_one_authority_are_a_cluster_and_no_other_gets_in(
    tmp_path: Path, authority: Authority
) -> None:
    cluster = Cluster(tmp_path, 3, {"cluster_tls_ca": authority.ca})
    other = Authority(tmp_path / "other")
    try:
        for node_id, node in cluster.nodes.items():
            node.config["cluster_tls_cert"] = authority.issue(f"node-{node_id}.cluster.example")
        cluster.start()
        leader = cluster.leader()
        with leader.client() as client:
            client.produce("q", 1)
            cluster_id = int(client.status()["shards"][0]["cluster_id"], 16)
        port = cluster.node_port(cluster.id_of(leader))
        plain = Stranger(port)
        plain.write(Keyring().opening())
        assert plain.until_cut() == "closed by the node"
        for certificate, trusted in ((other.issue("node-2"), authority.ca), (None, authority.ca)):
            context = ssl.create_default_context(cafile=trusted)
            context.check_hostname = False
            if certificate is not None:
                context.load_cert_chain(certificate)
            with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
                assert not is_let_in(context, sock)
        follower = cluster.followers()[0]
        wrong = cluster.id_of(follower)
        follower.stop()
        follower.config["cluster_tls_cert"] = authority.issue("node-7")
        follower.start()
        wait_for(lambda: f"it says that it is node {wrong}, and its certificate is for node 7" in leader.log)
        with leader.client() as client:
            assert client.produce("q", 1) > 0
        follower.config["cluster_tls_cert"] = authority.issue(f"node-{wrong}")
        follower.config_path.write_text(json.dumps(follower.config))
        reloaded(follower)
        cluster.wait_whole()
        assert cluster_id
        for node in cluster.nodes.values():
            assert "Traceback" not in node.log, node.log
    finally:
        cluster.kill()


def test_a_node_whose_data_are_of_another_history_says_so_and_takes_no_part(tmp_path: Path) -> None:
    """Two of three nodes are put back to a backup, the third is not: what it has committed the others never had."""
    cluster, _, _ = secured(tmp_path)
    try:
        cluster.start()
        with cluster.leader().client() as client:
            client.produce("q", "before")
        for node in cluster.nodes.values():
            node.stop(10)
        kept = {n: tmp_path / f"backup-{n}" for n in (1, 2)}
        for node_id, folder in kept.items():
            shutil.copytree(tmp_path / f"node-{node_id}" / "data", folder)
        for node in cluster.nodes.values():
            node.start()
        cluster.wait_whole()
        with cluster.leader().client() as client:
            client.produce_many("q", ["after"] * 50)
        vote = vote_of(cluster.nodes[3])[0]
        for node in cluster.nodes.values():
            node.stop(10)
        for node_id, folder in kept.items():
            data = tmp_path / f"node-{node_id}" / "data"
            shutil.rmtree(data)
            folder.rename(data)
        pair, third = [cluster.nodes[1], cluster.nodes[2]], cluster.nodes[3]
        while True:  # until their log is the newer one
            for node in pair:
                node.start()
            wait_for(lambda: all(vote_of(node)[1] for node in pair))
            with pair[0].client() as client:
                client.produce("q", "another")
            if vote_of(pair[0])[0] > vote + 2:
                break
            for node in pair:
                node.stop(10)
        third.start()
        wait_for(lambda: "takes no further part" in third.log, 30)
        assert "remove node 3 from the cluster" in third.log
        shard = Cluster.shard(third)
        assert shard["contradiction"]
        assert shard["role"] == "none"
        leader = cluster.nodes[Cluster.shard(cluster.nodes[1])["leader_node_id"]]
        with leader.client() as client:
            assert client.produce("q", "on") > 0
        votes = vote_of(leader)
        time.sleep(2)
        assert vote_of(leader) == votes
    finally:
        cluster.kill()
