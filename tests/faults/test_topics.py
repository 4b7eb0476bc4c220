"""Topics on three real nodes whose leaders are killed: what was acknowledged is there, once, in one place on all."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quorate import Client, Message, QuorateError, TopicMessage, TopicWorker
from quorate.hands import Backoff
from tests.cluster import Cluster, wait_for

KILLS = 4
PARTITIONS = 4
JOBS, DONE = "{t}.jobs", "{t}.done"
LOG_RECORDS = 500
"""So short a log that its head goes again and again: most of what is appended is in blocks by the end."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, 3, {"queue_log_size": LOG_RECORDS})
    made.start()
    yield made
    made.kill()


class Work:
    """Appenders with numbers, a group of readers, and readers without one; and workers, who confirm a job, append what
    came of it and produce it in one transaction: until `stop`."""

    def __init__(self, cluster: Cluster) -> None:
        self.nodes = [f"127.0.0.1:{node.port}" for node in cluster.nodes.values()]
        self.stop = threading.Event()
        self.appended: dict[tuple[int, int], Any] = {}
        self.seen: dict[tuple[int, int], set[Any]] = {}
        self.by_group: list[Any] = []
        self.jobs = 0
        self.problems: list[str] = []
        self.threads = [
            *(threading.Thread(target=self.run, args=(self.append, name)) for name in ("a", "b")),
            *(threading.Thread(target=self.run, args=(self.read_as_member, name)) for name in ("c", "d")),
            *(threading.Thread(target=self.run, args=(self.follow, node)) for node in self.nodes),
            *(threading.Thread(target=self.run, args=(self.work, name)) for name in ("e", "f")),
        ]

    def run(self, what: Any, argument: str) -> None:
        try:
            what(argument)
        except Exception as error:
            self.problems.append(f"{what.__name__} {argument}: {error!r}")

    def append(self, name: str) -> None:
        """Each message is asked for until it is acknowledged."""
        with Client(nodes=self.nodes, timeout=30) as client:
            number = 0
            while not self.stop.is_set():
                number += 1
                data = [f"{name}.{number}.{place}" + "x" * 300 for place in range(3)]
                for place in client.append_many("t", data, producer=name, number=number):
                    if place.is_duplicate:
                        continue  # an earlier try of this request was done: it is counted below
                for at, place in enumerate(client.append_many("t", data, producer=name, number=number)):
                    assert place.is_duplicate
                    self.appended[place.partition, place.offset] = data[at]

    def work(self, name: str) -> None:
        """Some transactions end with something that can't be done: nothing of those may be there."""
        with Client(nodes=self.nodes, timeout=20) as client:
            count = 0
            while not self.stop.is_set():
                count += 1
                job = f"{name}.job.{count}"
                with suppress(QuorateError):
                    client.produce(JOBS, job, retry=3, key=job)
                    self.jobs += 1
                with suppress(QuorateError):
                    if (taken := client.consume(JOBS, wait=1)) is not None:
                        self.transact(client, taken, fails=count % 5 == 0)

    @staticmethod
    def transact(client: Client, job: Message, *, fails: bool) -> None:
        with client.transaction() as one:
            one.append("t", f"never {job.data}" if fails else f"of {job.data}", key=job.key)
            one.confirm(job)
            one.produce(DONE, f"never {job.data}" if fails else job.data)
            if fails:
                one.confirm(999_999)

    def read_as_member(self, _: str) -> None:
        while not self.stop.is_set():
            try:
                with (
                    Client(nodes=self.nodes, timeout=20) as client,
                    client.read("t", group="g", session=6, count=20) as messages,
                ):
                    for message in messages:
                        self.by_group.append(message.data)
                        if self.stop.is_set():
                            break
            except QuorateError:
                time.sleep(0.1)

    def follow(self, node: str) -> None:
        """As far as that node knows, from the beginning on."""
        at = [0] * PARTITIONS
        while not self.stop.is_set():
            for partition in range(PARTITIONS):
                try:
                    with Client(node, timeout=2) as client:
                        part = client.read_part("t", partition, at[partition], count=200)
                except QuorateError:
                    time.sleep(0.1)
                    continue
                at[partition] = part.next
                for message in part.messages:
                    self.seen.setdefault((partition, message.offset), set()).add(message.data)


def raw_frames(port: int, partition: int) -> bytes:
    """All bytes of a partition, as one node tells them."""
    frames = b""
    offset = 0
    with socket.create_connection(("127.0.0.1", port), 20) as sock, sock.makefile("rb") as file:
        while True:
            asked = {"action": 28, "topic": "t", "partition": partition, "offset": offset, "raw": True}
            sock.sendall(msgspec.json.encode(asked) + b"\n")
            reply = msgspec.json.decode(file.readline())
            assert reply["code"] == 0, reply
            assert not reply["bytes"] or reply["position"] == len(frames)
            frames += file.read(reply["bytes"])
            if reply["next"] == offset:
                return frames
            offset = reply["next"]


@pytest.mark.slow(60)
def test_kill_9_of_leaders_under_all_of_it_loses_nothing_and_all_nodes_have_the_same(cluster: Cluster) -> None:
    with Client(nodes=[f"127.0.0.1:{node.port}" for node in cluster.nodes.values()], timeout=20) as client:
        client.create_topic("t", partitions=PARTITIONS)
        work = Work(cluster)
        for thread in work.threads:
            thread.start()
        for _ in range(KILLS):
            before = len(work.appended)
            wait_for(lambda before=before: len(work.appended) > before + 60, 40)  # type: ignore[misc]
            leader = cluster.leader()
            leader.kill()
            time.sleep(0.5)
            leader.start()
            cluster.wait_whole()
        end = len(work.appended)
        wait_for(lambda: len(work.appended) > end + 60, 40)
        work.stop.set()
        for number in range(PARTITIONS):  # who waits for a message gets one
            client.append("t", "end", partition=number)
        for thread in work.threads:
            thread.join(60)
        assert not work.problems
        left, done = (
            [message.data for state in ("ready", "delayed", "in_flight") for message in client.browse(queue, state)]
            for queue in (JOBS, DONE)
        )
        ends = {row.partition: row.next for row in client.topic("t").partitions}
        there: dict[tuple[int, int], Any] = {}
        for message in client.read("t"):
            there[message.partition, message.offset] = message.data
    assert sorted(there) == [(index, offset) for index in range(PARTITIONS) for offset in range(ends[index])]
    lost = {place: data for place, data in work.appended.items() if there.get(place) != data}
    assert not lost
    datas = [data for data in there.values() if data != "end"]
    assert len(datas) == len({*datas}), "what has a number is there once"
    assert all(datas == {there[place]} for place, datas in work.seen.items()), "nobody saw what was undone"
    appended = [data for data in datas if data.startswith("of ")]
    assert sorted(appended) == sorted(f"of {job}" for job in done), "a transaction is there whole, or not at all"
    assert not {*left} & {*done}
    assert not [one for one in (*datas, *done) if one.startswith("never ")]
    assert len(done) > 20
    assert len(done) + len(left) >= work.jobs, "no job is lost"
    assert {*work.by_group} <= {*there.values()}

    def read_everywhere() -> bool:
        for partition in range(PARTITIONS):
            frames = {raw_frames(node.port, partition) for node in cluster.nodes.values()}
            assert len(frames) == 1
        return True

    assert wait_for(read_everywhere, 40)


@pytest.mark.slow(30)
def test_workers_of_a_topic_handle_all_of_it_and_bury_what_always_fails_once_though_leaders_are_killed(
    cluster: Cluster,
) -> None:
    nodes = [f"127.0.0.1:{node.port}" for node in cluster.nodes.values()]
    handled: dict[int, int] = {}
    tried: dict[int, int] = {}

    def handle(message: TopicMessage) -> None:
        tried[message.data] = tried.get(message.data, 0) + 1
        if message.data % 10 == 3:
            raise ValueError("it always fails")
        handled[message.data] = handled.get(message.data, 0) + 1

    with Client(nodes=nodes, timeout=30) as client:
        client.create_topic("t", partitions=PARTITIONS)
        clients = [Client(nodes=nodes, timeout=20) for _ in range(2)]
        backoff = Backoff(0.05, 0.2)
        workers = [TopicWorker(one, "t", "w", handle, tries=3, session=6, backoff=backoff) for one in clients]
        threads = [threading.Thread(target=worker.run) for worker in workers]
        for thread in threads:
            thread.start()
        count = 0
        for _ in range(3):
            for _ in range(100):
                client.append("t", count, key=f"k{count % 17}", producer="p", number=count + 1)
                count += 1
            leader = cluster.leader()
            leader.kill()
            time.sleep(0.5)
            leader.start()
            cluster.wait_whole()
        bad = {number for number in range(count) if number % 10 == 3}
        wait_for(lambda: {*handled} == {*range(count)} - bad, 60)
        wait_for(lambda: client.monitor("w.dead.{t}")["size"] == len(bad), 60)
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        for one in clients:
            one.close()
        dead = [message.data for message in client.browse("w.dead.{t}", "ready")]
        assert sorted(dead) == sorted(bad), "each once"
        assert client.monitor("w.retry.{t}")["size"] == 0
        assert all(tried[number] >= 3 for number in bad)
        assert {row.partition: row.position for row in client.group("t", "w").partitions or ()} == {
            row.partition: row.next for row in client.topic("t").partitions
        }
