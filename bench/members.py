"""python -m bench.members: how soon others read what a member of a group had that was killed, or that has left.

Ten processes are members of one group of a topic with 100 partitions; each of those gets a message every 200 ms. One
member is killed (kill -9), and then another one leaves. Told is when each partition was read again, and how many
messages two of them have read.
"""

import argparse
import subprocess
import sys
import threading
import time
from typing import Final

from bench.node import running_node
from quorate import Client

PORT: Final = 11_343
PARTITIONS: Final = 100
MEMBERS: Final = 10
SESSION_S: Final = 6.0
MEMBER: Final = """
import signal, sys, time
from quorate import Client
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
with Client("127.0.0.1", int(sys.argv[1])) as client:
    with client.read("t", group="g", session=float(sys.argv[2])) as messages:
        for message in messages:
            print(message.partition, message.offset, time.time(), flush=True)
            if stopped:
                break
"""


class Member:
    """A process, and what it has read: when, by partition and offset."""

    def __init__(self) -> None:
        self.read: dict[tuple[int, int], float] = {}
        words = [sys.executable, "-c", MEMBER, str(PORT), str(SESSION_S)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            partition, offset, at = line.split()
            self.read[int(partition), int(offset)] = float(at)


def append(stop: threading.Event) -> None:
    """A message to each partition every 200 ms."""
    with Client("127.0.0.1", PORT) as client:
        while not stop.is_set():
            begun = time.monotonic()
            for partition in range(PARTITIONS):
                client.append("t", "x", partition=partition)
            time.sleep(max(begun + 0.2 - time.monotonic(), 0))


def read_again(members: list[Member], gone: Member, since: float) -> float:
    """Wait until others have read from each partition that the member had; how long that took (s)."""
    its = {partition for (partition, _), at in [*gone.read.items()] if at > since - 2}
    while time.time() < since + 40:
        time.sleep(0.05)
        first: dict[int, float] = {}
        for member in members:
            for (partition, _), at in [*member.read.items()]:
                if partition in its and at > since:
                    first[partition] = min(at, first.get(partition, at))
        if first.keys() >= its:
            print(f"  {len(its)} partitions")
            return max(first.values()) - since
    raise SystemExit("they are not read again")


def main() -> None:
    """Once each."""
    with running_node(PORT), Client("127.0.0.1", PORT) as client:
        client.create_topic("t", partitions=PARTITIONS)
        stop = threading.Event()
        writer = threading.Thread(target=append, args=(stop,))
        writer.start()
        members = [Member() for _ in range(MEMBERS)]
        every = members[:]
        try:
            time.sleep(25)
            lost = members.pop()
            lost.process.kill()
            took_s = read_again(members, lost, time.time())
            print(f"one of {MEMBERS} killed, session {SESSION_S:g} s: all read again in {took_s:.2f} s (wanted: 8)")
            time.sleep(10)
            left = members.pop()
            left.process.terminate()
            left.process.wait()
            took_s = read_again(members, left, time.time())
            print(f"one that leaves: all read again in {took_s:.2f} s (wanted: 1)")
            time.sleep(3)
        finally:
            stop.set()
            writer.join()
            for member in every:
                member.process.kill()
                member.process.wait()
        counts: dict[tuple[int, int], int] = {}
        for member in every:
            for place in member.read:
                counts[place] = counts.get(place, 0) + 1
        twice = sum(count > 1 for count in counts.values())
        print(
            f"{len(counts):,} messages read, {twice} of them by two (those of the killed member's last second may be)"
        )


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
