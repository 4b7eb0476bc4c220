"""The options of the source and the sink, named as Kafka's connector names them, and checked. No Spark in here."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quorate.credentials import Credentials

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
IN_JSON: Final = {-2: EARLIEST, -1: LATEST}
OFFSETS_PER_TRIGGER: Final = 200_000

Place = int | str
"""Where to begin or end: a trans_id, `earliest` or `latest`."""


@dataclass(frozen=True)
class Places:
    """One for all shards, or one a shard, with `others` for those that are not named."""

    others: str
    by_shard: dict[int, Place]

    def of(self, shard: int) -> Place:
        """Where to begin or end in that shard."""
        return self.by_shard.get(shard, self.others)

    @property
    def names_latest(self) -> bool:
        """Whether any of them is only known when somebody looks."""
        return self.others == LATEST or LATEST in self.by_shard.values()


@dataclass(frozen=True)
class SourceOptions:
    """What is to be read. `servers`, or a `path` to a node's data folder or a backup. Times are Unix seconds.

    `starting` is the first trans_id that is read, `ending` the first that is not; a timestamp, where it is given, goes
    before. `group`: the reader's name, whose position is moved in the log. `topic`: its messages are read instead of
    the change log, and its partitions are what shards are there.
    """

    servers: tuple[str, ...]
    path: Path | None
    queues: frozenset[str] | None
    pattern: str | None
    shards: frozenset[int] | None
    starting: Places
    ending: Places
    starting_time: float | None
    ending_time: float | None
    offsets_per_trigger: int
    min_partitions: int
    fails_on_loss: bool
    has_data: bool
    group: str | None
    pushes_filters: bool
    timeout_s: float
    credentials: Credentials
    topic: str | None

    @property
    def part(self) -> str:
        """What the numbers of `starting` are of."""
        return "shard" if self.topic is None else "partition"


SHOWN: Final = ("token", "tls", "ca")
"""By what a node knows who reads and writes: see `quorate.credentials`."""

KNOWN: Final = frozenset(
    {
        *("bootstrap.servers", "path", "subscribe", "subscribepattern", "shards", "startingoffsets", "endingoffsets"),
        *("startingtimestamp", "endingtimestamp", "maxoffsetspertrigger", "minpartitions", "failondataloss"),
        *("includedata", "groupid", "pushfilters", "timeout", "topic", *SHOWN),
    }
)
SINK_KNOWN: Final = frozenset(
    {"bootstrap.servers", "queue", "batchsize", "refused", "timeout", "rate", "checkpointlocation", "path", *SHOWN}
)


class OptionError(ValueError):
    """An option that can't be used; the text names it and says why."""


def _lowered(options: Mapping[str, str], known: frozenset[str]) -> dict[str, str]:
    """Spark's option names have no case. An unknown one is refused: a slip would silently read something else."""
    lowered = {name.lower(): str(value) for name, value in options.items()}
    for name in lowered:
        if name not in known:
            raise OptionError(f"there is no option {name!r}; there are: {', '.join(sorted(known))}")
    return lowered


def _servers(text: str) -> tuple[str, ...]:
    servers = tuple(one.strip() for one in text.split(",") if one.strip())
    for one in servers:
        host, _, port = one.rpartition(":")
        if not host or not port.isdigit():
            raise OptionError(f"bootstrap.servers: {one!r}: HOST:PORT is wanted, several separated by commas")
    return servers


def _number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    if not text.lstrip("-").isdigit() or int(text) < least:
        raise OptionError(f"{name}: {text!r} is no whole number from {least} on")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name}: {text!r} is neither true nor false")
    return text.lower() == "true"


def _credentials(options: Mapping[str, str]) -> Credentials:
    return Credentials.of(options.get("token"), tls=_flag(options, "tls", False), ca=options.get("ca") or None)


def _time(options: Mapping[str, str], name: str) -> float | None:
    """Kafka's are milliseconds since 1970."""
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isdigit():
        raise OptionError(f"{name}: {text!r} is no count of milliseconds since 1970")
    return int(text) / 1000


def places(name: str, text: str) -> Places:
    """`earliest`, `latest`, or JSON by shard: {"0": 123}, where -2 is earliest and -1 latest. Raises `OptionError`."""
    if text.lower() in (EARLIEST, LATEST):
        return Places(text.lower(), {})
    try:
        parsed: Any = json.loads(text)
        given = {int(shard): at for shard, at in parsed.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(f'{name}: {text!r} is neither earliest, latest, nor JSON as {{"0": 123}}') from error
    for at in given.values():
        if isinstance(at, bool) or not isinstance(at, int) or (at < 0 and at not in IN_JSON):
            raise OptionError(f"{name}: {at!r} is no trans_id, and neither -2 (earliest) nor -1 (latest)")
    found: dict[int, Place] = {shard: IN_JSON.get(at, at) for shard, at in given.items()}
    return Places(EARLIEST if name == "startingOffsets" else LATEST, found)


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the source's options. Raises `OptionError` for what can't be."""
    given = _lowered(options, KNOWN)
    if given.get("topic"):
        for name in ("path", "subscribe", "subscribePattern", "shards", "pushFilters"):
            if name.lower() in given:
                raise OptionError(f"topic and {name} can't be used together")
    servers, path = _servers(given.get("bootstrap.servers", "")), given.get("path")
    if bool(servers) == bool(path):
        raise OptionError("either bootstrap.servers (HOST:PORT,...) or path (a data folder or backup) is wanted")
    if "subscribe" in given and "subscribepattern" in given:
        raise OptionError("subscribe and subscribePattern can't be used together")
    pattern = given.get("subscribepattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"subscribePattern: {pattern!r} is no regular expression: {error}") from error
    shards = given.get("shards")
    if shards is not None and not all(one.strip().isdigit() for one in shards.split(",")):
        raise OptionError(f"shards: {shards!r}: numbers are wanted, separated by commas")
    names = given.get("subscribe")
    return SourceOptions(
        servers=servers,
        path=None if path is None else Path(path),
        queues=None if names is None else frozenset(one.strip() for one in names.split(",") if one.strip()),
        pattern=pattern,
        shards=None if shards is None else frozenset(int(one) for one in shards.split(",")),
        starting=places("startingOffsets", given.get("startingoffsets", EARLIEST)),
        ending=places("endingOffsets", given.get("endingoffsets", LATEST)),
        starting_time=_time(given, "startingTimestamp"),
        ending_time=_time(given, "endingTimestamp"),
        offsets_per_trigger=_number(given, "maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER, 1),
        min_partitions=_number(given, "minPartitions", 0, 0),
        fails_on_loss=_flag(given, "failOnDataLoss", True),
        has_data=_flag(given, "includeData", True),
        group=given.get("groupid") or None,
        pushes_filters=_flag(given, "pushFilters", False),
        timeout_s=float(_number(given, "timeout", 30, 1)),
        credentials=_credentials(given),
        topic=given.get("topic") or None,
    )


@dataclass(frozen=True)
class SinkOptions:
    """Where rows go. `queue` goes before the column. `rate`: messages a second of one task; 0: as many as there can be.

    `collects`: a folder for the rows that are refused, which do not fail the job then.
    """

    servers: tuple[str, ...]
    queue: str | None
    batch_size: int
    collects: Path | None
    timeout_s: float
    credentials: Credentials
    rate: int


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read the sink's options. Raises `OptionError` for what can't be."""
    given = _lowered(options, SINK_KNOWN)
    servers = _servers(given.get("bootstrap.servers", ""))
    if not servers:
        raise OptionError("bootstrap.servers (HOST:PORT,...) is wanted")
    size = _number(given, "batchSize", 1000, 1)
    if size > 1000:
        raise OptionError(f"batchSize: {size}, and a request takes 1000 messages")
    refused = given.get("refused")
    return SinkOptions(
        servers=servers,
        queue=given.get("queue") or None,
        batch_size=size,
        collects=None if refused is None else Path(refused),
        timeout_s=float(_number(given, "timeout", 30, 1)),
        credentials=_credentials(given),
        rate=_number(given, "rate", 0, 0),
    )
