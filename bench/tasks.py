"""python -m bench.tasks: the same application of dramatiq and of Celery on Quorate and on Redis, alternately.

Empty tasks: how many are sent a second, each acknowledged before the next, and how many are run by one worker process
with eight threads (dramatiq) or a prefork pool of two (Celery), all sent before. The node has a full log. Redis keeps
its data in memory, and with `appendonly yes, appendfsync always` as durable as Quorate does; each run has a server of
its own. CPU is the application's, of all its processes. Beside that, on Quorate: by how much tasks begin late that are
all due in one second, and when a killed worker's task begins again.

Needs `make peers`, and redis-server on the PATH. `--rounds N`, `--tasks N`, `--only dramatiq celery late killed`.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.load import FULL_RECORDS, fill
from bench.node import running_node
from quorate import Client, Message, Worker

PORT: Final = 11_580
REDIS_PORT: Final = 11_590
PYTHON: Final = Path(__file__).parents[1] / "build" / "peers" / "venv" / "bin" / "python"

APPLICATION: Final = """
import os, sys, threading, time
kind, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

def dramatiq():
    import dramatiq
    if url.startswith("quorate"):
        from quorate.dramatiq import QuorateBroker as Broker
    else:
        from dramatiq.brokers.redis import RedisBroker as Broker
    broker = Broker(url=url, middleware=[])
    dramatiq.set_broker(broker)
    done, ended = [0], threading.Event()
    lock = threading.Lock()
    @dramatiq.actor
    def work():
        with lock:
            done[0] += 1
            if done[0] == count:
                ended.set()
    broker.flush_all()
    begun = time.perf_counter()
    for _ in range(count):
        work.send()
    sent = time.perf_counter()
    worker = dramatiq.Worker(broker, worker_threads=8, worker_timeout=1000)
    worker.start()
    ended.wait(300)
    ran = time.perf_counter()
    worker.stop()
    broker.close()
    return count / (sent - begun), count / (ran - sent)

def celery():
    from celery import Celery
    from celery.contrib.testing.worker import start_worker
    import quorate.kombu
    app = Celery("bench", broker=url)
    app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False)
    notes = os.environ["NOTES"]
    @app.task
    def work():
        pass
    @app.task
    def last():
        open(notes, "w").close()
    app.control.purge()
    begun = time.perf_counter()
    for _ in range(count - 1):
        work.delay()
    last.delay()
    sent = time.perf_counter()
    with start_worker(app, perform_ping_check=False, pool="prefork", concurrency=2, loglevel="error"):
        while not os.path.exists(notes):
            time.sleep(0.002)
        ran = time.perf_counter()
    os.unlink(notes)
    return count / (sent - begun), count / (ran - sent)

sent, ran = globals()[kind]()
print(sent, ran, sum(os.times()[:4]) / count * 1e6)
os._exit(0)
"""


@contextlib.contextmanager
def redis(*settings: str) -> Iterator[str]:
    """A redis-server for a block; its URL."""
    found = shutil.which("redis-server")
    if found is None:
        raise SystemExit("redis-server is not on the PATH: on Debian, apt-get install redis-server")
    with tempfile.TemporaryDirectory(prefix="quorate-bench-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        words = [found, "--port", str(REDIS_PORT), "--bind", "127.0.0.1", "--save", "", "--dir", folder, *settings]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        try:
            yield f"redis://127.0.0.1:{REDIS_PORT}/0"
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def quorate() -> Iterator[str]:
    """A node for a block; its URL."""
    with running_node(PORT, queue_log_size=FULL_RECORDS) as node:
        fill(node.port)
        yield f"quorate://127.0.0.1:{node.port}"


BROKERS: Final = {
    "Redis, in memory": lambda: redis(),
    "Redis, fsynced": lambda: redis("--appendonly", "yes", "--appendfsync", "always"),
    "Quorate, fsynced": quorate,
}


def run(kind: str, url: str, tasks: int) -> tuple[float, float, float]:
    """Sent and run a second, and the application's CPU a task (us), of all its processes, for both together."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(PYTHON), "-W", "ignore", "-c", APPLICATION, kind, url, str(tasks)],
            env={**os.environ, "NOTES": f"{folder}/last"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    words = done.stdout.split()
    if len(words) < 3:
        raise SystemExit(done.stderr)
    return float(words[-3]), float(words[-2]), float(words[-1])


def compare(kind: str, rounds: int, tasks: int) -> None:
    """One table."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in BROKERS}
    for _ in range(rounds):
        for name, broker in BROKERS.items():
            with broker() as url:
                found[name].append(run(kind, url, tasks))
    durable = [statistics.median(one[at] for one in found["Redis, fsynced"]) for at in (0, 1)]
    for name, figures in found.items():
        sent, ran, cpu = (statistics.median(one[at] for one in figures) for at in (0, 1, 2))
        ratios = f"of Redis fsynced {sent / durable[0]:5.2f} {ran / durable[1]:5.2f}"
        print(f"{kind:9} {name:18} sent {sent:8,.0f}/s   run {ran:8,.0f}/s   CPU {cpu:6.0f} us   {ratios}", flush=True)


def late(tasks: int = 1000) -> None:
    """Tasks that are all due in one second, by a `Worker` with 64 hands."""
    with quorate() as url, Client(url) as client:
        due_at = time.time() + 3
        for n in range(tasks // 10):
            client.produce_many("late", [due_at + n * 10 / tasks] * 10, delay=due_at + n * 10 / tasks)
        behind: list[float] = []

        def handle(message: Message) -> None:
            behind.append(time.time() - float(message.data))
            if len(behind) == tasks:
                worker.stop()

        worker = Worker(client, "late", handle, concurrency=64)
        worker.run()
        behind.sort()
        p50, p99 = behind[len(behind) // 2] * 1e3, behind[int(len(behind) * 0.99)] * 1e3
        print(f"late      {tasks} tasks due in one second: begin late by {p50:.0f} ms p50, {p99:.0f} ms p99")


HANDLER: Final = """
import sys, time
from quorate import Client, Worker
def handle(message):
    print("begun", flush=True)
    time.sleep(60)
Worker(Client(sys.argv[1]), "killed", handle, concurrency=1).run()
"""


def killed(lease_s: float = 3.0, rounds: int = 5) -> None:
    """How long after its worker was killed a task begins again, on another that waits."""
    took: list[float] = []
    with quorate() as url, Client(url) as client:
        for n in range(rounds):
            client.produce("killed", n, retry=lease_s)
            process = subprocess.Popen([sys.executable, "-c", HANDLER, url], stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(lease_s * (n + 1) / rounds)  # anywhere between two extensions
            process.kill()
            killed_at = time.monotonic()
            process.wait()
            process.stdout.close()
            message = client.consume("killed", wait=60)
            assert message is not None
            took.append(time.monotonic() - killed_at)
            message.confirm()
    print(f"killed    a lease of {lease_s:.0f} s: begins again after {min(took):.2f} to {max(took):.2f} s")


def main() -> None:
    """As said above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--only", nargs="*", default=["dramatiq", "celery", "late", "killed"])
    asked = parser.parse_args()
    if not PYTHON.exists():
        raise SystemExit("the peers are not installed: make peers")
    for kind in ("dramatiq", "celery"):
        if kind in asked.only:
            compare(kind, asked.rounds, asked.tasks)
    if "late" in asked.only:
        late()
    if "killed" in asked.only:
        killed()


if __name__ == "__main__":
    main()
