"""make demo-data: the demo, then its log archived and reported on, while the three nodes are up."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bench.cluster_nodes import running_cluster
from bench.demo import PORT, SETTINGS, Demo, asked_lines

OUT: Final = Path("quorate-demo-data")


def qctl(*words: str) -> None:
    """As a user runs it. Raises `CalledProcessError`."""
    print(f"$ qctl {' '.join(words)}", flush=True)
    subprocess.run([str(Path(sys.executable).with_name("qctl")), *words], check=True)


def main() -> int:
    """Run it; the archive and the report stay."""
    lines = asked_lines("bench.demo_data")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    begun = time.monotonic()
    with running_cluster(PORT, **SETTINGS) as cluster:
        is_well = Demo(cluster, lines).run()
        servers = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())
        qctl("data", "archive", "--servers", servers, "--out", str(OUT / "archive"), "--once")
    qctl("data", "report", "--archive", str(OUT / "archive"), "--out", str(OUT / "report"))
    print(f"read {OUT / 'report' / 'report.html'}; after {time.monotonic() - begun:.0f} s")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
