"""A node that is started in unusual ways, in real processes: what a worker inherits by its fork must not end it."""

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.node.launch import READY, SUPERVISOR, TRYING, launch
from bench.resp import Resp
from quorate import QuorateError
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.node import Node, free_port


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, {"log_prefix": str(tmp_path / "said")})
    made.write_config()
    yield made
    made.kill()


def start(node: Node, *program: str) -> str:
    node.process, said = launch(node.config_path, {}, node.log_path, program)
    return said


def kill_worker(node: Node) -> int:
    """Kill it; the process id of the next one, once it serves."""
    before = node.worker_pid
    os.kill(before, signal.SIGKILL)

    def is_back() -> bool:
        try:
            return node.worker_pid != before
        except QuorateError:
            return False

    wait_for(is_back)
    return node.worker_pid


@pytest.mark.parametrize(
    "how", ["trap '' CHLD; exec \"$@\"", 'exec "$@" <&-', 'exec "$@" 2>&-', 'exec "$@" <&- >&- 2>&-']
)
def test_a_signal_ignored_or_a_descriptor_closed_by_who_starts_it_changes_nothing(node: Node, how: str) -> None:
    program = ("sh", "-c", how, "sh", *SUPERVISOR)
    assert start(node, *program) == READY
    worker, log_file = kill_worker(node), str(node.log_path)
    assert os.readlink(f"/proc/{worker}/fd/0") == os.devnull
    assert {os.readlink(f"/proc/{worker}/fd/{number}") for number in (1, 2)} <= {os.devnull, log_file}
    assert node.stop() == 0
    (Path(str(node.config["data_dir"])) / "shard-0" / "data.mdb").write_bytes(b"no such thing" * 1000)
    assert "can't be used" in start(node, *program)
    assert node.process is not None
    assert node.process.wait(10) == 1


def test_a_worker_comes_back_where_no_line_can_be_logged(start_node: StartNode, tmp_path: Path) -> None:
    """The supervisor has lines that it could not write, and they are in the worker's memory as well."""
    (tmp_path / "said.log").symlink_to("/dev/full")
    node = start_node(log_prefix=str(tmp_path / "said"))
    kill_worker(node)
    assert node.stop() == 0


def test_a_configuration_that_takes_more_than_a_read_starts(start_node: StartNode) -> None:
    lists = {f"all{n}": [f"{'q' * 90}-{n}-{m}" for m in range(100)] for n in range(20)}
    node = start_node(virtual_queue_list=lists)
    with node.client() as client:
        assert len(client.request(1, queue="all19", data=1)["msg_ids"]) == 100


FORKLESS = """
import errno, os
from actors.node import supervisor
def fork():
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
os.fork, supervisor.PATIENCE_S = fork, 0.5
supervisor.main()
"""


def test_who_waits_for_a_node_that_can_start_no_process_is_told_why(node: Node) -> None:
    said = start(node, sys.executable, "-c", FORKLESS)
    assert said == f"{TRYING}it can't be started: Resource temporarily unavailable"
    assert node.stop() == 0


LATE = """
import json, sys
from pathlib import Path
from actors.node import supervisor
code = supervisor._worker_code
def watched(protocols):
    run, before = code(protocols), set(sys.modules)
    def running(sock):
        ended_with = run(sock)
        ours = {"actors", "net", "quorate", "storage"}
        late = [name for name in set(sys.modules) - before if name.partition(".")[0] in ours]
        Path("%s").write_text(json.dumps(late))
        return ended_with
    return running
supervisor._worker_code = watched
supervisor.main()
"""


def test_a_worker_imports_nothing_of_ours_itself(node: Node, tmp_path: Path) -> None:
    """It would be of another version, where one was installed since the supervisor began."""
    ports = {name: free_port() for name in ("disque", "gmq")}
    node.config["listeners"] = [{"protocol": name, "host": "127.0.0.1", "port": port} for name, port in ports.items()]
    node.write_config()
    late = tmp_path / "late.json"
    assert start(node, sys.executable, "-c", LATE % late) == READY
    with node.client() as client:
        for n in range(300):
            client.produce("q", n, delay=n % 2, ttl=60)
        client.confirm(client.consume_many("q", 10))
        assert list(client.queue_rows("*"))
        assert client.raw_log(0, count=10)
    with Resp(ports["disque"]) as disque:
        assert disque.ask("ADDJOB", "d", "x", "0")
        assert disque.ask("INFO")
    with socket.create_connection(("127.0.0.1", ports["gmq"]), 10) as gmq:
        gmq.sendall(b'{"no": "such thing"}\n')
        assert gmq.recv(4096)
    assert node.stop() == 0
    assert json.loads(late.read_text()) == []


def test_data_of_another_node_are_told(tmp_path: Path) -> None:
    """It started without a word, whoever's data it had found."""
    nodes = []
    for node_id in (1, 3):
        folder = tmp_path / str(node_id)
        folder.mkdir()
        nodes.append(Node(folder, {"node_id": node_id, "data_dir": str(folder)}))
        nodes[-1].start()
        nodes[-1].stop()
    nodes[1].start()
    nodes[1].stop()
    assert "written by" not in nodes[1].log
    shutil.copy(tmp_path / "1" / "shard-0" / "data.mdb", tmp_path / "3" / "shard-0" / "data.mdb")
    nodes[1].try_start()
    assert "written by node 1 of cluster number 1, and this is node 3 of cluster number 1" in nodes[1].log
    nodes[1].kill()


def test_what_a_node_is_started_with_that_hides_or_names_in_vain_is_told(tmp_path: Path) -> None:
    """Another cluster number, nodes that are no members, and queues that are virtual now."""
    node = Node(tmp_path, {"node_id": 1})
    node.start()
    with node.client() as client:
        client.produce_many("real", [1, 2])
        client.produce("empty", 1)
        client.clear("empty")
    node.stop()
    listed = [{"node_id": n, "host": "127.0.0.1", "port": free_port()} for n in (1, 2, 3)]
    node.config |= {
        "node_type": 7,
        "cluster_node_list": listed,
        "virtual_queue_list": {"real": ["a", "b"], "empty": ["a"], "none": ["b"]},
    }
    node.start()
    for said in (
        "written by node 1 of cluster number 1, and this is node 1 of cluster number 7",
        "this node is a cluster of its own, and cluster_node_list names others: 2, 3",
        "queue 'real' is virtual now: the 2 messages",
    ):
        assert node.log.count(said) == 1, said
    assert "queue 'empty'" not in node.log
    node.kill()


def test_a_queue_that_a_reload_makes_virtual_is_told(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        client.produce_many("mail", [1, 2])
        node.config["virtual_queue_list"] = {"mail": ["b", "c"]}
        node.write_config()
        assert node.process is not None
        os.kill(node.process.pid, signal.SIGHUP)
        wait_for(lambda: "queue 'mail' is virtual now: the 2 messages" in node.log)
