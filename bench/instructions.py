"""python -m bench.instructions: how many instructions a request costs the worker, as valgrind's callgrind counts them.

The kernel's are not in it. On a shared machine microseconds differ by half from run to run, and instructions hardly do.
What compiled code pays for looking things up by name is listed by who does it:

| what | instructions (CPython 3.11) | instead |
|---|---|---|
| a field of a Struct | 160 | `astuple`, where more than three are read; a plain class, where nothing is encoded |
| a global that is no `Final` of the module | 130 | a `Final` |
| a method through a Protocol, or of what is not compiled | 200 and more | a base class |

The node runs some 40 times slower, so all clients' requests wait when it reads, and each turn is late behind its first
request (`Runtime.is_late`): what it costs to put the others off is counted, which hardly ever happens at full speed.
Needs valgrind.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from bench.load import load
from bench.node import running_node

PORT: Final = 11_328
STAGES: Final = {
    "Connection___receive": "Connection: framing, decoding",
    "Listener___take_turn": "Listener: hand over what was read; encode replies",
    "Router___on_receive": "Router",
    "QueueOwner___on_receive": "QueueOwner: decide, apply, make entries, free replies",
    "Replicator___on_receive": "Replicator",
    "LogWriter____write": "LogWriter: the journal",
    "AsyncioRuntime____serve": "all turns",
}
BY_NAME: Final = {
    "PyObject_GetAttr": "attributes looked up by name",
    "CPyDict_GetItem": "globals and dicts",
    "PyObject_VectorcallMethod": "methods called by name",
    "_PyEval_EvalFrameDefault": "calls of what is not compiled",
}
SHOWN: Final = 12
_NAME: Final = re.compile(r"\((\d+)\)(?: (.*))?")


class Profile:
    """What callgrind noted. `self_cost` and `inclusive` by function, `calls` and `cost` by caller and callee."""

    def __init__(self, path: Path) -> None:
        self.self_cost: Counter[str] = Counter()
        self.inclusive: Counter[str] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.cost: Counter[tuple[str, str]] = Counter()
        names: dict[str, str] = {}

        def name(text: str) -> str:
            found = _NAME.match(text)
            assert found is not None, text
            if found.group(2):
                names[found.group(1)] = re.sub(r"'\d+$", "", found.group(2))
            return names[found.group(1)]

        caller = callee = ""
        lines = iter(path.read_text().splitlines())
        for line in lines:
            if line.startswith("fn="):
                caller = name(line[3:])
            elif line.startswith("cfn="):
                callee = name(line[4:])
            elif line.startswith("calls="):
                cost = int(next(lines).split()[1])
                self.calls[caller, callee] += int(line[6:].split()[0])
                self.cost[caller, callee] += cost
                if caller != callee:
                    self.inclusive[callee] += cost
            elif caller and len(parts := line.split()) > 1 and line[0] in "0123456789+-*":
                self.self_cost[caller] += int(parts[1])


def measured(protocol: str, connections: int, requests: int, batch: int, **settings: object) -> Profile:
    """A node's worker under load by a protocol, from when it is warm."""
    port = PORT
    if protocol != "quorate":
        port = PORT + 1
        settings["listeners"] = [{"protocol": protocol, "host": "127.0.0.1", "port": port}]
    with tempfile.TemporaryDirectory(prefix="quorate-callgrind-") as folder:
        out = Path(folder) / "out"
        valgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes"]
        valgrind.append(f"--callgrind-out-file={out}.%p")
        program = [*valgrind, sys.executable, "-P", "-m", "quorate_server", "supervisor"]
        with running_node(PORT, program=program, **settings) as node:
            pid = node.worker_pids[0]
            load(protocol, port, connections, max(requests // 4, 3 * connections), batch=batch)
            for words in (["-i", "on"], [], ["-i", "off"], ["-d"]):
                if words:
                    control = ["callgrind_control", *words, str(pid)]
                    subprocess.run(control, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
                else:
                    load(protocol, port, connections, requests, batch=batch)
            time.sleep(1)
        return Profile(Path(f"{out}.{pid}.1"))


def report(profile: Profile, requests: int) -> None:
    """Print it, for each request."""
    print(f"{sum(profile.self_cost.values()) / requests:8.0f} instructions a request, of the loop and of all threads")
    for part, stage in STAGES.items():
        spent = max((cost for name, cost in profile.inclusive.items() if name.endswith(f"___{part}")), default=0)
        print(f"{spent / requests:8.0f}  {stage}")
    for callee, what in BY_NAME.items():
        found = [(cost, pair) for pair, cost in profile.cost.items() if pair[1] == callee]
        count = sum(profile.calls[pair] for _, pair in found)
        print(f"\n{count / requests:8.1f}  {what}; instructions, times and by whom:")
        for cost, pair in sorted(found, reverse=True)[:SHOWN]:
            print(f"{cost / requests:8.0f} {profile.calls[pair] / requests:6.2f}  {pair[0]}")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions")
    parser.add_argument("--protocol", default="quorate", choices=("quorate", "disque", "gmq"))
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--batch", type=int, default=1, help="messages in a request")
    parser.add_argument("--flush", default="commit", choices=("commit", "interval"))
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed")
    os.environ["PYTHONHASHSEED"] = "0"
    settings = {} if arguments.flush == "commit" else {"flush": arguments.flush}
    profile = measured(arguments.protocol, arguments.connections, arguments.requests, arguments.batch, **settings)
    report(profile, arguments.requests)


if __name__ == "__main__":
    main()
