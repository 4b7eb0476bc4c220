"""qctl bench: a closed loop of produce, consume and confirm against a running node, from one process.

Each connection has one request open, and sends the next when the reply is there. Prints what `bench/` prints of its C
load generator: requests, requests a second, and the latency's mean, median, 99th percentile and maximum.
"""

import selectors
import socket
import time
from typing import Annotated

import msgspec
import typer

from cli.output import AsJson, asked_nodes, asking, credentials, fail, print_json
from quorate.protocol import Action

app = typer.Typer(add_completion=False)


def _connected(host: str, port: int) -> socket.socket:
    """Open a connection that has shown what the command's options say."""
    shown = credentials()
    sock = socket.create_connection((host, port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if shown.context is not None:
        sock = shown.context.wrap_socket(sock, server_hostname=host)
    if shown.token is not None:
        sock.sendall(msgspec.json.encode({"action": Action.AUTHENTICATE, "token": shown.token}) + b"\n")
        reply = sock.recv(65536)
        if b'"code":0' not in reply:
            raise fail(f"refused: {reply.decode()}")
    return sock


class _Connection:
    """One connection's place in the cycle."""

    def __init__(self, host: str, port: int, queue: str, data: str, retry: float) -> None:
        self.socket = _connected(host, port)
        self.step = 0
        self.sent_at = 0.0
        self.done = 0
        name = queue.encode()
        self._produce = b'{"action":1,"queue":"%b","retry":%b,"data":"%b"}\n' % (name, b"%g" % retry, data.encode())
        self._consume = b'{"action":2,"queue":"%b"}\n' % name
        self._confirm = b'{"action":3,"queue":"%b","msg_id":%%b}\n' % name
        self._msg_id = b""
        self._received = b""

    def send(self) -> None:
        """Send the cycle's next request."""
        if self.step == 0:
            request = self._produce
        elif self.step == 1:
            request = self._consume
        else:
            request = self._confirm % self._msg_id
        self.sent_at = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Take what has come; True when the reply is whole. Raises ValueError for a refusal, OSError when closed."""
        part = self.socket.recv(65536)
        if not part:
            raise ConnectionResetError("the node closed the connection")
        self._received += part
        if not self._received.endswith(b"\n"):
            return False
        reply, self._received = self._received, b""
        if b'"code":0' not in reply:
            raise ValueError(reply.decode())
        if self.step == 1:
            at = reply.find(b'"msg_id":')
            if at < 0:
                self.step = 0  # another connection had it
                return True
            self._msg_id = reply[at + 9 :].split(b",", 1)[0]
        self.step = (self.step + 1) % 3
        return True


@app.command()
@asking
def bench(
    connections: Annotated[int, typer.Option("--connections", "-c", min=1, max=10_000)] = 8,
    requests: Annotated[int, typer.Option("--requests", "-n", min=3, help="In all.")] = 30_000,
    queues: Annotated[int, typer.Option(min=1, help="Spread over so many queues.")] = 1,
    size: Annotated[int, typer.Option(min=0, help="Bytes of each message's data.")] = 32,
    retry: Annotated[float, typer.Option(min=0, help="Seconds; 0: at most once.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Measure a running node: produce, consume and confirm in a closed loop."""
    asked = asked_nodes()[0]
    selector = selectors.DefaultSelector()
    data = "x" * size
    each = max(requests // connections, 3)
    latencies: list[float] = []
    open_connections = [
        _Connection(*asked, f"qctl-bench-{index % queues}", data, retry) for index in range(connections)
    ]
    begun = time.perf_counter()
    for connection in open_connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        connection.send()
    left = connections
    while left:
        for key, _ in selector.select(30):
            connection = key.data
            try:
                if not connection.receive():
                    continue
            except ValueError as error:
                raise fail(f"refused: {error}") from error
            latencies.append(time.perf_counter() - connection.sent_at)
            connection.done += 1
            if connection.done >= each and connection.step == 0:
                selector.unregister(connection.socket)
                connection.socket.close()
                left -= 1
            else:
                connection.send()
    took_s = time.perf_counter() - begun
    latencies.sort()
    result = {
        "requests": len(latencies),
        "connections": connections,
        "seconds": round(took_s, 3),
        "requests_per_s": round(len(latencies) / took_s),
        "avg_us": round(sum(latencies) / len(latencies) * 1e6),
        "p50_us": round(latencies[len(latencies) // 2] * 1e6),
        "p99_us": round(latencies[len(latencies) * 99 // 100] * 1e6),
        "max_us": round(latencies[-1] * 1e6),
    }
    if as_json:
        print_json(result)
    else:
        print(" ".join(f"{name} {value}" for name, value in result.items()))
