"""Load on a real node or cluster, and what is known for certain afterwards."""

import threading
import time
from collections.abc import Sequence

from quorate import Client, QuorateError, RefusedError
from tests.cluster import wait_for


class Load:
    """Threads that produce, consume and confirm through the nodes on `ports`, and note what was acknowledged.

    Every request that failed for the library's user is in `failures`.
    """

    def __init__(
        self, ports: Sequence[int], threads: int = 3, timeout: float = 10.0, queues: Sequence[str] = ("load",)
    ) -> None:
        self._queues = list(queues)
        self._ports = list(ports)
        self._timeout = timeout
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.produced: dict[int, str] = {}
        self.confirmed: dict[int, float] = {}
        self.maybe_confirmed: set[int] = set()
        self.problems: list[str] = []
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def wait_more(self, count: int) -> None:
        """Wait until so many more messages are acknowledged."""
        enough = len(self.produced) + count
        wait_for(lambda: len(self.produced) >= enough)

    def stop(self) -> None:
        """Stop the threads."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        ports = self._ports[number % len(self._ports) :] + self._ports[: number % len(self._ports)]
        client = Client(nodes=[("127.0.0.1", port) for port in ports], timeout=self._timeout)
        count = 0
        while not self._stopped.is_set():
            count += 1
            token = f"{number}.{count}"
            try:
                queue = self._queues[count % len(self._queues)]
                msg_id = client.produce(queue, token, retry=300, ttl=3000)
                with self._lock:
                    self.produced[msg_id] = token
                if count % 3:
                    self._consume(client, queue)
            except QuorateError as error:
                self.failures.append(str(error))
                time.sleep(0.01)
        client.close()

    def _consume(self, client: Client, queue: str) -> None:
        begun = time.monotonic()
        message = client.consume(queue)
        if message is None:
            return
        with self._lock:
            confirmed_at = self.confirmed.get(message.msg_id, begun)
            if confirmed_at < begun:  # what was asked for before may be a delivery that a crash made early
                again = f"delivery {message.deliveries} of {message.msg_id}"
                self.problems.append(f"{again} was asked for {begun - confirmed_at:.4f} s after its confirmation")
            self.maybe_confirmed.add(message.msg_id)
        if not client.confirm(message):
            return  # a crash made another delivery of it early, and that one is confirmed
        with self._lock:
            self.confirmed[message.msg_id] = time.monotonic()

    def check(self, client: Client) -> None:
        """Every acknowledged message is there unless it may have been confirmed, and no confirmed one is."""
        assert not self.problems, self.problems
        for msg_id, token in self.produced.items():
            if msg_id in self.maybe_confirmed and msg_id not in self.confirmed:
                continue
            try:
                shown = client.show(msg_id)
            except RefusedError as error:
                if error.error != "no_such_message":
                    raise
                assert msg_id in self.maybe_confirmed, f"acknowledged message {msg_id} is lost"
            else:
                assert msg_id not in self.confirmed, f"confirmed message {msg_id} is back"
                assert shown.data == token
