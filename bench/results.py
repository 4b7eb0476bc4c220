"""python -m bench.results: Celery with its results, on Quorate and on Redis as broker and result backend, alternately.

`awaited`: empty tasks, all sent before, and their results awaited one after the other, from the first send to the last
result. `chord`: of so many empty tasks, from its send to its body's result. Both by a prefork pool of two, a second
process that sends, and servers as `bench.tasks` has them. CPU is that of worker and sender a task. `there`: how long
after it began to be stored a result reaches who waits for it (no framework).

Needs `make peers`, and redis-server on the PATH. `--rounds N`, `--tasks N`, `--chord N`.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from bench.tasks import BROKERS, PYTHON, quorate
from quorate import Client
from quorate.results import Results

MODULE: Final = """
import os
from celery import Celery
import quorate.kombu
URL = os.environ["URL"]
app = Celery("app", broker=URL, backend=URL)
app.conf.update(worker_hijack_root_logger=False, result_expires=600, broker_connection_retry_on_startup=True)
@app.task
def work(*rest):
    pass
@app.task
def body(parts):
    return len(parts)
"""

SENDER: Final = """
import os, sys, time
from celery import chord
from app import app, body, work
tasks, size = map(int, sys.argv[1:])
work.delay().get(timeout=60)
begun = time.perf_counter()
sent = [work.delay() for _ in range(tasks)]
for one in sent:
    one.get(timeout=120)
awaited = tasks / (time.perf_counter() - begun)
begun = time.perf_counter()
assert chord([work.s() for _ in range(size)], body.s())().get(timeout=120) == size
print(awaited, time.perf_counter() - begun, sum(os.times()[:2]))
sys.stdout.flush()
os._exit(0)
"""


def run(url: str, tasks: int, size: int) -> tuple[float, float, float]:
    """Awaited tasks a second, seconds for a chord, and the application's CPU a task (us)."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "app.py").write_text(MODULE)
        around = {**os.environ, "URL": url, "PYTHONPATH": folder, "PYTHONWARNINGS": "ignore"}
        words = [
            "-m",
            "celery",
            "-A",
            "app",
            "worker",
            "-c",
            "2",
            "-l",
            "error",
            "--without-gossip",
            "--without-mingle",
        ]
        worker = subprocess.Popen(
            [str(PYTHON), *words], cwd=folder, env=around, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        before = os.times()
        try:
            done = subprocess.run(
                [str(PYTHON), "-c", SENDER, str(tasks), str(size)],
                cwd=folder,
                env=around,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
        finally:
            worker.terminate()
            worker.wait()
    after = os.times()
    if done.returncode or len(done.stdout.split()) < 3:
        raise SystemExit(done.stderr)
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    awaited, chord_s, _ = map(float, done.stdout.split()[-3:])
    return awaited, chord_s, cpu_s / (tasks + size) * 1e6


def compare(rounds: int, tasks: int, size: int) -> None:
    """One table."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in BROKERS}
    for _ in range(rounds):
        for name, broker in BROKERS.items():
            with broker() as url:
                found[name].append(run(url, tasks, size))
    durable = [statistics.median(one[at] for one in found["Redis, fsynced"]) for at in (0, 1)]
    for name, figures in found.items():
        awaited, chord_s, cpu = (statistics.median(one[at] for one in figures) for at in (0, 1, 2))
        ratios = f"of Redis fsynced {awaited / durable[0]:5.2f} {durable[1] / chord_s:5.2f}"
        print(
            f"{name:18} awaited {awaited:7,.0f}/s   chord {chord_s:6.2f} s   CPU {cpu:6.0f} us   {ratios}", flush=True
        )


def there(results: int = 500) -> None:
    """How soon a result that was stored reaches who waits for it."""
    took: list[float] = []
    with quorate() as url, Client(url) as storing, Client(url) as waiting:
        stores, waits = Results(storing, "results"), Results(waiting, "results")
        for number in range(results):
            begun: list[float] = []

            def store(key: str = f"k{number}", begun: list[float] = begun) -> None:
                time.sleep(0.005)
                begun.append(time.perf_counter())
                stores.store(key, b"done", 600)

            thread = threading.Thread(target=store)
            thread.start()
            assert waits.look(f"k{number}", wait=30) is not None
            took.append(time.perf_counter() - begun[0])
            thread.join()
    took.sort()
    p50, p99 = took[len(took) // 2] * 1e3, took[int(len(took) * 0.99)] * 1e3
    print(f"a result is there {p50:.2f} ms p50, {p99:.2f} ms p99 after it began to be stored")


def main() -> None:
    """As said above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--chord", type=int, default=1000)
    asked = parser.parse_args()
    if not PYTHON.exists():
        raise SystemExit("the peers are not installed: make peers")
    there()
    compare(asked.rounds, asked.tasks, asked.chord)


if __name__ == "__main__":
    main()
