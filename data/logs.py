"""Where the change log is read from: a cluster, any node of it, or a node's data folder, beside the node or a backup.

Both give entries as they are stored, by shard. No Spark in here.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

import pyarrow as pa

from data.decode import Selection, batches, split_entries
from data.options import SourceOptions
from quorate import Client, QuorateError, RefusedError
from quorate.credentials import Credentials
from quorate.protocol import DOWN, ErrorWord
from storage.entry_codec import entry_time, stored_entry
from storage.log_reader import LogReader, shards_in

PAUSE_S: Final = 0.02
ONE_S: Final = 2.0
"""For so long one node of several is asked."""


class Range(NamedTuple):
    """The records that a shard's log holds: `first` up to `end`, which is not among them."""

    first: int
    end: int


class TrimmedError(RuntimeError):
    """Records that are wanted are not kept any more."""

    def __init__(self, shard: int, wanted: int, first: int, part: str = "shard") -> None:
        what = "record" if part == "shard" else "message"
        super().__init__(
            f"{part} {shard}: {what} {wanted} is wanted, and the first that is kept is {first}: the {what}s between "
            f"are lost to this reader (failOnDataLoss=false goes on at {first})"
        )
        self.shard, self.wanted, self.first = shard, wanted, first


class ShardDownError(RuntimeError):
    """A shard's log can't be read now."""

    def __init__(self, shard: int, fault: str) -> None:
        super().__init__(f"shard {shard} is down, and without it the log is not whole: {fault}")
        self.shard = shard


class Log(Protocol):
    """All shards' logs."""

    def ranges(self) -> dict[int, Range]:
        """Say what each shard's log holds now, up to its commit point."""

    def first_since(self, shard: int, since: float) -> int:
        """Find the first record made at `since` (Unix seconds) or later; the end if there is none."""

    def rows(self, shard: int, first: int, end: int, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Read the records from `first` up to `end`, as rows. Raises `TrimmedError`."""

    def hold(self, reader: str, places: dict[int, int]) -> None:
        """Keep what comes behind these records, by shard, for `reader`, where it is not known where that is."""

    def moved(self, reader: str, places: dict[int, int]) -> None:
        """Note that `reader` has all records of each shard up to these."""

    def close(self) -> None:
        """Give it back."""


class ClusterLog:
    """Over the clients' port of any of `servers`."""

    def __init__(self, servers: tuple[str, ...], timeout_s: float, credentials: Credentials) -> None:
        self._client = Client(nodes=list(servers), timeout=timeout_s, credentials=credentials)
        self._each = [
            Client(nodes=[server], timeout=min(timeout_s, ONE_S), credentials=credentials) for server in servers
        ]
        self._timeout_s = timeout_s

    def ranges(self) -> dict[int, Range]:
        """As the node says that knows most: one that is cut off would take an old end for the end.

        Raises `ShardDownError` for a shard that no node has: what there is of the others would be taken for all.
        """
        found: dict[int, Range] = {}
        down: dict[int, str] = {}
        for status in self._statuses():
            for shard in status["shards"]:
                if shard["role"] == DOWN:
                    down[int(shard["shard"])] = str(shard["fault"])
                    continue
                number, held = int(shard["shard"]), Range(int(shard["first_trans_id"]), int(shard["committed"]) + 1)
                if number not in found or held.end > found[number].end:
                    found[number] = held
        for number, fault in down.items():
            if number not in found:
                raise ShardDownError(number, fault)
        return found

    def _statuses(self) -> list[dict[str, Any]]:
        """Of all nodes that answer. Raises `QuorateError` if none does."""
        found: list[dict[str, Any]] = []
        for client in self._each:
            with contextlib.suppress(QuorateError):
                found.append({**client.status()})
        return found or [{**self._client.status()}]

    def cluster_id(self) -> str:
        """Which cluster it is: another one has another log."""
        shards = [shard for status in self._statuses() for shard in status["shards"] if "cluster_id" in shard]
        return str(shards[0]["cluster_id"]) if shards else ""

    def first_since(self, shard: int, since: float) -> int:
        """By halving: some twenty requests for one entry."""
        low, end = self.ranges()[shard]
        while low < end:
            middle = (low + end) // 2
            reply = self._client.raw_log(middle - 1, shard, count=1)
            data = next(split_entries(reply["entries"]), None)
            if data is None or entry_time(data) >= since:
                end = middle
            else:
                low = int(reply["last_trans_id"]) + 1
        return low

    def entries(self, shard: int, first: int, end: int) -> Iterator[bytes | memoryview]:
        """Part after part."""
        after = first - 1
        patience_until = time.monotonic() + self._timeout_s
        while after < end - 1:
            reply = self._part(shard, after)
            yield from split_entries(reply["entries"])
            if int(reply["last_trans_id"]) == after:  # another node than the one that said where the end is
                if time.monotonic() > patience_until:
                    raise TimeoutError(f"shard {shard}: no node has record {end - 1} after {self._timeout_s:g} s")
                time.sleep(PAUSE_S)
                continue
            after = int(reply["last_trans_id"])
            patience_until = time.monotonic() + self._timeout_s

    def _part(self, shard: int, after: int) -> dict[str, Any]:
        """From any node; what one of them has trimmed another may still hold. Raises `TrimmedError` if none does."""
        firsts: list[int] = []
        for client in (self._client, *self._each):
            try:
                return {**client.raw_log(after, shard)}
            except RefusedError as refused:
                if refused.error != ErrorWord.TRIMMED:
                    raise
                firsts.append(cast("int", refused.reply["first_trans_id"]))
            except QuorateError:
                if client is self._client:
                    raise
        raise TrimmedError(shard, after + 1, min(firsts))

    def rows(self, shard: int, first: int, end: int, selection: Selection) -> Iterator[pa.RecordBatch]:
        """From the entries."""
        wanted = replace(selection, after=first - 1, upto=end - 1)
        return batches(self.entries(shard, first, end), shard, wanted)

    def hold(self, reader: str, places: dict[int, int]) -> None:
        """Let the log keep what comes behind them for `reader`, where it does not know where that is."""
        self.moved(reader, {shard: at for shard, at in places.items() if self._client.position(reader, shard) is None})

    def moved(self, reader: str, places: dict[int, int]) -> None:
        """Into the log itself."""
        for shard, upto in places.items():
            self._client.set_position(reader, upto, shard)

    def close(self) -> None:
        """Close the connections."""
        for client in (self._client, *self._each):
            client.close()


class FolderLog:
    """The shards in a node's data folder, or in a backup: what LMDB holds."""

    def __init__(self, path: Path) -> None:
        self._folders = shards_in(path)

    def ranges(self) -> dict[int, Range]:
        """Say what LMDB holds."""
        found: dict[int, Range] = {}
        for shard, folder in self._folders.items():
            with LogReader(folder) as reader:
                trimmed, last = reader.bounds()
            found[shard] = Range(trimmed + 1, last + 1)
        return found

    def first_since(self, shard: int, since: float) -> int:
        """By halving."""
        with LogReader(self._folders[shard]) as reader:
            return reader.first_since(since)

    def entries(self, shard: int, first: int, end: int) -> Iterator[bytes | memoryview]:
        """Read them. The environment is opened and closed here: LMDB wants one a process."""
        with LogReader(self._folders[shard]) as reader:
            kept = reader.bounds().trimmed + 1
            if first < kept:
                raise TrimmedError(shard, first, kept)
            after = first - 1
            for part in reader.parts(after, end - 1):
                begins = stored_entry(part[0]).first_trans_id
                if begins > after + 1:  # the node has trimmed meanwhile
                    raise TrimmedError(shard, after + 1, begins)
                after = stored_entry(part[-1]).last_trans_id
                yield from part

    def rows(self, shard: int, first: int, end: int, selection: Selection) -> Iterator[pa.RecordBatch]:
        """From the entries."""
        wanted = replace(selection, after=first - 1, upto=end - 1)
        return batches(self.entries(shard, first, end), shard, wanted)

    def hold(self, reader: str, places: dict[int, int]) -> None:
        """Keep nothing for anybody: a folder is only read."""

    def moved(self, reader: str, places: dict[int, int]) -> None:
        """As `hold`."""

    def close(self) -> None:
        """Nothing is open."""


def open_records(options: SourceOptions) -> ClusterLog | FolderLog:
    """Open the change log that the options name. Raises `StorageError` for a path that holds none."""
    if options.path is not None:
        return FolderLog(options.path)
    return ClusterLog(options.servers, options.timeout_s, options.credentials)
