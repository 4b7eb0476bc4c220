"""python -m bench.journal: why there is a journal: what one durable commit of a small entry costs, in three ways."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from storage.real_disk import RealFolder
from storage.tables import LOG, LmdbTables

COMMITS = 2000
ENTRY = b"x" * 400


def measure(what: str, commit: Callable[[int], None]) -> None:
    """Time `COMMITS` commits."""
    begun = time.perf_counter()
    for number in range(COMMITS):
        commit(number)
    print(f"{what}: {(time.perf_counter() - begun) / COMMITS * 1e6:.0f} us")


def main() -> None:
    """Run it."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR", ".")) as name:
        tables = LmdbTables(Path(name) / "lmdb")

        def in_lmdb(number: int) -> None:
            with tables.write() as transaction:
                transaction.append(LOG, [(number.to_bytes(8, "big"), ENTRY)])

        folder = RealFolder(Path(name) / "journal")
        file = folder.create("file", COMMITS * 4096 * 2)

        def flushed(number: int) -> None:
            file.write_at(number * 512, ENTRY)
            file.flush()

        def direct(number: int) -> None:
            file.write_durably_at((COMMITS + number) * 4096, ENTRY.ljust(4096, b"\0"))

        measure("LMDB commit", in_lmdb)
        measure("write and fdatasync, into space that is there", flushed)
        measure(f"one direct durable write (alignment {folder.alignment})", direct)
        tables.close()
        file.close()


if __name__ == "__main__":
    main()
