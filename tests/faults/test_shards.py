"""A node of several shards, in real processes: workers that die, data that are damaged, and stops in time."""

import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from actors.node.data_folder import LOCK_NAME
from quorate import Client, QuorateError, RefusedError
from quorate.protocol import Action
from quorate.shards import shard_of_queue
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.node import Node, free_port

SHARDS = 3


def queue_in(shard: int, shards: int = SHARDS) -> str:
    return next(f"q{n}" for n in range(1000) if shard_of_queue(f"q{n}", shards) == shard)


QUEUES = [queue_in(shard) for shard in range(SHARDS)]


def rows(client: Client) -> list[dict[str, Any]]:
    return list(client.status()["shards"])


def test_all_workers_serve_all_queues_on_one_port_over_tcp_and_udp(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS)
    seen: set[int] = set()
    for _ in range(60):
        with node.client() as client:
            for queue in QUEUES:
                client.produce(queue, "x", retry=60)
            seen.add(int(client.status()["pid"]))
    with node.client() as client:
        assert seen == {int(row["pid"]) for row in rows(client)}, "the system spreads connections over the workers"
        assert [row["messages"] for row in rows(client)] == [60] * SHARDS
        assert client.queues() == sorted(QUEUES)
        listed = list(client.queue_rows("q*"))
        assert {row.name: row.size for row in listed} == dict.fromkeys(QUEUES, 60)
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        for queue in QUEUES * 5:
            sock.sendto(b'{"action":1,"queue":"%s","data":1}' % queue.encode(), ("127.0.0.1", node.port))
            assert b'"code":0' in sock.recv(65536)


def test_replies_keep_their_order_whatever_shard_answers(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS)
    with node.connect() as sock:
        asked = [QUEUES[n % SHARDS] for n in range(90)]
        sock.sendall(b"".join(b'{"action":1,"queue":"%s","data":1}\n' % queue.encode() for queue in asked))
        data = b""
        while data.count(b"\n") < len(asked):
            data += sock.recv(1 << 16)
    answered = [line.split(b'"queue":"')[1].split(b'"')[0].decode() for line in data.splitlines()]
    assert answered == asked


def test_a_worker_that_is_killed_comes_back_and_the_other_shards_fail_no_request(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS)
    with node.client() as client:
        victim = rows(client)[1]["pid"]
        kept = client.produce(QUEUES[1], "kept", retry=60)
    clients: list[Client] = []
    while len(clients) < 4:  # connections that another worker has
        one = node.client()
        if int(one.status()["pid"]) != victim:
            clients.append(one)
        else:
            one.close()
    failures: list[str] = []
    stopped = threading.Event()

    def produce(client: Client, queue: str) -> None:
        while not stopped.is_set():
            try:
                client.produce(queue, "x")
            except QuorateError as error:
                failures.append(str(error))

    threads = [threading.Thread(target=produce, args=(one, QUEUES[2 * (n % 2)])) for n, one in enumerate(clients)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    os.kill(victim, signal.SIGKILL)
    killed_at = time.monotonic()
    with node.client() as client:
        assert wait_for(lambda: client.show(kept).data) == "kept"
        took_s = time.monotonic() - killed_at
        assert wait_for(lambda: rows(client)[1].get("pid", victim) != victim)
    stopped.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert took_s < 10
    assert node.log.count("the worker of shard 1 ended with signal 9") == 1
    for one in clients:
        one.close()


def test_damaged_data_take_only_their_shard_down_and_status_says_so(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS)
    with node.client() as client:
        for queue in QUEUES:
            client.produce(queue, "x", retry=60)
    assert node.stop() == 0
    (Path(node.config["data_dir"]) / "shard-1" / "data.mdb").write_bytes(b"no LMDB" * 1000)
    node.start()
    with node.client() as client:
        status = client.status()
        assert (status["partial"], status["missing_shards"]) == (True, [1])
        down = status["shards"][1]
        assert down["role"] == "down"
        assert "can't be used" in down["fault"]
        for shard in (0, 2):
            assert client.monitor(QUEUES[shard])["size"] == 1
        listed = client.request(Action.LIST)
        assert listed["queue_count"] == 2
        assert listed["missing_shards"] == [1]
        with node.connect() as sock:
            sock.sendall(b'{"action":4,"queue":"%s","patience":0.2}' % QUEUES[1].encode())
            assert b'"error":"no_leader"' in sock.recv(65536)
        assert client.consume([QUEUES[1], QUEUES[2]]) is not None
    assert "DOWN" in node.log
    assert node.stop() == 0


def test_another_number_of_shards_is_refused(start_node: StartNode) -> None:
    node = start_node(shards=2)
    assert node.stop() == 0
    node.config["shards"] = 3
    said = node.try_start()
    assert "founded with 2" in said
    assert node.process is not None
    assert node.process.wait(5) == 1
    node.config["shards"] = 2
    node.start()


def test_a_node_of_several_shards_stops_in_order_within_5_seconds(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS)
    waiting = [node.connect() for _ in range(6)]
    for n, sock in enumerate(waiting):
        sock.sendall(b'{"action":2,"queue":"%s","wait":60}' % QUEUES[n % SHARDS].encode())
    over = node.connect()
    over.sendall(b'{"action":2,"queues":["%s"],"wait":60}' % '","'.join(QUEUES).encode())
    time.sleep(0.5)
    begun = time.monotonic()
    assert node.stop(timeout=5) == 0
    assert time.monotonic() - begun < 5
    for sock in waiting:
        assert b'"error":"stopping"' in sock.recv(65536)
        sock.close()
    assert b'"code":' in over.recv(65536)
    over.close()
    assert "Traceback" not in node.log
    assert "CRITICAL" not in node.log


def test_a_node_that_stops_under_load_over_all_shards_leaves_nobody_in_doubt(start_node: StartNode) -> None:
    """Workers that stop together once gave back each other's requests, and then were gone with some of them."""
    node = start_node(shards=SHARDS)
    errors: Counter[str] = Counter()

    def ask() -> None:
        with node.connect() as sock, sock.makefile("rb") as lines:
            body = b"".join(b'{"action":1,"queue":"q%d","data":1}' % n for n in range(16))
            while "stopping" not in errors:
                sock.sendall(body)
                for _ in range(16):
                    line = lines.readline()
                    errors[json.loads(line).get("error", "") if line else "no answer"] += 1

    askers = [threading.Thread(target=ask) for _ in range(8)]
    for asker in askers:
        asker.start()
    wait_for(lambda: errors[""] > 500)
    assert node.stop(5) == 0
    for asker in askers:
        asker.join()
    assert set(errors) == {"", "stopping"}, errors


def test_no_worker_outlives_a_supervisor_that_is_killed(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS)
    with node.client() as client:
        pids = [int(row["pid"]) for row in rows(client)]
    assert node.process is not None
    node.process.kill()
    node.process.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    node.start()


def _open_files(pid: int) -> Counter[str]:
    """What the process has open, and how often."""
    return Counter(os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir())


def test_a_worker_has_nothing_of_its_supervisors_or_of_other_workers(start_node: StartNode, tmp_path: Path) -> None:
    """It is forked: what it kept of them would stay open when they are gone."""
    said = tmp_path / "said"
    http = [{"host": "127.0.0.1", "port": free_port()}]
    node = start_node(shards=SHARDS, http_listeners=http, log_prefix=str(said))
    with node.client() as client:
        before = [int(row["pid"]) for row in rows(client)]
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: said.with_suffix(".log").read_text().count("signal 9") == 1)
    with node.client() as client:
        wait_for(lambda: all(row.get("pid") not in (None, before[0]) for row in rows(client)))
        pids = [int(row["pid"]) for row in rows(client)]
        assert node.process is not None
        wait_for(lambda: "quorate-0" in Path(f"/proc/{pids[0]}/comm").read_text())
        opened = [_open_files(pid) for pid in (node.process.pid, *pids)]
    for one, other in combinations(opened, 2):
        shared = one.keys() & other.keys()
        assert not [name for name in shared if name.startswith(("socket:", "pipe:"))]
    supervisor, *workers = opened
    assert supervisor["anon_inode:[pidfd]"] == 1, "the console's"
    for worker in workers:
        assert "anon_inode:[pidfd]" not in worker
        assert worker["anon_inode:[eventpoll]"] == 1
        assert worker[str(said.with_suffix(".log"))] == 1
        assert worker[str(tmp_path / "data" / LOCK_NAME)] == 1
    assert [os.readlink(f"/proc/{pid}/fd/0") for pid in pids] == [os.devnull] * SHARDS


def test_a_reload_reaches_every_worker(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS, max_data_bytes=1000)
    with node.client() as client:
        for queue in QUEUES:
            with pytest.raises(RefusedError, match="too_large"):
                client.produce(queue, "x" * 2000)
        reload(node, max_data_bytes=5000, virtual_queue_list={"all": QUEUES})
        for queue in QUEUES:
            wait_for(partial(client.produce, queue, "x" * 2000))
        ids = client.request(Action.PRODUCE, queue="all", data=1)["msg_ids"]
        assert sorted(msg_id % 1024 for msg_id in ids) == list(range(SHARDS))


def reload(node: Node, **config: Any) -> None:
    node.config |= config
    node.config_path.write_text(json.dumps(node.config))
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)


def test_a_client_learns_where_the_shards_are_and_asks_there(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS)
    with node.client() as client:
        for n in range(40):
            client.produce(QUEUES[n % SHARDS], n, retry=60)
        first = client.request(Action.LEADER)
        ports = {row["shard"]: row["port"] for row in first["shards"]}
        assert len({*ports.values(), node.port}) == SHARDS + 1
        for shard, queue in enumerate(QUEUES):
            assert client.request(Action.LEADER, queue=queue)["leader_port"] == ports[shard]
        with Client(port=ports[1]) as direct:
            assert direct.status()["pid"] == rows(client)[1]["pid"]
            assert direct.monitor(QUEUES[2])["size"] == 13, "a worker's own port serves everything, too"
        connected = {connection.address[1] for connection in client._asking._pool._idle}
        assert connected == {node.port, *ports.values()}
        os.kill(rows(client)[1]["pid"], signal.SIGKILL)
        for n in range(60):
            queue = QUEUES[n % SHARDS]
            assert client.monitor(queue)["size"] >= 13
        second = client.request(Action.LEADER)
        assert second["version"] > first["version"]
        message = client.consume(QUEUES[1])
        assert message is not None
        assert client.confirm(message) == 1


def test_a_workers_own_port_is_kept_unless_somebody_else_has_it(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS)
    with node.client() as client:
        ports = [row["direct_port"] for row in rows(client)]
        wait_for(lambda: len(client.request(Action.LEADER)["shards"]) == SHARDS)  # each has a leader
        assert ports == [row["port"] for row in client.request(Action.LEADER)["shards"]]
    node.stop()
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[0]))
        other.listen()
        node.start()
        with node.client() as client:
            again = [row["direct_port"] for row in rows(client)]
            assert again[1:] == ports[1:]
            assert again[0] not in (0, ports[0])
            assert client.request(Action.LEADER)["shards"][0]["port"] == again[0]
    node.stop()
    node.start()
    with node.client() as client:
        assert [row["direct_port"] for row in rows(client)] == again, "what was chosen last is kept"


@pytest.mark.slow
def test_kill_9_of_everything_again_and_again_loses_nothing_of_any_shard(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS, queue_log_size=500)
    produced: dict[int, str] = {}
    stopped = threading.Event()

    def produce(number: int) -> None:
        client = node.client(5.0)
        count = 0
        while not stopped.is_set():
            count += 1
            token = f"{number}.{count}"
            try:
                produced[client.produce(QUEUES[count % SHARDS], token, retry=300)] = token
            except QuorateError:
                time.sleep(0.01)
        client.close()

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        time.sleep(0.3)
        node.kill()
        node.start()
    stopped.set()
    for thread in threads:
        thread.join()
    assert len(produced) > 50
    with node.client() as client:
        for msg_id, token in produced.items():
            assert client.show(msg_id).data == token
        consumed: set[int] = set()
        while (message := client.consume(QUEUES)) is not None:
            assert message.msg_id not in consumed
            consumed.add(message.msg_id)
        assert produced.keys() <= consumed


def test_a_client_moves_to_the_worker_of_the_shard_that_it_asks_and_notices_nothing(start_node: StartNode) -> None:
    node = start_node(shards=SHARDS)
    with node.client() as client:
        workers = {int(row["pid"]): int(row["shard"]) for row in rows(client)}
    for _ in range(8):  # the system gives connections to any worker
        with node.connect() as sock:
            reader = sock.makefile("rb")
            at: list[int] = []
            for number in range(1200):  # one that is not quiet when it should move is tried again 64 requests later
                queue = QUEUES[1] if number < 600 else QUEUES[2]
                sock.sendall(b'{"action":1,"queue":"%s","data":%d}\n' % (queue.encode(), number))
                assert json.loads(reader.readline())["queue"] == queue
                if number in (599, 1199):
                    sock.sendall(b'{"action":108}\n')
                    at.append(workers[json.loads(reader.readline())["pid"]])
            assert at == [1, 2], "at home, wherever it began"
    with node.client() as client:
        assert [row["messages"] for row in rows(client)] == [0, 4800, 4800]
        assert client.status().get("open_requests", 0) == 0, "but for the status itself"
    assert node.stop() == 0
    assert "Traceback" not in node.log
    assert "CRITICAL" not in node.log


def test_clients_that_pipeline_or_send_in_pieces_lose_nothing_when_they_move(start_node: StartNode) -> None:
    node = start_node(shards=2)
    queues = [queue_in(shard, 2) for shard in range(2)]

    def ask(number: int) -> None:
        queue = queues[number % 2]
        with node.connect() as sock:
            reader = sock.makefile("rb")
            for burst in range(60):
                data = b"".join(b'{"action":1,"queue":"%s","data":%d}' % (queue.encode(), burst) for _ in range(5))
                half = len(data) // 3
                sock.sendall(data[:half])
                if burst % 7 == 0:
                    time.sleep(0.002)
                sock.sendall(data[half:])
                for _ in range(5):
                    assert json.loads(reader.readline())["code"] == 0

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with node.client() as client:
        assert [row["messages"] for row in rows(client)] == [1800, 1800]


def test_a_worker_that_is_full_of_clients_takes_no_more_in_and_they_are_served_where_they_are(
    start_node: StartNode,
) -> None:
    node = start_node(shards=2, max_connections=20)
    queue = queue_in(0, 2)
    socks = [node.connect() for _ in range(32)]
    readers = [sock.makefile("rb") for sock in socks]
    try:
        for _ in range(100):
            for sock, reader in zip(socks, readers, strict=True):
                sock.sendall(b'{"action":1,"queue":"%s","data":1}\n' % queue.encode())
                assert json.loads(reader.readline())["code"] == 0
        for reader, sock in zip(readers[:31], socks[:31], strict=True):
            reader.close()
            sock.close()
        time.sleep(1.5)  # there is room again
        for _ in range(100):
            socks[31].sendall(b'{"action":1,"queue":"%s","data":1}\n' % queue.encode())
            assert json.loads(readers[31].readline())["code"] == 0
        socks[31].sendall(b'{"action":108}\n')
        status = json.loads(readers[31].readline())
        assert status["pid"] == status["shards"][0]["pid"]
    finally:
        for sock in socks:
            sock.close()
