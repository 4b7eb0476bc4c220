"""Which records are read by whom: offsets, their bounds, and ranges cut into partitions. No Spark in here.

An offset is the first record of a shard that is not read yet, so an end is exclusive.
"""

import json
from collections.abc import Mapping
from typing import Final

from data.logs import Log, Range, TrimmedError
from data.options import EARLIEST, LATEST, Places, SourceOptions, source_options
from data.topics import open_log

Offsets = dict[str, int]
"""By shard, whose number is a text, since Spark keeps offsets as JSON."""

PART_RECORDS_MIN: Final = 20_000
PART_RECORDS_MAX: Final = 250_000
PARTS: Final = 8


def chosen(ranges: Mapping[int, Range], options: SourceOptions) -> dict[int, Range]:
    """Choose the shards that are wanted. Raises ValueError for one that there is not."""
    if options.shards is None:
        return dict(ranges)
    missing = sorted(options.shards - set(ranges))
    if missing:
        raise ValueError(f"shards: there is no shard {missing[0]}; there are {sorted(ranges)}")
    return {shard: ranges[shard] for shard in sorted(options.shards)}


def resolved(log: Log, ranges: Mapping[int, Range], places: Places, since: float | None) -> Offsets:
    """Each shard's offset: as `places` say, or where what was made at `since` (Unix seconds) begins."""
    found: Offsets = {}
    for shard, held in ranges.items():
        place = places.of(shard)
        if since is not None:
            found[str(shard)] = log.first_since(shard, since)
        else:
            found[str(shard)] = held.first if place == EARLIEST else held.end if place == LATEST else int(place)
    return found


def start_in_numbers(options: Mapping[str, str]) -> str:
    """Make the option `startingOffsets` that says what the given options say, without `latest` and without a time."""
    parsed = source_options(options)
    if parsed.starting_time is None and not parsed.starting.names_latest:
        return next((value for name, value in options.items() if name.lower() == "startingoffsets"), EARLIEST)
    log = open_log(parsed)
    try:
        return json.dumps(resolved(log, chosen(log.ranges(), parsed), parsed.starting, parsed.starting_time))
    finally:
        log.close()


def started_at(options: Mapping[str, str], starting: str) -> dict[str, str]:
    """Put that `startingOffsets` into the options, instead of however else the beginning was said."""
    said = ("startingoffsets", "startingtimestamp")
    return {**{name: value for name, value in options.items() if name.lower() not in said}, "startingOffsets": starting}


def within(offsets: Offsets, ranges: Mapping[int, Range], options: SourceOptions) -> Offsets:
    """Move the offsets to what is kept at least. Raises `TrimmedError` for one that is before it, unless that is no
    fault."""
    found: Offsets = {}
    for shard, held in ranges.items():
        at = offsets.get(str(shard), held.first)
        if at < held.first and options.fails_on_loss and at > 0:
            raise TrimmedError(shard, at, held.first, options.part)
        found[str(shard)] = max(at, held.first)
    return found


def cut(start: Offsets, end: Offsets, parts_min: int = 0, *, whole: bool = False) -> list[tuple[int, int, int]]:
    """(shard, first, end) of each partition: some `PARTS` in all, none of them tiny or huge, `parts_min` at least.

    `whole`: one for each shard, unless more are wanted.

    Raises ValueError if a shard's start lies behind its end: the offsets are not of one log.
    """
    for shard, upto in end.items():
        if start.get(shard, 0) > upto:
            raise ValueError(
                f"shard {shard}: it was read up to {start[shard]}, and its log ends at {upto}: another log?"
            )
    total = sum(upto - start.get(shard, upto) for shard, upto in end.items())
    size = min(max(-(-total // PARTS), PART_RECORDS_MIN), PART_RECORDS_MAX)
    if whole:
        size = max(total, 1)
    if parts_min > (len(end) if whole else 0):
        size = max(min(size, -(-total // parts_min)), 1)
    return [
        (int(shard), first, min(first + size, upto))
        for shard, upto in sorted(end.items())
        for first in range(start.get(shard, upto), upto, size)
    ]


def advanced(start: Offsets, heads: Offsets, records_max: int | None) -> Offsets:
    """How far a batch goes: to the heads, or so many records in all, each shard in proportion to what it has."""
    waiting = {shard: max(head - start.get(shard, head), 0) for shard, head in heads.items()}
    total = sum(waiting.values())
    end = {**start}
    for shard, count in waiting.items():
        share = count if records_max is None or total <= records_max else -(-count * records_max // total)
        end[shard] = start.get(shard, heads[shard]) + min(share, count)
    return end
