"""python -m bench.pipeline: what the data pipeline does, and what it costs the node. Takes some ten minutes.

`python -m bench.pipeline decode wire serving sink archive lifecycles report kills` runs only the parts that are named.
Logs are made in a folder under $BENCH_DIR (default: here), and removed afterwards.
"""

import contextlib
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from bench.load import load
from bench.node import cpu_seconds, running_node
from data import frames
from data.archive_folder import ArchiveFolder
from data.decode import Selection, batches
from data.schema import ARROW
from data.session import session
from quorate import Client
from storage import entry_codec
from storage.log_reader import LogReader
from storage.log_store import LogStore
from storage.message_ids import message_id
from storage.records import Confirm, Deliver, Produce, Record
from storage.tables import LmdbTables

PORT: Final = 11_420
QUEUES: Final = 100
ENTRY_RECORDS: Final = 90
TIME: Final = 1_800_000_000.0
ROUNDS: Final = 3


def make_log(folder: Path, records: int) -> Path:
    """A data folder whose log has so many records: produces of 60 bytes, deliveries, confirmations."""
    shard = folder / "shard-0"
    store = LogStore(LmdbTables(shard, map_bytes=max(records * 400, 64 << 20)), 0)
    first = 1
    while first < records:
        made: list[Record] = []
        now = TIME + first / 5000
        for _ in range(ENTRY_RECORDS // 3):
            number = first + len(made)
            queue, msg_id = f"queue-{number % QUEUES}", message_id(number, 0)
            made.append(Produce(queue, msg_id, b'"' + b"x" * 58 + b'"', now, now, now + 3600, 60.0, 0, None))
            made.append(Deliver(queue, [msg_id], [number], [now + 60], [1]))
            made.append(Confirm(queue, [msg_id], [number + 1]))
        store.store([entry_codec.stored_entry(entry_codec.encode(1, first, now, made))])
        first += len(made)
    store.close()
    return folder


def _entries(folder: Path) -> list[bytes]:
    with LogReader(folder / "shard-0") as reader:
        bounds = reader.bounds()
        return [entry for part in reader.parts(bounds.trimmed, bounds.last) for entry in part]


def _timed(what: Callable[[], object]) -> float:
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun


def decode(folder: Path) -> None:
    """Entries to Arrow, one process."""
    entries = _entries(make_log(folder / "decode", 1_000_000))

    def run() -> int:
        return sum(batch.num_rows for batch in batches(entries, 0, Selection()))

    rows = run()
    took = [_timed(run) for _ in range(2 * ROUNDS)]
    print(f"decode, one process: {rows / statistics.median(took):,.0f} records/s, best {rows / min(took):,.0f}"
          f" (wanted: 500,000)")  # fmt: skip


def _worker(supervisor: int) -> int:
    said = subprocess.run(["pgrep", "-P", str(supervisor)], capture_output=True, text=True, check=True)
    return int(said.stdout.split()[0])


def wire(folder: Path) -> None:
    """The raw log over the clients' port, and what a record costs the node, raw and as JSON."""
    with running_node(PORT) as node, Client(port=PORT, timeout=60) as client:
        for _ in range(400):
            client.produce_many("q", ["x" * 200] * 1000, retry=60)
        end = client.raw_log(0, count=1)["committed"]
        time.sleep(1.0)
        worker = _worker(node.supervisor_pid)
        rates: list[float] = []
        cpu: list[float] = []
        for _ in range(2 * ROUNDS):
            after = size = 0
            cpu_before, begun = cpu_seconds(worker), time.perf_counter()
            while after < end:
                reply = client.raw_log(after)
                size += len(reply["entries"])
                after = int(reply["last_trans_id"])
            rates.append(size / (time.perf_counter() - begun) / 1e6)
            cpu.append((cpu_seconds(worker) - cpu_before) / end * 1e6)
        cpu_before, after = cpu_seconds(worker), 0
        while after < end // 4:
            after = int(client.log(after, 1000)["last_trans_id"])
        json_us = (cpu_seconds(worker) - cpu_before) / after * 1e6
        print(f"raw log over the wire: {statistics.median(rates):.0f} MB/s, best {max(rates):.0f} (wanted: 200); the "
              f"node's CPU: {statistics.median(cpu):.3f} us a record raw, {json_us:.2f} us as JSON, "
              f"{statistics.median(cpu) / json_us:.3f} of it (wanted: 0.1)")  # fmt: skip


def _group_cpu_s(group: int) -> float:
    """What a process group's processes have used, and their children that ended."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            total += sum(map(int, fields[11:15])) if int(fields[2]) == group else 0
    return total / os.sysconf("SC_CLK_TCK")


def serving(folder: Path) -> None:
    """Requests of 8 connections while a running archive job takes the node's log, on the same cores.

    The job is held (SIGSTOP) for each measurement without it, and goes on for the one with it. First it only follows
    what the load makes, then it has a backlog besides, and takes all that it can get.
    """
    words = [str(Path(sys.executable).with_name("qctl")), "data", "archive", "--servers", f"127.0.0.1:{PORT}"]
    archive = ArchiveFolder(folder / "serving")
    words += ["--out", str(archive.path), "--master", "local[2]", "--reader", "bench"]
    with running_node(PORT), Client(port=PORT, timeout=60) as client:
        load("quorate", PORT, 8, 100_000)
        nowhere = subprocess.DEVNULL
        job = subprocess.Popen(words, start_new_session=True, stdout=nowhere, stderr=nowhere)

        def behind() -> int:
            return int(client.status()["shards"][0]["committed"]) - (archive.committed_ends() or {}).get(0, 0)

        def round_of(backlog: int) -> tuple[float, float, float]:
            while behind() > ENTRY_RECORDS:
                time.sleep(0.1)
            os.killpg(job.pid, signal.SIGSTOP)
            for _ in range(backlog // 1000):
                client.produce_many("backlog", ["x" * 100] * 1000, retry=3600)
            alone = load("quorate", PORT, 8, 60_000)["rps"]
            os.killpg(job.pid, signal.SIGCONT)
            cpu, begun = _group_cpu_s(job.pid), time.monotonic()
            beside = load("quorate", PORT, 8, 120_000)["rps"]
            return alone, beside, (_group_cpu_s(job.pid) - cpu) / (time.monotonic() - begun)

        try:
            round_of(0)  # warm
            for name, backlog in (("follows", 0), ("has a backlog of 2,000,000", 2_000_000)):
                rounds = [round_of(backlog) for _ in range(ROUNDS)]
                alone, beside, cores = (statistics.median(one) for one in zip(*rounds, strict=True))
                print(f"8 connections: {alone:.0f}/s alone, {beside:.0f}/s beside an archive job that {name} and takes "
                      f"{cores:.1f} cores: {beside / alone:.2f} (wanted: 0.7)", flush=True)  # fmt: skip
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def sink(folder: Path) -> None:
    """Keyed messages into one node with flush = commit, warm session."""
    spark = session("bench", "local[2]")
    with running_node(PORT):
        rates: list[float] = []
        for number in range(ROUNDS + 1):
            rows = spark.range(0, 200_000, 1, 2).selectExpr(
                "concat('message ', id) as data", f"concat('{number}-', id) as key", "60.0D as retry"
            )
            options = {"bootstrap.servers": f"127.0.0.1:{PORT}", "queue": f"q{number}"}
            writer = rows.write.format("quorate").options(**options).mode("append")
            rates.append(200_000 / _timed(writer.save))
        print(f"sink, keyed, into one node with flush commit: {statistics.median(rates[1:]):,.0f} messages/s, best "
              f"{max(rates):,.0f} (wanted: 30,000)")  # fmt: skip
    spark.stop()


def _plain_archive(entries: list[bytes], out: Path) -> None:
    """What one process does with pyarrow alone."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with pq.ParquetWriter(out / "plain.parquet", ARROW, compression="zstd") as writer:
        for batch in batches(entries, 0, Selection()):
            writer.write_batch(batch)


def archive(folder: Path) -> None:
    """1,000,000 records to Parquet: a warm session on one and on two cores, against a plain loop, in turn."""
    log = make_log(folder / "archive", 1_000_000)
    entries = _entries(log)
    took: dict[str, list[float]] = {"plain": [], "local[1]": [], "local[2]": []}
    for master in ("local[1]", "local[2]"):
        spark = session("bench", master)
        frame = spark.read.format("quorate").option("path", str(log)).load()

        def run(frame: Any = frame, name: str = master) -> None:
            frame.write.mode("overwrite").option("compression", "zstd").parquet(str(folder / f"out-{name[6]}"))

        run()
        for _ in range(ROUNDS + 1):
            took[master].append(_timed(run))
            took["plain"].append(_timed(lambda: _plain_archive(entries, folder / "plain")))
        spark.stop()
    best = {name: min(values) for name, values in took.items()}
    print("archive of 1,000,000 records, warm: " + ", ".join(f"{name} {value:.1f} s" for name, value in best.items())
          + f"; local[2] is {best['plain'] / best['local[2]']:.2f} of the plain loop (wanted: 0.8) and "
          f"{best['local[1]'] / best['local[2]']:.2f} times local[1] (wanted: 1.4)")  # fmt: skip


def lifecycles(folder: Path) -> None:
    """5,000,000 records, from Parquet, warm."""
    out = folder / "five" / "parquet"
    log = _five(folder)
    spark = session("bench", "local[2]")
    spark.read.format("quorate").option("path", str(log)).load().write.parquet(str(out))
    rows = frames.lifecycles(spark.read.parquet(str(out)))
    took = [_timed(lambda: rows.write.format("noop").mode("overwrite").save()) for _ in range(6)]
    print(f"lifecycles of 5,000,000 records, warm: {min(took):.1f} s, then {[round(one, 1) for one in took]} "
          f"(wanted: under 4)")  # fmt: skip
    spark.stop()


def _five(folder: Path) -> Path:
    log = folder / "five" / "log"
    return log if log.exists() else make_log(log, 5_000_000)


def report(folder: Path) -> None:
    """The whole command on 5,000,000 records, cold: from an archive, and from a data folder."""
    log = _five(folder)
    out = ArchiveFolder(folder / "five" / "archive")
    if not out.is_there:
        out.create({"format": 1})
        spark = session("bench", "local[2]")
        frame = spark.read.format("quorate").option("path", str(log)).load().withColumn("date", F.to_date("time"))
        frame.write.partitionBy("date", "shard").parquet(str(out.staged(0)))
        out.add(0)
        spark.stop()
    for name, where in (("an archive", ["--archive", str(out.path)]), ("a data folder", ["--data", str(log)])):
        words = [str(Path(sys.executable).with_name("qctl")), "data", "report", *where, "--master", "local[2]"]
        begun = time.perf_counter()
        process = subprocess.Popen([*words, "--out", str(folder / "report")], stdout=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            peak = max(peak, _tree_bytes(process.pid))
            time.sleep(0.5)
        print(f"whole report on 5,000,000 records of {name}, cold: {time.perf_counter() - begun:.0f} s (wanted: 40), "
              f"{peak / 1e9:.2f} GB at most (wanted: 3)")  # fmt: skip
        if process.returncode:
            raise RuntimeError("the report failed")


def _tree_bytes(pid: int) -> int:
    """What a process and all below it have in memory, shared pages counted in part."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total = int(line.split()[1]) * 1024
        children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    return total + sum(_tree_bytes(int(child)) for child in children.stdout.split())


def kills(folder: Path) -> None:
    """The archive job killed 10 times while 100,000 records are produced."""
    out = folder / "killed"
    words = [str(Path(sys.executable).with_name("qctl")), "data", "archive", "--servers", f"127.0.0.1:{PORT}"]
    words += ["--out", str(out), "--master", "local[2]", "--option", "maxOffsetsPerTrigger=3000"]
    with running_node(PORT), Client(port=PORT, timeout=60) as client:

        def produce() -> None:
            for _ in range(1000):
                client.produce_many("q", ["x"] * 100, retry=3600)
                time.sleep(0.1)

        thread = threading.Thread(target=produce)
        thread.start()
        doubled = 0
        for number in range(10):
            nowhere = subprocess.DEVNULL
            process = subprocess.Popen(words, start_new_session=True, stdout=nowhere, stderr=nowhere)
            time.sleep(7.5 + number % 5)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            doubled += _doubled(out)
        thread.join()
        end = client.raw_log(0, count=1)["committed"]
        subprocess.run([*words[:-2], "--once"], check=True, capture_output=True)
    found = _listed(out)
    missing = len(set(range(1, end + 1)) - {trans_id for trans_id, _ in found})
    print(f"archive killed 10 times while {end} records were made: {missing} missing, {len(found) - len(set(found))} "
          f"twice under a plain listing in the end, {doubled} after the kills (wanted: 0)")  # fmt: skip


def _listed(out: Path) -> list[tuple[int, int | None]]:
    if not any((out / "data").rglob("*.parquet")):
        return []
    found: pa.Table = ds.dataset(out / "data", format="parquet", partitioning="hive").to_table(["trans_id", "msg_id"])
    return list(zip(found["trans_id"].to_pylist(), found["msg_id"].to_pylist(), strict=True))


def _doubled(out: Path) -> int:
    found = _listed(out)
    return len(found) - len(set(found))


PARTS: Final = (decode, wire, serving, sink, archive, lifecycles, report, kills)


def main() -> int:
    """Run the parts that are named, or all."""
    named = sys.argv[1:] or [part.__name__ for part in PARTS]
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with tempfile.TemporaryDirectory(prefix="quorate-bench-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        for part in PARTS:
            if part.__name__ in named:
                part(Path(folder).absolute())
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
