"""Clients of real nodes: tokens, rights and TLS with real certificates; nobody is harmed by those who try."""

import asyncio
import json
import os
import signal
import socket
import ssl
import struct
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quorate import AsyncClient, Client, ConnectionFailedError, RefusedError
from quorate.protocol import Action
from tests.cli.test_qctl import qctl
from tests.cluster import Cluster, wait_for
from tests.faults.security import (
    TOKENS,
    Authority,
    access_file,
    reloaded,
    running,
)
from tests.node import Node, free_port


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


# -- tokens --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2])
def test_a_client_with_a_token_has_its_rights_on_every_shard_and_one_without_has_none(
    tmp_path: Path, shards: int
) -> None:
    path = access_file(tmp_path, worker=["produce:jobs*", "consume:jobs*"], viewer=["look"], operator=["operate"])
    with running(Node(tmp_path, {"access_file": str(path), "shards": shards})) as node:
        with node.client() as stranger, pytest.raises(RefusedError) as refused:
            stranger.produce("jobs", 1)
        assert refused.value.error == "not_allowed"
        with Client(port=node.port, token=TOKENS["worker"]) as worker:
            for n in range(100):  # often enough to be moved to the shard's worker
                worker.produce(f"jobs{n % 4}", n, retry=30)
                worker.produce("jobs-one", n, retry=30)
            with pytest.raises(RefusedError, match="the right produce for what the request names is missing"):
                worker.produce("other", 1)
            with pytest.raises(RefusedError, match="not_allowed"):
                worker.queues()
            message = worker.consume(["jobs0", "jobs1", "jobs2"])
            assert message is not None
            assert worker.confirm(message) == 1
        with Client(port=node.port, token=TOKENS["viewer"]) as viewer:
            assert len(viewer.queues()) == 5
            assert viewer.status()["node_id"] == 1
            other = viewer.peek("jobs1")[0]
            assert viewer.request(Action.SHOW, msg_id=other.msg_id)["code"] == 0
            with pytest.raises(RefusedError, match="not_allowed"):
                viewer.confirm(other.msg_id)
        with Client(port=node.port, token=TOKENS["operator"]) as operator:
            assert operator.log()["records"]
        with Client(port=node.port, token="worker.guessed") as guesser, pytest.raises(RefusedError) as unknown:
            guesser.produce("jobs", 1)
        assert unknown.value.error == "not_authenticated"

        def audited() -> str:
            return "".join(log.read_text() for log in (tmp_path / "data").glob("audit*.log"))

        def was_audited(what: str) -> bool:
            return what in audited()

        for right in ("produce", "consume", "look", "token"):
            wait_for(partial(was_audited, f'"missing":"{right}"'))
        assert not any(token.partition(".")[2] in audited() + node.log for token in TOKENS.values())


def test_a_reload_ends_the_connections_of_those_who_may_do_something_else(tmp_path: Path) -> None:
    path = access_file(tmp_path, worker=["produce"], viewer=["look"])
    node = Node(tmp_path, {"access_file": str(path)})
    with running(node), Client(port=node.port, token=TOKENS["worker"]) as worker:
        worker.produce("q", 1)
        path.write_text(path.read_text().replace('"produce"', '"produce:x"'))
        reloaded(node)
        with pytest.raises(RefusedError, match="not_allowed"):
            worker.produce("q", 1)
        worker.produce("x", 1)
        path.write_text("nonsense [")
        reloaded(node)
        assert "the configuration stays as it was" in node.log
        worker.produce("x", 1)


def test_the_leader_judges_by_its_own_table_what_another_node_lets_through(tmp_path: Path) -> None:
    strict, lax = tmp_path / "strict", tmp_path / "lax"
    strict.mkdir()
    lax.mkdir()
    files = {True: access_file(strict, worker=["produce:a"], operator=["operate", "look"]), False: None}
    files[False] = access_file(lax, worker=["produce"], viewer=["produce"], operator=["operate", "look"])
    cluster = Cluster(tmp_path, 3, {"access_file": str(files[True])})
    try:
        for node in cluster.nodes.values():
            node.start()
        shown = Client(port=cluster.nodes[1].port, token=TOKENS["operator"])
        leader = wait_for(lambda: shown.status()["shards"][0]["leader_node_id"])
        follower = next(node for node_id, node in cluster.nodes.items() if node_id != leader)
        wait_for(lambda: len([m for m in shown.cluster()["members"] if m["role"] == "voter"]) == 3)
        follower.stop()
        follower.config["access_file"] = str(files[False])
        follower.start()
        with Client(port=follower.port, token=TOKENS["worker"], timeout=20) as worker:
            worker.produce("a", 1)
            with pytest.raises(RefusedError, match="not_allowed"):
                worker.produce("b", 1)
        with Client(port=follower.port, token=TOKENS["viewer"], timeout=20) as viewer, pytest.raises(RefusedError):
            viewer.produce("a", 1)
        wait_for(lambda: '"from":"node' in (tmp_path / f"node-{leader}" / "data" / "audit.refused.log").read_text())
        shown.close()
    finally:
        cluster.kill()


# -- TLS for clients -----------------------------------------------------------------------------------------------


def test_a_client_speaks_tls_with_a_node_whose_certificate_it_believes_and_with_no_other(
    tmp_path: Path, authority: Authority
) -> None:
    good, wrong_name, over = (
        authority.issue("127.0.0.1"),
        authority.issue("elsewhere.example"),
        authority.issue("127.0.0.1", is_over=True),
    )
    other = Authority(tmp_path / "other")
    node = Node(tmp_path, {"tls": 1, "tls_cert": good})
    with running(node):
        with Client(port=node.port, ca=authority.ca) as client:
            ids = [client.produce("q", "x" * 100_000, retry=30) for _ in range(20)]
            taken = [client.consume("q") for _ in ids]
            assert sorted(one.msg_id for one in taken if one is not None) == sorted(ids)
            time.sleep(0.1)
            assert client.status()["connections"] == 1, "an idle connection is used again"
        for ca, why in ((other.ca, "certificate"), (None, "certificate")):
            with Client(port=node.port, tls=True, ca=ca) as client, pytest.raises(ConnectionFailedError, match=why):
                client.produce("q", 1)
        for certificate, why in ((wrong_name, "IP address mismatch|not valid"), (over, "expired")):
            node.config["tls_cert"] = certificate
            node.config_path.write_text(json.dumps(node.config))
            reloaded(node)
            with Client(port=node.port, ca=authority.ca) as client, pytest.raises(ConnectionFailedError, match=why):
                client.produce("q", 1)
        node.config["tls_cert"] = good
        node.config_path.write_text(json.dumps(node.config))
        reloaded(node)
        with socket.create_connection(("127.0.0.1", node.port), timeout=5) as plain:
            plain.sendall(b'{"action":1,"queue":"q","data":1}\n')
            assert b"code" not in plain.recv(1000), "nothing is answered in the clear"
        with socket.socket(type=socket.SOCK_DGRAM) as udp:
            udp.connect(("127.0.0.1", node.port))
            udp.send(b'{"action":1,"queue":"q","data":1}')
            with pytest.raises(ConnectionRefusedError):
                udp.recv(1000)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with pytest.warns(DeprecationWarning, match="TLS"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with socket.create_connection(("127.0.0.1", node.port), timeout=5) as sock, pytest.raises(OSError, match=r".+"):
            old.wrap_socket(sock)


def test_a_clients_certificate_says_who_it_is(tmp_path: Path, authority: Authority) -> None:
    path = access_file(tmp_path, robot=["produce"], viewer=["look"])
    config = {
        "tls": 1,
        "tls_cert": authority.issue("127.0.0.1"),
        "tls_client_ca": authority.ca,
        "access_file": str(path),
    }
    other = Authority(tmp_path / "other")
    node = Node(tmp_path, config)
    with running(node):
        with Client(port=node.port, ca=authority.ca, cert=authority.issue("x.example", common="robot")) as robot:
            robot.produce("q", 1)
        for cert in (authority.issue("nobody.example"), None):
            with Client(port=node.port, ca=authority.ca, cert=cert) as client, pytest.raises(RefusedError):
                client.produce("q", 1)
        for cert in (other.issue("robot", common="robot"), authority.issue("robot", common="robot", is_over=True)):
            client = Client(port=node.port, ca=authority.ca, cert=cert, timeout=1)
            with pytest.raises(ConnectionFailedError):
                client.produce("q", 1)
        with Client(port=node.port, ca=authority.ca, token=TOKENS["viewer"]) as viewer:
            assert viewer.queues() == ["q"]


def test_what_a_client_asks_whose_certificate_is_not_believed_was_certainly_not_done(
    tmp_path: Path, authority: Authority
) -> None:
    """The handshake had ended before the node said so: the request was said to be of unknown outcome."""
    other = Authority(tmp_path / "other")
    config = {"tls": 1, "tls_cert": authority.issue("127.0.0.1"), "tls_client_ca": str(authority.ca)}
    with running(Node(tmp_path, config)) as node:
        for cert in (other.issue("worker"), authority.issue("worker", is_over=True)):
            shown: dict[str, Any] = {"ca": authority.ca, "cert": cert, "timeout": 1.5}
            with Client(port=node.port, **shown) as client, pytest.raises(ConnectionFailedError) as refused:
                client.produce("q", 1)
            assert not refused.value.outcome_unknown

            async def ask(shown: dict[str, Any] = shown) -> None:
                async with AsyncClient(port=node.port, **shown) as client:
                    await client.produce("q", 1)

            with pytest.raises(ConnectionFailedError) as refused:
                asyncio.run(ask())
            assert not refused.value.outcome_unknown


def test_clients_of_a_port_with_tls_beside_one_without_are_not_told_to_go_there(
    tmp_path: Path, authority: Authority
) -> None:
    """Redirects and maps name the main port, which does not understand them."""
    listeners = [{"port": free_port(), "tls": True}]
    node = Node(tmp_path, {"listeners": listeners, "tls_cert": authority.issue("127.0.0.1"), "shards": 2})
    with running(node):
        context = ssl.create_default_context(cafile=authority.ca)
        plain = socket.create_connection(("127.0.0.1", node.port), timeout=10)
        secured = socket.create_connection(("127.0.0.1", int(str(listeners[0]["port"]))), timeout=10)
        with plain, context.wrap_socket(secured, server_hostname="127.0.0.1") as inside:
            maps = []
            for sock in (plain, inside):
                sock.sendall(b'{"action": 8, "full": true}\n')
                maps.append(json.loads(sock.makefile().readline())["shards"])
        assert [[row["leader_node_id"] for row in rows] for rows in maps] == [[1, 1], [1, 1]]
        assert all(row["port"] for row in maps[0])
        assert [(row["host"], row["port"]) for row in maps[1]] == [("", 0), ("", 0)]


def test_garbage_and_ends_in_the_middle_of_a_handshake_harm_nobody(tmp_path: Path, authority: Authority) -> None:
    listeners = [{"port": free_port(), "tls": True}]
    node = Node(tmp_path, {"listeners": listeners, "tls_cert": authority.issue("127.0.0.1")})
    port = int(str(listeners[0]["port"]))
    with running(node):
        for n in range(60):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
                sock.sendall((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(60))[: n + 1])
                if n % 3 == 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        context = ssl.create_default_context(cafile=authority.ca)
        for _ in range(5):
            sock = socket.create_connection(("127.0.0.1", port), timeout=5)
            with context.wrap_socket(sock, server_hostname="127.0.0.1") as inside:
                inside.sendall(b'{"action":1,"queue":"q","data":1}\n')
                os.write(inside.fileno(), b"not a record of TLS" * 10)
        with Client(port=port, ca=authority.ca) as client:
            assert client.produce("q", 1) > 0
        with node.client() as client:
            assert client.produce("q", 1) > 0, "and the port without TLS is another"


def test_a_client_of_several_nodes_goes_on_with_one_that_lets_it_in(tmp_path: Path) -> None:
    path = access_file(tmp_path, viewer=["look"])
    for name in ("strict", "lax"):
        (tmp_path / name).mkdir()
    strict, lax = Node(tmp_path / "strict", {"access_file": str(path)}), Node(tmp_path / "lax", {})
    with running(strict), running(lax):
        nodes = [("127.0.0.1", strict.port), ("127.0.0.1", lax.port)]
        with (
            Client(nodes=nodes[:1], token="worker.unknown", timeout=3) as client,
            pytest.raises(RefusedError) as refused,
        ):
            client.produce("q", 1)
        assert refused.value.error == "not_authenticated"
        with Client(nodes=nodes, token="worker.unknown", timeout=3) as client:
            assert client.queues() == [], "the second has no access file, and takes any token"
        with Client(nodes=nodes, token=TOKENS["viewer"], timeout=3) as viewer:
            assert viewer.queues() == []
            assert viewer.queues() == []
        with Client(nodes=nodes[::-1], token=TOKENS["viewer"], timeout=3) as viewer:
            assert viewer.queues() == [], "the first takes any token"


def test_a_worker_that_dies_while_its_files_are_unfit_comes_back_when_they_are_mended(tmp_path: Path) -> None:
    path = access_file(tmp_path, viewer=["look"])
    node = Node(tmp_path, {"access_file": str(path)})
    with running(node), Client(port=node.port, token=TOKENS["viewer"]) as viewer:
        pid = viewer.status()["pid"]
        path.chmod(0o644)
        os.kill(pid, 9)
        wait_for(lambda: "chmod 600" in node.log)
        path.chmod(0o600)
        assert wait_for(lambda: viewer.status()["pid"]) != pid


def test_a_reload_is_done_when_the_workers_go_by_it_and_says_which_does_not(tmp_path: Path) -> None:
    path = access_file(tmp_path, worker=["produce"])
    node = Node(tmp_path, {"access_file": str(path)})
    with running(node), Client(port=node.port, token=TOKENS["worker"]) as worker:
        for right, is_allowed in (("look", False), ("produce", True)) * 5:
            access_file(tmp_path, worker=[right])
            qctl("node", "reload", "-c", node.config_path)
            if is_allowed:
                worker.produce("q", 1)
            else:
                with pytest.raises(RefusedError, match="not_allowed"):
                    worker.produce("q", 1)
        access_file(tmp_path, worker=["operate"])
        qctl("node", "reload", "-c", node.config_path)
        pid = worker.status()["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            assert "the worker has not taken it yet" in qctl("node", "reload", "-c", node.config_path, code=3)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_replies_that_a_client_of_tls_does_not_read_are_counted_and_end_it(
    tmp_path: Path, authority: Authority
) -> None:
    """One large write went down to the stream below TLS, where nobody counted it: 100 strangers held 700 MiB."""
    config = {"tls": 1, "tls_cert": authority.issue("127.0.0.1"), "max_held_bytes": 16 << 20, "stalled_timeout_s": 2}
    node = Node(tmp_path, config)
    context = ssl.create_default_context(cafile=authority.ca)
    crowd: list[ssl.SSLSocket] = []
    with running(node), Client(port=node.port, ca=authority.ca, timeout=20) as client:
        for _ in range(4):
            client.produce("q", b"x" * 900_000)
        before = client.status()["resident_bytes"]
        try:
            for _ in range(60):
                sock = socket.socket()
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.settimeout(10)
                sock.connect(("127.0.0.1", node.port))
                inside = context.wrap_socket(sock, server_hostname="127.0.0.1")
                crowd.append(inside)
                inside.sendall(b'{"action":11,"queue":"q","count":4}')
            wait_for(lambda: any("max_held_bytes" in one for one in client.status()["limits_reached"]))
            assert client.status()["resident_bytes"] - before < 120 << 20, "they asked for 280 MiB"
            wait_for(lambda: client.status()["connections"] == 1)
            assert client.monitor("q")["size"] == 4
        finally:
            for one in crowd:
                one.close()


@pytest.mark.parametrize("wanted", ["", "65536"])
def test_workers_give_back_what_is_large_as_soon_as_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    """Else glibc keeps up to 32 MiB in one piece: a gigabyte was taken where 128 MiB may be held (`bench.unread`)."""
    monkeypatch.setenv("STARTED_BY", "its command")
    if wanted:
        monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", wanted)
    node = Node(tmp_path, {})
    with running(node), Client(port=node.port) as client:
        environment = Path(f"/proc/{client.status()['pid']}/environ").read_text().split("\0")
    assert f"MALLOC_MMAP_THRESHOLD_={wanted or 1 << 20}" in environment
