"""Java as tests start it: Spark's takes 13 s of a processor for an archive job of five records, and tests start thirty.

It compiles lightly (what runs for ten seconds takes 0.6 of the processor's time so), and finds the classes that Spark
loads in an archive of Java's own (CDS), which `python -m tests.quick_java` makes once: with it that job takes 7 s of a
processor. Where there is no such archive, or it is another Java's, Java does without.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

CLASSES: Final = Path(sys.prefix) / "spark.jsa"
"""Java's archive of classes."""

LIGHT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WITHIN_S: Final = 180
"""So long Java may take to write its archive when it ends."""


def start_quickly() -> None:
    """Have all of Spark's Javas started so from here on, by this process and its children."""
    classes = f" -XX:SharedArchiveFile={CLASSES} -Xlog:disable" if CLASSES.exists() else ""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", LIGHT + classes)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", LIGHT)


def _archive_and_report(folder: Path) -> None:
    """Do in one Java what most tests do, and end it as Java wants to be ended to write down what it has loaded."""
    from pyspark import SparkContext

    from data.jobs import archive, report
    from data.session import session
    from tests.node import Node

    node = Node(folder, {})
    node.start()
    try:
        with node.client() as client:
            client.produce("q", 1)
        spark = session("classes", "local[2]", partitions=2)
        options = {"bootstrap.servers": f"127.0.0.1:{node.port}"}
        archive.run(spark, options, folder / "archive", once=True)
        archive.compact(spark, folder / "archive")
        report.run(spark, archive.archived(spark, folder / "archive"), folder / "report", source="classes")
        gateway: Any = SparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(WITHIN_S)
    finally:
        node.kill()


def main() -> None:
    """Make the archive, unless it is there."""
    if CLASSES.exists():
        return
    part = CLASSES.with_suffix(".part")
    part.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{LIGHT} -XX:ArchiveClassesAtExit={part} -Xlog:disable"
    with tempfile.TemporaryDirectory() as folder:
        _archive_and_report(Path(folder))
    if part.exists():
        part.replace(CLASSES)


if __name__ == "__main__":
    main()
