"""python -m bench.floor: what a server on uvloop costs that looks at nothing, beside beanstalkd in memory.

It answers each request with a constant that the load generator takes for a reply: what a request costs beside the
work itself, in this language, by this event loop and on this machine's network. No server like ours can take less.
"""

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from typing import cast

import uvloop

from bench.load import load
from bench.throughput import PORTS, peer

PORT = 11_329
ROUNDS = 5
REQUESTS = 96_000
ID = b'"msg_id":123456789012345'
REPLIES = {
    ord("1"): b'{"action":1,"code":0,"queue":"bench0",' + ID + b"}\n",
    ord("2"): b'{"action":2,"code":0,"queue":"bench0",' + ID + b',"data":"' + b"x" * 32 + b'","deliveries":1}\n',
    ord("3"): b'{"action":3,"code":0,"queue":"bench0",' + ID + b',"confirmed":1}\n',
}
ACTION_AT = len(b'{"action":')


class Constant(asyncio.Protocol):
    """One client's socket; each of its requests comes in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answers leave by it."""
        self._write = cast("asyncio.Transport", transport).write

    def data_received(self, data: bytes) -> None:
        """The action's number is all that is looked at."""
        self._write(REPLIES[data[ACTION_AT]])


async def serve() -> None:
    """Until the process ends."""
    server = await asyncio.get_running_loop().create_server(Constant, "127.0.0.1", PORT)
    await server.serve_forever()


def main() -> None:
    """Measure."""
    if sys.argv[1:] == ["serve"]:
        uvloop.run(serve())
    with contextlib.ExitStack() as stack:
        memory = ["beanstalkd", "-l", "127.0.0.1", "-p", str(PORTS["beanstalk"])]
        servers = {"constants": ("quorate", PORT)}
        servers |= {
            name: (one.protocol, one.port)
            for name, one in stack.enter_context(peer("beanstalk", "beanstalk", lambda folder: memory)).items()
        }
        process = stack.enter_context(subprocess.Popen([sys.executable, "-m", "bench.floor", "serve"]))
        stack.callback(process.terminate)
        time.sleep(1)
        for connections in (8, 64):
            found: dict[str, list[float]] = {name: [] for name in servers}
            for _ in range(ROUNDS):
                for name, (protocol, port) in servers.items():
                    found[name].append(load(protocol, port, connections, REQUESTS)["rps"])
            for name, rates in found.items():
                rate = statistics.median(rates)
                print(f"{connections} connections, {name}: {rate:.0f} requests/s, {1e6 / rate:.1f} us each")


if __name__ == "__main__":
    main()
