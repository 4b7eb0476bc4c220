"""python -m bench.console: what the console costs, and how quickly it answers.

Pages and metrics of a node with so many queues (ms, medians of five, none of them from what was listed before); the
page of a message that lives, of one that is gone, and of one that went late, in a log of so many records; 10,000 dead
letters moved back; what a first visit loads; the console's memory; and what a page and metrics that are asked for again
and again take from a node's clients (requests/s with and without, in turn); the part of a core that 20 open tabs take.

`--queues 1000 100000`, `--records 1000000`.
"""

import argparse
import http.client
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from bench.load import load
from bench.node import cpu_seconds, running_node
from quorate import Client

PORT: Final = 11_590
HTTP_PORT: Final = 11_591
STALE_S: Final = 1.1
BATCH: Final = 1000


def get(path: str) -> tuple[float, bytes]:
    """How long a page takes (s), and what it is."""
    connection = http.client.HTTPConnection("127.0.0.1", HTTP_PORT, timeout=60)
    begun = time.perf_counter()
    connection.request("GET", path)
    reply = connection.getresponse()
    body = reply.read()
    took = time.perf_counter() - begun
    connection.close()
    assert reply.status == 200, (path, reply.status, body[:300])
    return took, body


def measured(path: str) -> str:
    """A line about it."""
    found = []
    for _ in range(5):
        time.sleep(STALE_S)
        found.append(get(path))
    return f"{statistics.median(took for took, _ in found) * 1e3:8.1f} ms {len(found[0][1]):10,} bytes  {path}"


def resident_mib(pid: int) -> float:
    """What a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20


def produce_queues(client: Client, begin: int, end: int) -> None:
    """One message in each."""
    for n in range(begin, end):
        client.produce(f"queue.{n:06}", n)


def first_visit() -> None:
    """Requests and bytes."""
    body = get("/")[1]
    linked = sorted(set(re.findall(r'(?:href|src)="(/static/[^"]+)"', body.decode())))
    sizes = [len(body), *(len(get(path)[1]) for path in linked)]
    sizes.append(len(get("/samples")[1]))
    print(f"a first visit: {len(sizes)} requests, {sum(sizes):,} bytes")


def beside(port: int, rounds: int) -> None:
    """Requests/s of clients, alone and with a page open and metrics asked for each 5 s."""
    found: dict[str, list[float]] = {"alone": [], "looked at": []}
    for _ in range(rounds):
        for name, rates in found.items():
            over = threading.Event()
            looking = threading.Thread(target=look, args=(over,))
            if name == "looked at":
                looking.start()
            rates.append(load("quorate", port, 64, 150_000)["rps"])
            over.set()
            if name == "looked at":
                looking.join()
    alone, looked = (statistics.median(rates) for rates in found.values())
    print(f"64 connections: {alone:,.0f}/s alone, {looked:,.0f}/s while somebody looks: {looked / alone:.2f}")


def tabs(pid: int, count: int, seconds: float) -> None:
    """The part of a core that so many open tabs of all pages take, each of which renews itself every two seconds."""
    over = threading.Event()

    def tab(path: str) -> None:
        while not over.wait(2.0):
            get(path)
            get("/samples")

    paths = ("/", "/queues?sort=ready&down=1", "/queue?name=queue.000001", "/dead")
    threads = [threading.Thread(target=tab, args=(paths[n % len(paths)],)) for n in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    before, begun = cpu_seconds(pid), time.perf_counter()
    time.sleep(seconds)
    part = (cpu_seconds(pid) - before) / (time.perf_counter() - begun)
    over.set()
    for thread in threads:
        thread.join()
    print(f"{count} tabs: {part:.1%} of a core, {resident_mib(pid):.0f} MiB")


def look(over: threading.Event) -> None:
    """As one page and one Prometheus do."""
    at = 0
    while not over.wait(2.0):
        get("/queues")
        get("/samples")
        if at % 2 == 0:
            get("/metrics")
            get("/metrics/queues")
        at += 1


def main() -> None:
    """As said above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=int, nargs="*", default=[1000, 100_000])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    qctl = Path(sys.executable).with_name("qctl")
    with (
        running_node(PORT, queue_log_size=max(asked.records * 2, 1000), max_queues=1_000_000, flush="interval") as node,
        Client("127.0.0.1", node.port) as client,
    ):
        words = [str(qctl), "console", "--url", f"quorate://127.0.0.1:{node.port}", "--http-port", str(HTTP_PORT)]
        console = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert console.stdout is not None
        console.stdout.readline()
        try:
            print(f"the console, idle: {resident_mib(console.pid):.0f} MiB")
            client.configure("q", dead_letter="q.dead")
            first = client.produce("q", "first")
            gone = client.produce("q", "gone")
            late = client.produce("q", "late")
            messages = client.consume_many("q", 3)
            client.confirm(messages[1])
            there = 0
            for queues in asked.queues:
                produce_queues(client, there, queues)
                there = queues
                print(f"{queues:,} queues")
                for path in ("/", "/queues", "/metrics", "/metrics/queues"):
                    print(measured(path))
                if queues <= 1000:
                    beside(node.port, asked.rounds)
                    tabs(console.pid, 20, 20)
            for _ in range(10):
                client.produce_many("q", list(range(BATCH)))
                client.bury(client.consume_many("q", BATCH), "no use")
            begun = time.perf_counter()
            moved = client.move("q.dead").moved
            print(f"{moved:,} dead letters moved back in {time.perf_counter() - begun:.2f} s")
            left = asked.records - int(client.monitor("q")["log_size"])
            for _ in range(max(left, 0) // BATCH):
                client.produce_many("filler", list(range(BATCH)))
            print(f"{client.monitor('q')['log_size']:,} records in the log")
            client.confirm(late)
            for msg_id in (first, gone, late):
                print(measured(f"/message?id={msg_id}"))
            first_visit()
            print(f"the console: {resident_mib(console.pid):.0f} MiB")
        finally:
            console.terminate()
            console.wait()


if __name__ == "__main__":
    main()
