"""Applications on task queues, with real workers on real nodes: what is killed, and what becomes of its tasks."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quorate import Client
from tests.cluster import Cluster, wait_for
from tests.conftest import StartNode
from tests.faults.security import TOKENS, Authority, access_file, running
from tests.node import Node
from tests.peers.conftest import environment

APPS = Path(__file__).parent / "apps"
ATTACKS = [
    *("gevent", "foreign_dramatiq", "django_faults"),
    *("dramatiq_odd", "dramatiq_names", "dramatiq_follow_ups", "dramatiq_stops", "dramatiq_middleware"),
]
KOMBU_ATTACKS = [
    *("unused_queue", "lost_connection", "solo", "publishing", "headers", "named_queues", "unreadable"),
    *("own_exchanges", "transient_tasks", "rejected_later"),
]
CHORDS = [
    *("killed_with_the_claim", "comes_again", "killed_after_the_body_was_sent", "takes_longer_than_results_live"),
    *("odd_ids", "without_the_right_to_manage", "many_results_are_few_requests"),
]
RESULTS = ["dramatiq_results", "taskiq_results", "django_results"]
PROGRAMS = {
    **dict.fromkeys(RESULTS, "results.py"),
    **dict.fromkeys(KOMBU_ATTACKS, "kombu_attacks.py"),
    **dict.fromkeys(CHORDS, "celery_chords.py"),
}
POOLS = ["celery -P solo", "celery -P threads", "celery -P gevent", "celery -P eventlet"]

WORKERS = {
    "dramatiq": ["-m", "dramatiq", "dramatiq_app", "--processes", "1", "--threads", "4"],
    "celery": ["-m", "celery", "-A", "celery_app", "worker", "-c", "2", "--loglevel", "warning"],
    "taskiq": ["-m", "taskiq", "worker", "taskiq_app:broker", "--workers", "1", "--no-configure-logging"],
    "django": ["-m", "django", "quorate_worker", "--settings", "django_site.settings", "--concurrency", "2"],
}
TASKIQ = """
import asyncio, taskiq_app as a
async def go():
    for n in {names}:
        await a.work.kiq(n, {seconds})
    await a.broker.shutdown()
asyncio.run(go())
"""
DJANGO = """
import os; os.environ["DJANGO_SETTINGS_MODULE"] = "django_site.settings"
import django; django.setup()
from django_site import tasks
for n in {names}:
    tasks.work.enqueue(n, {seconds})
"""
SEND = {
    "dramatiq": "import dramatiq_app as a; [a.work.send(n, {seconds}) for n in {names}]",
    "celery": "import celery_app as a; [a.work.delay(n, {seconds}) for n in {names}]",
    "taskiq": TASKIQ,
    "django": DJANGO,
}


class Application:
    """One of them: `send` tasks, `work` on them, and `notes` of those that began."""

    def __init__(self, name: str, python: Path, node: Node, folder: Path) -> None:
        self.name = name
        self._python = str(python)
        self._notes = folder / "notes"
        self._environment = environment(node, PYTHONPATH=str(APPS), NOTES=str(self._notes))

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [self._python, *words],
            cwd=APPS,
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def send(self, names: list[str], seconds: float) -> None:
        self.run("-c", SEND[self.name].format(names=names, seconds=seconds))

    @contextmanager
    def working(self) -> Iterator["subprocess.Popen[bytes]"]:
        """A worker in a process group of its own, which is killed with all that it started."""
        words = [self._python, *WORKERS[self.name]]
        output = subprocess.DEVNULL
        process = subprocess.Popen(
            words, cwd=APPS, env=self._environment, start_new_session=True, stdout=output, stderr=output
        )
        try:
            yield process
        finally:
            kill(process)

    @property
    def notes(self) -> list[str]:
        return self._notes.read_text().splitlines() if self._notes.exists() else []

    def begun(self, name: str) -> int:
        return sum(1 for line in self.notes if line.split()[0] == name and line.split()[1] != "done")

    def began_at(self, name: str, time_number: int = 0) -> float:
        lines = [line.split() for line in self.notes]
        return [float(words[1]) for words in lines if words[0] == name and words[1] != "done"][time_number]

    def done(self, name: str) -> bool:
        return f"{name} done" in self.notes


def kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WORKERS))
def test_a_task_of_three_leases_runs_once_and_a_killed_workers_begins_again(
    start_node: StartNode, peers: Path, tmp_path: Path, name: str
) -> None:
    application = Application(name, peers, start_node(), tmp_path)
    application.send(["long"], 9.5)
    with application.working() as worker:
        wait_for(lambda: application.done("long"), 60)
        assert application.begun("long") == 1
        time.sleep(0.5)  # it is acknowledged
        application.send(["killed"], 30)
        wait_for(lambda: application.begun("killed") == 1, 30)
        kill(worker)
        killed_at = time.time()
    with application.working():
        wait_for(lambda: application.begun("killed") == 2, 60)
    assert application.began_at("killed", 1) < killed_at + 3 + 12, "a lease of 3 s, and what a worker takes to start"
    assert application.begun("long") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dramatiq", "celery"])
def test_each_task_runs_though_the_leader_of_three_is_killed(
    cluster: Cluster, peers: Path, tmp_path: Path, name: str
) -> None:
    ports = [node.port for node in cluster.nodes.values()]
    application = Application(name, peers, next(iter(cluster.nodes.values())), tmp_path)
    separator = ";quorate://" if name == "celery" else ","
    application._environment["QUORATE_URL"] = "quorate://" + separator.join(f"127.0.0.1:{port}" for port in ports)
    names = [f"t{n}" for n in range(40)]
    with application.working():
        application.send(names[:20], 0.2)
        wait_for(lambda: sum(map(application.done, names)) >= 5, 60)
        cluster.leader().kill()
        application.send(names[20:], 0.2)
        wait_for(lambda: all(map(application.done, names)), 90)
    twice = [one for one, count in Counter(line.split()[0] for line in application.notes).items() if count > 2]
    assert len(twice) <= 8, f"only deliveries that were not on other disks come again: {twice}"


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WORKERS))
def test_a_worker_outlives_that_nobody_leads_for_longer_than_its_requests_wait(
    cluster: Cluster, peers: Path, tmp_path: Path, name: str
) -> None:
    nodes = list(cluster.nodes.values())
    application = Application(name, peers, nodes[0], tmp_path)
    with application.working() as worker:
        application.send(["before"], 0)
        wait_for(lambda: application.done("before"), 60)
        for node in nodes[1:]:
            node.kill()
        time.sleep(16)
        assert worker.poll() is None
        for node in nodes[1:]:
            node.start()
        cluster.wait_whole()
        application.send(["after"], 0)
        wait_for(lambda: application.done("after"), 60)


@pytest.mark.slow
def test_taskiq_has_delays_priorities_queues_and_leases(start_node: StartNode, peers: Path, tmp_path: Path) -> None:
    node = start_node()
    application = Application("taskiq", peers, node, tmp_path)
    application.run("taskiq_app.py", "listeners")
    with Client(port=node.port) as client:
        client.configure("tasks", dead_letter="{tasks}.dead")
        begun = float(application.run("taskiq_app.py", "send"))
        with application.working():
            wait_for(lambda: all(map(application.done, ("plain", "urgent", "delayed", "long"))), 60)
            wait_for(lambda: client.monitor("tasks")["size"] == 0, 20)
        assert application.began_at("delayed") >= begun + 1.5
        assert application.begun("long") == 1
        reasons = " ".join((row.dead or {})["reason"] for row in client.peek("{tasks}.dead", 10))
        assert "is a text or bytes" in reasons
        assert "of.tomorrow" in reasons
        assert client.monitor("{tasks}.dead")["size"] == 3


@pytest.mark.slow
def test_djangos_tasks_run(start_node: StartNode, peers: Path, tmp_path: Path) -> None:
    node = start_node()
    application = Application("django", peers, node, tmp_path)
    sent_at = time.time()
    application.run("-m", "django_site.send")
    names = ("plain", "deferred", "urgent", "told-attempt-1", "awaited", "failing", "long")
    with Client(port=node.port) as client, application.working():
        wait_for(lambda: all(application.begun(name) for name in names) and application.done("long"), 60)
        wait_for(lambda: client.monitor("site.default")["size"] == 0, 20)
        reasons = sorted((row.dead or {})["reason"] for row in client.peek("{site.default}.dead", 10))
    assert application.began_at("deferred") >= sent_at + 1.5
    assert application.begun("long") == application.begun("failing") == 1
    assert "no use" in reasons[0]
    assert "no task" in reasons[1]


def test_messages_are_traced(start_node: StartNode, peers: Path, tmp_path: Path) -> None:
    assert Application("traced", peers, start_node(), tmp_path).run("traced.py").endswith("traced\n")


def test_celery_has_remote_control_and_a_command_and_says_what_is_wrong(
    start_node: StartNode, peers: Path, tmp_path: Path
) -> None:
    node = start_node()
    application = Application("celery", peers, node, tmp_path)
    application.send(["waits"], 0)
    table = application.run("-m", "celery", "-A", "celery_app", "quorate")
    assert [line.split() for line in table.splitlines()][1][:2] == ["celery", "1"]
    with application.working():
        wait_for(lambda: application.done("waits"), 30)
        assert "pong" in application.run("-m", "celery", "-A", "celery_app", "inspect", "ping", "-t", "5")
        bare = ["-m", "celery", "-b", f"quorate://127.0.0.1:{node.port}", "inspect", "ping", "-t", "1"]
        with pytest.raises(AssertionError, match="No nodes replied"):
            application.run(*bare)  # it has no prefix, and finds another application's
    with Client(port=node.port) as client:
        wait_for(lambda: not [name for name in client.queues("app.*pidbox*") if "bindings" not in name], 40)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["threads", "gevent", "eventlet"])
def test_celerys_other_pools_keep_leases_and_end(start_node: StartNode, peers: Path, tmp_path: Path, pool: str) -> None:
    application = Application("celery", peers, start_node(), tmp_path)
    application.send(["long"], 4.5)
    application.send([f"t{n}" for n in range(20)], 0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKERS, "celery", [*WORKERS["celery"], "-P", pool, "-c", "20"])
        with application.working() as worker:
            wait_for(lambda: application.done("long") and all(application.done(f"t{n}") for n in range(20)), 60)
            worker.terminate()
            worker.wait(20)
    assert application.begun("long") == 1, "it was longer than a lease"


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WORKERS))
def test_tasks_run_over_tls_with_a_token(tmp_path: Path, peers: Path, name: str) -> None:
    """All that it takes stands in the URL."""
    authority = Authority(tmp_path / "authority")
    access = access_file(tmp_path, worker=["produce:*", "consume:*", "look:*", "manage:*"])
    config = {"access_file": str(access), "tls": 1, "tls_cert": authority.issue("127.0.0.1")}
    with running(Node(tmp_path, config)) as node:
        application = Application(name, peers, node, tmp_path)
        ca = f"/?ssl_ca={authority.ca}" if name == "celery" else f"/?tls=1&ca={authority.ca}"
        application._environment["QUORATE_URL"] = f"quorate://:{TOKENS['worker']}@127.0.0.1:{node.port}{ca}"
        application.send(["one", "two"], 0)
        with application.working():
            wait_for(lambda: application.done("one") and application.done("two"), 60)


@pytest.mark.parametrize("attack", ATTACKS + KOMBU_ATTACKS + CHORDS + RESULTS)
def test_what_reviews_broke_holds(start_node: StartNode, peers: Path, tmp_path: Path, attack: str) -> None:
    node = start_node()
    application = Application("attacks", peers, node, tmp_path)
    assert node.process is not None
    application._environment["NODE_PIDS"] = f"{node.worker_pid} {node.process.pid}"
    program = PROGRAMS.get(attack, "attacks.py")
    assert application.run(program, attack).endswith("held\n")


def test_who_may_not_look_at_a_queue_takes_no_binding_away(peers: Path, tmp_path: Path) -> None:
    """It took it for gone: what its owner published from then on came to nobody."""
    rights = ["produce", "consume", "look", "manage"]
    own = {name: [f"{right}:{name}.*" for right in rights] for name in ("one", "two")}
    shared = [f"{right}:*kombu.bindings.*" for right in rights]
    access = access_file(tmp_path, worker=own["one"] + shared, viewer=own["two"] + shared)
    with running(Node(tmp_path, {"access_file": str(access)})) as node:
        application = Application("attacks", peers, node, tmp_path)
        for name, known in (("URL_ONE", "worker"), ("URL_TWO", "viewer")):
            application._environment[name] = f"quorate://:{TOKENS[known]}@127.0.0.1:{node.port}"
        assert application.run("kombu_attacks.py", "unseen_queues").endswith("held\n")


@pytest.mark.slow(20)
@pytest.mark.parametrize("worker", [*WORKERS, *POOLS])
def test_a_worker_without_a_task_ends_while_no_node_answers(
    start_node: StartNode, peers: Path, tmp_path: Path, worker: str
) -> None:
    """Celery's heartbeats tried to publish for ever, and its worker could not be stopped."""
    name, *pool = worker.split()
    if pool and pool[1] != "solo" and "ALL_PEERS_TESTS" not in os.environ:
        pytest.skip("the other pools take their time: ALL_PEERS_TESTS=1")
    node = start_node()
    application = Application(name, peers, node, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKERS, name, [*WORKERS[name], *pool])
        with application.working() as process:
            application.send(["before"], 0)
            wait_for(lambda: application.done("before"), 60)
            assert node.process is not None
            pids = [node.worker_pid, node.process.pid]
            try:
                for pid in pids:
                    os.kill(pid, signal.SIGSTOP)
                time.sleep(1.0)
                process.terminate()
                process.wait(10)
            finally:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_what_is_no_task_of_celerys_ends_no_worker_and_solo_acknowledges_one_by_one(
    start_node: StartNode, peers: Path, tmp_path: Path
) -> None:
    node = start_node()
    application = Application("celery", peers, node, tmp_path)
    application.send(["t0", "t1", "t2"], 1)
    solo = [*WORKERS["celery"], "-P", "solo"]
    with Client(port=node.port) as client, pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKERS, "celery", solo)
        kombus = {"body": "x", "properties": {"body_encoding": "zip"}, "headers": {}}
        garbage = [kombus, {**kombus, "headers": []}, {"body": 1, "properties": {}}, "text", b"\xff", 7]
        client.produce_many("app.celery", garbage, retry=3)
        with application.working() as worker:
            wait_for(lambda: application.begun("t2") == 1, 60)
            kill(worker)
        with application.working():
            wait_for(lambda: application.done("t2"), 60)
            wait_for(lambda: client.monitor("app.celery")["size"] == 0, 30)
        assert [application.begun(name) for name in ("t0", "t1", "t2")] == [1, 1, 2]
        assert client.monitor("{app.celery}.XQ")["size"] == len(garbage)
