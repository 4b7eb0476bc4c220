"""Real processes under real faults: kill -9 at random moments, SIGSTOP, a full disk, a restart while trimming."""

import contextlib
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate import Client, QuorateError
from tests.conftest import StartNode
from tests.faults.load import Load
from tests.node import Node
from tests.storage.damage import damage_entries

KILLS = 50
QCTL = str(Path(sys.executable).with_name("qctl"))


@pytest.mark.slow(40)
@pytest.mark.parametrize("flush", ["commit", "interval"])
def test_kill_9_at_random_moments_loses_nothing_and_brings_nothing_back(start_node: StartNode, flush: str) -> None:
    node = start_node(flush=flush, queue_log_size=500)
    load = Load([node.port], timeout=5)
    choose = random.Random(1)
    for _ in range(KILLS // 2):
        time.sleep(choose.uniform(0.02, 0.3))
        node.kill()
        node.start()
    load.stop()
    assert len(load.produced) > KILLS
    assert load.confirmed
    with node.client() as client:
        load.check(client)
    assert "Traceback" not in node.log
    assert "CRITICAL" not in node.log


def test_a_killed_worker_is_started_again_by_its_supervisor(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        msg_id = client.produce("q", "x")
        pid = node.worker_pid
        os.kill(pid, signal.SIGKILL)
        client.close()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(QuorateError):
                assert client.show(msg_id).data == "x"
                break
            time.sleep(0.05)
        assert node.worker_pid != pid
    assert "signal 9" in node.log


def test_a_reload_while_the_worker_is_being_restarted_harms_nobody(start_node: StartNode) -> None:
    node = start_node()
    assert node.process is not None
    for _ in range(2):
        os.kill(node.worker_pid, signal.SIGKILL)
        for _ in range(10):
            node.process.send_signal(signal.SIGHUP)
            time.sleep(0.01)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(QuorateError), node.client() as client:
                client.produce("q", "x")
                break
            time.sleep(0.05)
    assert node.process.poll() is None
    assert "Traceback" not in node.log


def test_a_file_that_is_not_lmdbs_stops_the_start_with_a_message(start_node: StartNode) -> None:
    node = start_node()
    assert node.stop() == 0
    data_dir = Path(str(node.config["data_dir"]))
    with (data_dir / "shard-0" / "data.mdb").open("r+b") as file:
        file.write(os.urandom(8192))
    assert "can't be used" in node.try_start()
    node.kill()
    done = subprocess.run([QCTL, "log", "verify", "-d", data_dir], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "LMDB can't open it" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_whose_supervisor_is_killed_stops_by_itself(start_node: StartNode) -> None:
    node = start_node()
    pid = node.worker_pid
    descriptor = os.pidfd_open(pid)
    assert node.process is not None
    node.process.kill()

    assert select.select([descriptor], [], [], 10)[0]
    os.close(descriptor)


def test_a_stopped_process_goes_on_where_it_was(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        client.produce("q", "before", retry=60)
        pid = node.worker_pid
        os.kill(pid, signal.SIGSTOP)
        answered: list[int] = []
        thread = threading.Thread(target=lambda: answered.append(client.produce("q", "during", retry=60)))
        thread.start()
        time.sleep(1)
        assert not answered
        os.kill(pid, signal.SIGCONT)
        thread.join(10)
        assert len(answered) == 1
        assert [m.data for m in client.consume_many("q", 5)] == ["before", "during"]


def test_sigterm_stops_in_order_within_5_seconds_and_nothing_is_lost(start_node: StartNode) -> None:
    node = start_node()
    load = Load([node.port], timeout=5)
    waiting = node.connect()
    waiting.sendall(b'{"action":2,"queue":"empty","wait":60}')
    time.sleep(0.5)
    assert node.stop(timeout=5) == 0
    assert b'"error":"stopping"' in waiting.recv(65536), "who waits may go on elsewhere"
    waiting.close()
    load.stop()
    assert "CRITICAL" not in node.log
    node.start()
    with node.client() as client:
        load.check(client)


def test_a_restart_while_the_log_is_trimmed_loses_nothing(start_node: StartNode) -> None:
    node = start_node(queue_log_size=100)
    with node.client() as client:
        for _ in range(5):
            ids = [i for _ in range(10) for i in client.produce_many("q", list(range(100)), retry=60)]
            client.confirm(ids[:500])
            client.confirm(ids[500:900])
            client.close_idle()
            node.kill()
            node.start()
        assert client.monitor("q")["size"] == 500
        assert {m.data for m in client.peek("q", 1000)} == set(range(100))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of our own with 24 MB: a tmpfs."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")  # and there is no other disk that a test may fill
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


SMALL = {"journal_segment_bytes": 1 << 20, "max_request_bytes": 128 << 10, "max_data_bytes": 64 << 10}


def fill(client: Client) -> tuple[list[int], str]:
    """Produce until that is refused; the ids of what was stored, and the refusal."""
    kept: list[int] = []
    for _ in range(3000):
        try:
            kept.append(client.produce("q", "x" * 20_000, retry=300))
        except QuorateError as error:
            return kept, str(error)
    return kept, "never refused"


def produce_when_there_is_space(client: Client) -> int:
    """Try until a produce succeeds; its id, 0 if none did in 20 s."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(QuorateError):
            return client.produce("q", "after")
    return 0


def test_a_full_disk_refuses_what_needs_space_serves_the_rest_and_recovers(start_node: StartNode, disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(12 << 20))
    node = start_node(data_dir=str(disk / "data"), queue_log_size=100, **SMALL)
    with node.client() as client:
        kept, refusal = fill(client)
        assert "disk_full" in refusal, f"{refusal}\n{node.log}"
        assert client.monitor("q")["size"] == len(kept)
        assert client.confirm(client.consume_many("q", 10)) == 10
        node.kill()
        ballast.unlink()
        node.start()
        assert produce_when_there_is_space(client)
        assert client.monitor("q")["size"] == len(kept) - 10 + 1
    assert node.stop() == 0


def test_a_full_disk_that_gets_space_again_serves_without_a_restart(start_node: StartNode, disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(14 << 20))
    node = start_node(data_dir=str(disk / "data"), **SMALL)
    with node.client() as client:
        pid = client.status()["pid"]
        _, refusal = fill(client)
        assert "disk_full" in refusal, f"{refusal}\n{node.log}"
        ballast.unlink()
        assert produce_when_there_is_space(client), node.log
        assert client.status()["pid"] == pid, "without a restart"
    assert node.stop() == 0


def test_the_second_node_on_a_folder_is_told_who_holds_it(start_node: StartNode, tmp_path: Path) -> None:
    first = start_node()
    second = Node(tmp_path, {"data_dir": first.config["data_dir"]})
    said = second.try_start()
    assert first.process is not None
    assert f"is in use by process {first.process.pid} on 127.0.0.1:{first.port}" in said
    second.kill()


def test_a_port_in_use_is_told(start_node: StartNode, tmp_path: Path) -> None:
    first = start_node()
    second = Node(tmp_path, {"data_dir": str(tmp_path / "other"), "port": first.port})
    assert "Address already in use" in second.try_start()
    second.kill()


def test_reload_takes_over_what_can_change_and_keeps_the_rest(start_node: StartNode) -> None:
    node = start_node()
    node.config_path.write_text(
        f'{{"data_dir": "{node.config["data_dir"]}", "port": {node.port + 1}, // moved\n'
        '"virtual_queue_list": {"v": ["a"]}, "max_data_bytes": 10}'
    )
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    with node.client() as client:
        while "v" not in node.log and time.monotonic() < deadline:
            time.sleep(0.01)
        while time.monotonic() < deadline:
            try:
                client.produce("v", "x" * 20)
            except QuorateError as error:
                if "too_large" in str(error):
                    break
        client.produce("v", "x")
        assert client.queues() == ["a"] or "v" in client.queues()
        assert "port was changed; that takes a restart" in node.log
        node.config_path.write_text('{"max_data_bytes": "lots"}')
        node.process.send_signal(signal.SIGHUP)
        while "stays as it was" not in node.log and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.produce("v", "y")


def test_damage_stops_the_start_with_a_message_that_names_the_repair(start_node: StartNode) -> None:
    from storage.tables import LmdbTables

    node = start_node()
    with node.client() as client:
        for number in range(20):
            client.produce("q", number, retry=60)
    assert node.stop() == 0
    folder = Path(str(node.config["data_dir"])) / "shard-0"
    tables = LmdbTables(folder)
    damage_entries(tables, 5)
    tables.close()
    said = node.try_start()
    assert "log entry 6" in said
    assert "qctl log verify" in said
    node.kill()
    data_dir = str(node.config["data_dir"])
    assert subprocess.run([QCTL, "log", "verify", "-d", data_dir], capture_output=True, check=False).returncode == 1
    repaired = subprocess.run([QCTL, "log", "repair", "-d", data_dir], capture_output=True, text=True, check=True)
    assert "19 live messages kept" in repaired.stdout
    node.start()
    with node.client() as client:
        assert client.monitor("q")["size"] == 19
