"""Disque's protocol beside its jobs: connections, who may what, clusters and shards, on real nodes."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.resp import Resp, RespError
from net.protocols.disque_session import COMMANDS
from net.protocols.job_ids import node_hex
from quorate import Client
from tests.cluster import Cluster, wait_for
from tests.conformance.disque import listening, port_of, shown
from tests.conftest import StartNode
from tests.faults.security import TOKENS, access_file, running
from tests.node import Node

# -- the connection ----------------------------------------------------------------------------------------------------


def test_inline_commands_and_protocol_errors(disque_node: Node) -> None:
    with Resp(port_of(disque_node)) as client:
        client.sock.sendall(b'\r\n*0\r\nPING\r\naddjob q "a b" 0\n')
        assert client.read() == "PONG"
        assert client.read()[:2] == "D-"
        client.sock.sendall(b'PING "x\r\n')
        assert client.read() == "ERR Protocol error: unbalanced quotes in request"
        with pytest.raises(ConnectionError):
            client.read()
    for first in (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x00\x05"):
        with Resp(port_of(disque_node)) as client:
            client.sock.sendall(first)
            with pytest.raises(ConnectionError):
                client.read()


def test_redis_greeting_and_what_resp3_changes(disque: Resp) -> None:
    greeting = disque.line("HELLO 3")
    assert greeting[b"server"] == b"quorate"
    assert greeting[b"proto"] == 3
    disque.send("GETJOB", "NOHANG", "FROM", "q")
    assert disque._stream.readline() == b"_\r\n"
    assert isinstance(disque.line("CONFIG GET max*"), dict)
    assert isinstance(disque.line("QSTAT q") or [], list)
    assert disque.line("HELLO 4") == "NOPROTO unsupported protocol version"
    assert disque.line("HELLO x") == "ERR Protocol version is not an integer or out of range"
    assert disque.line("HELLO 2 NOSUCH") == "ERR Syntax error in HELLO"
    assert disque.line("HELLO 2 SETNAME me")[5] == 2
    assert disque.line("CLIENT GETNAME") == b"me"
    assert disque.line("GETJOB NOHANG FROM q") is None


def test_a_clients_name_is_the_consumer_of_what_it_gets(disque_node: Node, disque: Resp) -> None:
    assert disque.line("CLIENT SETNAME worker-7") == "OK"
    job = disque.line("ADDJOB q x 0")
    disque.line("GETJOB FROM q")
    with disque_node.client() as client:
        [record] = wait_for(lambda: [one for one in client.log()["records"] if one["kind"] == "deliver"])
        assert record["consumer"] == "worker-7"
    assert disque.ask("CLIENT", "SETNAME", "two words").startswith("ERR Client names")
    listed = disque.line("CLIENT LIST").decode()
    assert "name=worker-7" in listed
    assert disque.line("CLIENT NOSUCH").startswith("ERR")
    assert disque.ask("ACKJOB", job) == 1


def test_every_command_has_its_arity_and_is_told_of(disque: Resp) -> None:
    rows = disque.line("COMMAND")
    assert {row[0].decode(): row[1] for row in rows} == {c.name.decode(): c.arity for c in COMMANDS.values()}
    assert disque.line("COMMAND COUNT") == len(rows)
    assert disque.line("COMMAND INFO ping nosuch")[1] is None
    for command in COMMANDS.values():
        count = command.arity if command.arity > 0 else 0
        if count > 1:
            said = disque.ask(command.name)
            assert said == f"ERR wrong number of arguments for '{command.name.decode()}' command"
    assert disque.ask("NOSUCH\r\n").startswith("ERR unknown command 'NOSUCH??'")


def test_info_has_every_name_that_monitors_look_for(disque: Resp) -> None:
    disque.line("ADDJOB q x 0")
    told = disque.line("INFO all").decode()
    values = dict(line.split(":", 1) for line in told.split("\r\n") if ":" in line)
    assert values["registered_jobs"] == values["registered_queues"] == "1"
    assert values["loading"] == "0"
    assert int(values["total_connections_received"]) >= 1
    assert int(values["total_net_input_bytes"]) > 0
    assert [line for line in told.split("\r\n") if line.startswith("#")][-1] == "# Commandstats"
    assert not told.endswith("\r\n\r\n")
    assert disque.line("INFO clients").decode().startswith("# Clients\r\n")
    assert disque.line("INFO a b") == "ERR syntax error"


def test_settings_hold_until_the_node_starts_again(disque_node: Node, disque: Resp) -> None:
    assert disque.line("CONFIG GET maxclients") == [b"maxclients", b"10000"]
    assert disque.line("CONFIG SET maxclients 777") == "OK"
    wait_for(lambda: disque.line("CONFIG GET maxclients") == [b"maxclients", b"777"])
    assert disque.line("CONFIG SET maxmemory 1gb") == "OK"
    wait_for(lambda: disque.line("CONFIG GET maxmemory") == [b"maxmemory", b"1073741824"])
    assert disque.line("CONFIG SET maxclients many") == "ERR Invalid argument 'many' for CONFIG SET 'maxclients'"
    assert disque.line("CONFIG SET nosuch 1") == "ERR Unsupported CONFIG parameter: nosuch"
    assert disque.line("CONFIG SET hz 100") == "OK"
    assert disque.line("CONFIG REWRITE") == "ERR The server is running without a config file"
    assert b"secret" not in b" ".join(disque.line("CONFIG GET *"))
    disque_node.kill()
    disque_node.start()
    with Resp(port_of(disque_node)) as again:
        assert again.line("CONFIG GET maxclients") == [b"maxclients", b"10000"]


def test_who_may_what_goes_by_the_access_file(tmp_path: Path) -> None:
    path = access_file(tmp_path, worker=["produce:jobs*", "consume:jobs*"], operator=["operate", "look"])
    node = Node(tmp_path, {"access_file": str(path), "listeners": [{**listening(), "debug": True}]})
    with running(node):
        with Resp(port_of(node)) as client:
            assert client.line("PING") == "PONG"
            assert client.line("ADDJOB jobs x 0") == "NOAUTH Authentication required."
            assert client.ask("AUTH", TOKENS["worker"]) == "OK"
            assert client.line("ADDJOB jobs x 0")[:2] == "D-"
            assert client.line("ADDJOB other x 0").startswith("NOPERM")
            assert client.line("CONFIG SET maxclients 5").startswith("NOPERM")
            assert client.line("CLUSTER LEAVING yes").startswith("NOPERM")
            assert client.line("CLIENT LIST").startswith("NOPERM")
            assert client.line("CONFIG GET *").startswith("NOPERM")
            for word in ("ERROR said", "SLEEP 1", "FLUSHALL"):
                assert client.line(f"DEBUG {word}").startswith("NOPERM")
            job = client.line("GETJOB FROM jobs")[0][1].decode()
            assert client.ask("WORKING", job) == 300, "what is needed to work on it: nothing is shown of it"
            assert client.ask("SHOW", job).startswith("NOPERM")
            assert client.ask("ACKJOB", job) == 1
            assert client.line("HELLO")[0] == 1
        with Resp(port_of(node)) as client:
            name, secret = "worker", TOKENS["worker"].partition(".")[2]
            assert client.ask("HELLO", 3, "AUTH", name, secret)[b"proto"] == 3
        for words, said in (
            (("AUTH", "worker.nonsense"), "ERR invalid password"),
            (("AUTH", "worker", "x"), "WRONGPASS invalid username-password pair or user is disabled."),
            (("HELLO", "3", "AUTH", "no", "x"), "WRONGPASS invalid username-password pair or user is disabled."),
        ):
            with Resp(port_of(node)) as client:
                assert client.ask(*words) == said
        with Resp(port_of(node)) as client:
            assert client.ask("AUTH", TOKENS["operator"]) == "OK"
            assert client.line("CLIENT LIST").startswith(b"id=")
            assert client.line("CONFIG GET " + "*a" * 32) == []
            assert client.line("CONFIG GET " + "*a" * 200).startswith("ERR a pattern of 400 bytes")
            assert client.line("DEBUG ERROR said") == "said"


def test_without_access_control_any_password_passes(disque: Resp) -> None:
    assert disque.line("AUTH x") == "OK"
    assert disque.line("AUTH user x") == "OK"


def test_what_redis_clients_ask_beside_jobs_is_answered(disque: Resp) -> None:
    """Found with `redis-cli --pipe`, which ends with ECHO, and redis-py in RESP3, which reads seven columns."""
    assert disque.ask("ECHO", b"a \xff\r\n") == b"a \xff\r\n"
    assert disque.line("ECHO").startswith("ERR wrong number of arguments")
    assert {len(row) for row in disque.line("COMMAND")} == {6}
    disque.line("HELLO 3")
    assert {len(row) for row in disque.line("COMMAND")} == {10}
    assert [len(row) for row in disque.line("COMMAND INFO ping getjob")] == [10, 10]


def test_debugging_is_there_where_the_listener_says_so(disque_node: Node, disque: Resp) -> None:
    disque.line("ADDJOB a x 0")
    with Resp(port_of(disque_node)) as waiting:
        waiting.send("GETJOB", "FROM", "z")
        wait_for(lambda: disque.line("QSTAT z"))
        assert disque.line("DEBUG FLUSHALL") == "OK"
        assert waiting.read() is None
    assert disque.line("QSCAN BUSYLOOP")[1] == []
    begun = time.monotonic()
    assert disque.line("DEBUG SLEEP 0.3") == "OK"
    assert time.monotonic() - begun >= 0.29
    assert disque.line("DEBUG ERROR WORD and more") == "WORD and more"
    assert disque.line("QUIT") == "OK"
    with pytest.raises(ConnectionError):
        disque.read()


def test_queue_names_and_bodies_that_can_not_be_are_refused(disque: Resp) -> None:
    for name in (b"", b"\xff", b"a\nb", b"x" * 256):
        said = disque.ask("ADDJOB", name, "x", 0)
        assert said.startswith("ERR invalid queue name: ")
        assert disque.ask("GETJOB", "NOHANG", "FROM", "q", name).startswith("ERR invalid queue name: ")
    said = disque.ask("ADDJOB", "q", b"x" * (1 << 20) + b"y", 0)
    assert said == "ERR the job has 1048577 bytes, and 1048576 are allowed"


# -- clusters, shards --------------------------------------------------------------------------------------------------


@pytest.fixture
def disques(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes; each with a listener of its own."""
    made = Cluster(tmp_path, 3, {"forward_request": 0})
    for one in made.nodes.values():
        one.config["listeners"] = [listening()]
    try:
        made.start()
        yield made
    finally:
        made.kill()


def test_any_node_of_a_cluster_takes_and_gives_jobs_and_ids_stay_through_a_change_of_leader(disques: Cluster) -> None:
    leader, (follower, third) = disques.leader(), disques.followers()
    with Resp(port_of(follower)) as client:
        greeting = wait_for(lambda: (told := client.line("HELLO")) and len(told) == 5 and told)
        assert {int(row[2]) for row in greeting[2:]} == {port_of(one) for one in disques.nodes.values()}
        assert sorted(int(row[3]) for row in greeting[2:]) == [1, 2, 2]
        jobs = [client.ask("ADDJOB", "q", f"{n}", 2000, "RETRY", 60) for n in range(3)]
        replicated = client.ask("ADDJOB", "r", "x", 2000, "REPLICATE", 3)
        assert shown(client, replicated)["repl"] == 3
        leading = next(row[0].decode() for row in greeting[2:] if row[3] == b"1")
        assert all(job[2:10] == leading[:8] for job in jobs)
        assert client.line("ADDJOB q z 0 RETRY 0").startswith("ERR With RETRY set to 0")
        assert client.line("DEBUG FLUSHALL") == "ERR DEBUG is switched off on this listener"
    with Resp(port_of(third)) as client:
        assert client.line("GETJOB FROM q")[0][1].decode() == jobs[0]
        # A delivery does not wait for the other nodes: what is acknowledged after it says that they know of it.
        replicated = [replicated, client.ask("ADDJOB", "r", "y", 2000)]
    leader.kill()
    with Resp(port_of(follower)) as client:
        wait_for(lambda: not isinstance(client.line("QLEN q"), RespError))
        assert set(client.line("JSCAN BUSYLOOP")[1]) == {*jobs, *replicated}
        assert client.line("GETJOB FROM q")[0][1].decode() == jobs[1]
        late = client.ask("ADDJOB", "q", "late", 5000)
        assert late[2:10] != jobs[0][2:10], "another leads"
        said = client.ask("ADDJOB", "q", "all", 300, "REPLICATE", 3)
        assert said.startswith("NOREPL")


def test_a_job_that_does_not_reach_its_nodes_in_time_is_gone(disques: Cluster) -> None:
    leader, (one, other) = disques.leader(), disques.followers()
    with Resp(port_of(leader)) as client:
        pid = other.worker_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            said = client.ask("ADDJOB", "q", "x", 400, "REPLICATE", 3)
            assert said == "NOREPL Timeout reached before replicating to the requested number of nodes" or (
                said == "NOREPL Not enough reachable nodes for the requested replication level"
            )
            wait_for(lambda: client.line("QLEN q") == 0)
            assert client.line("JSCAN BUSYLOOP")[1] == []
        finally:
            os.kill(pid, signal.SIGCONT)
    assert one.process is not None


def test_a_node_that_leaves_leads_no_more_and_tells_those_who_wait(disques: Cluster) -> None:
    leader = disques.leader()
    with Resp(port_of(leader)) as client, Resp(port_of(leader)) as waiting:
        waiting.send("GETJOB", "FROM", "q")
        wait_for(lambda: client.line("QSTAT q"))
        assert client.line("CLUSTER LEAVING") == "no"
        assert client.line("CLUSTER LEAVING yes") == "OK"
        assert waiting.read().startswith("LEAVING This node is leaving the cluster")
        assert client.line("CLUSTER LEAVING") == "yes"
        wait_for(lambda: disques.leader() is not leader)
        assert client.line("GETJOB FROM q").startswith("LEAVING")
        job = wait_for(lambda: str(client.line("ADDJOB q x 0")).startswith("D-"))
        assert job
        assert client.line("GETJOB FROM q")[0][2] == b"x", "it still serves the rest"
    follower = next(one for one in disques.nodes.values() if one is not leader)
    with Resp(port_of(follower)) as client:
        own = node_hex(0, 0)
        assert len(own) == 40
        wait_for(lambda: b"100" in [row[3] for row in client.line("HELLO")[2:]])
        assert b"leaving" in client.line("CLUSTER NODES")


def test_several_shards_are_one_disque(start_node: StartNode) -> None:
    node = start_node(listeners=[listening()], shards=2)
    with Resp(port_of(node)) as client:
        names = ("a", "b", "c", "d", "e")
        wait_for(lambda: all(client.ask("ADDJOB", name, name, 0)[:2] == "D-" for name in names))
        for name in names:
            client.ask("QFLUSH", name)
        jobs = {name: client.ask("ADDJOB", name, name, 0) for name in names}
        assert {row[0] for row in client.line("GETJOB COUNT 10 FROM a b c d e")} <= {name.encode() for name in jobs}
        found: set[str] = set()
        cursor = b"0"
        while True:
            cursor, rows = client.ask("JSCAN", cursor, "COUNT", 1)
            found |= set(rows)
            if cursor == b"0":
                break
        assert found == set(jobs.values())
        assert set(client.line("QSCAN BUSYLOOP")[1]) == {name.encode() for name in jobs}
        assert client.ask("ACKJOB", *jobs.values()) == 5
        assert client.line("HELLO")[0] == 1


def test_a_virtual_queue_takes_jobs(start_node: StartNode) -> None:
    node = start_node(listeners=[listening()], virtual_queue_list={"all": ["x", "y"]})
    with Resp(port_of(node)) as client:
        job = client.line("ADDJOB all body 0")
        [row] = client.line("GETJOB FROM x")
        assert row[1].decode() == job
        assert client.line("QLEN y") == 1
        assert client.line("GETJOB NOHANG FROM all").startswith("ERR")


def test_ten_clients_at_once_lose_nothing(disque_node: Node) -> None:
    def work(number: int) -> None:
        with Resp(port_of(disque_node)) as client:
            for index in range(50):
                client.ask("ADDJOB", "many", f"{number}-{index}", 0)
                [row] = client.line("GETJOB FROM many")
                taken.append(row[2])
                assert client.ask("ACKJOB", row[1]) == 1

    taken: list[bytes] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(f"{n}-{i}".encode() for n in range(10) for i in range(50))
    with Client(f"127.0.0.1:{disque_node.port}") as client:
        assert client.monitor("many")["size"] == 0


def _first_job(port: int) -> str:
    """Of the first client that gets in."""
    until = time.monotonic() + 20
    while True:
        try:
            with Resp(port) as client:
                return str(client.ask("ADDJOB", "q", "x", 0))
        except ConnectionError:
            assert time.monotonic() < until
            time.sleep(0.001)


@pytest.mark.parametrize("shards", [1, 2])
def test_who_comes_before_a_new_node_has_founded_its_cluster_waits_for_it(start_node: StartNode, shards: int) -> None:
    listener = listening()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(_first_job, int(listener["port"]))
        start_node(listeners=[listener], shards=shards)
        assert first.result()[:2] == "D-"
