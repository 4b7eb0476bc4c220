"""A real ZooKeeper for tests and benchmarks: that of PySpark's jars, on loopback."""

import os
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from data.java import java_home

JARS: Final = (
    "zookeeper-3.*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
)
FLAGS: Final = (
    *("-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.jmx.log4j.disable=true"),
)
SETTINGS: Final = """tickTime=200
minSessionTimeout=400
maxSessionTimeout=60000
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
4lw.commands.whitelist=
"""

CONNECT: Final = b"".join(
    [(44).to_bytes(4, "big"), bytes(12), (30_000).to_bytes(4, "big"), bytes(8), (16).to_bytes(4, "big"), bytes(16)]
)
"""A client's first request: a new session of 30 s."""

START_S: Final = 60.0


class ZooKeeper:
    """One server on a port, whose data are in `folder`. `start` it, `kill` it, `start` it again."""

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port
        self._log = folder / "zookeeper.log"
        self._settings = folder / "zoo.cfg"
        self._settings.write_text(SETTINGS.format(data=folder / "data", port=self.port))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *about: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        """Where it is."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it serves."""
        spark = find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        jars = Path(spark.origin).parent / "jars"
        classes = ":".join(str(next(jars.glob(name))) for name in JARS)
        home = java_home()
        java = "java" if home is None else str(home / "bin" / "java")
        command = [java, *FLAGS, "-cp", classes, "org.apache.zookeeper.server.ZooKeeperServerMain", str(self._settings)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "JAVA_TOOL_OPTIONS": ""}
            )
        until = time.monotonic() + START_S
        while not self._serves():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until, self._log.read_text()
            time.sleep(0.05)

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                sock.sendall(CONNECT)
                return len(sock.recv(4)) == 4
        except OSError:
            return False

    def kill(self) -> None:
        """Kill it, as -9 does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(20)
            self._process = None
