"""A message's life, from the change log: produced, delivered to whom, extended, released, buried, moved, confirmed.

Of one that lives each record names the one before. Of one that is gone its id names the record that produced it; from
there on the log is read, `RECORDS_MAX` records at most.
"""

from typing import Any, Final, NamedTuple

from quorate import AsyncClient
from quorate.shards import ID_SHARDS

RECORDS_MAX: Final = 200_000
PIECE: Final = 1000
EVENTS_MAX: Final = 500
"""Of one that lives."""

ENDS: Final = frozenset({"confirm", "take", "expire", "clear"})
OF_ONE: Final = ("due_ats", "expires_ats", "deliveries")


class Event(NamedTuple):
    """One record about it: when (Unix s), what, and what the record says beside that."""

    trans_id: int
    at: float
    kind: str
    queue: str
    about: dict[str, Any]


class Life(NamedTuple):
    """What was found. `note`: why there may be more than that."""

    events: list[Event]
    produced: dict[str, Any] | None
    note: str


def event_of(record: dict[str, Any], msg_id: int) -> Event | None:
    """Say what that record says of the message; None: nothing."""
    if record.get("msg_id") == msg_id:
        about = {
            name: record[name] for name in ("due_at", "expires_at", "retry_s", "priority", "key") if record.get(name)
        }
    else:
        ids = record.get("msg_ids")
        if not ids or msg_id not in ids:
            return None
        at = ids.index(msg_id)
        about = {name[:-1] if name != "deliveries" else name: record[name][at] for name in OF_ONE if record.get(name)}
        about |= {name: record[name] for name in ("consumer", "to", "reason") if record.get(name)}
    return Event(record["trans_id"], record["time"], record["kind"], record["queue"], about)


async def newest_of_key(client: AsyncClient, key: str, shards: int) -> int | None:
    """Find the message that was produced last with a key that is one among all, where it is gone: the log is read back.

    `RECORDS_MAX` records at most, of each shard as many. Raises `NotAllowedError` for who may not read the log.
    """
    found: list[tuple[float, int]] = []
    for shard in range(shards):
        reply = await client.log(after=0, count=1, shard=shard)
        first, end = int(reply["first_trans_id"]), int(reply["committed"])
        left = RECORDS_MAX // shards
        while end >= first and left > 0:
            after = max(end - PIECE, first - 1)
            made = [one for one in await _records(client, shard, after, end) if one.get("key") == key]
            made = [one for one in made if one.get("scope") is not None]
            if made:
                found.append((made[-1]["time"], int(made[-1]["msg_id"])))
                break
            left -= end - after
            end = after
    return max(found)[1] if found else None


async def _records(client: AsyncClient, shard: int, after: int, until: int) -> list[dict[str, Any]]:
    """Those behind `after`, up to `until`; a reply may hold fewer."""
    records: list[dict[str, Any]] = []
    while after < until:
        reply = await client.log(after=after, count=until - after, shard=shard)
        if not reply["records"]:
            break
        records += reply["records"]
        after = int(reply["last_trans_id"])
    return records


async def life_of(client: AsyncClient, msg_id: int, newest: int | None) -> Life:
    """`newest`: the trans_id of its newest record, where it lives: from there each names the one before.

    One that is gone is looked for from its produce record on. Raises `NotAllowedError` for who may not read the log.
    """
    return await (_gone(client, msg_id) if newest is None else _living(client, msg_id, newest))


async def _living(client: AsyncClient, msg_id: int, newest: int) -> Life:
    shard, at = msg_id % ID_SHARDS, newest
    events: list[Event] = []
    while at and len(events) < EVENTS_MAX:
        reply = await client.log(after=at - 1, count=1, shard=shard)
        if reply["first_trans_id"] > at:
            note = f"The log begins at record {reply['first_trans_id']:,}: what was before is not in it any more."
            return Life(events[::-1], None, note)
        record = next((one for one in reply["records"] if one["trans_id"] == at), None)
        event = None if record is None else event_of(record, msg_id)
        if record is None or event is None:
            return Life(events[::-1], None, f"Record {at:,} can't be seen yet: look again.")
        events.append(event)
        if event.kind == "produce":
            return Life(events[::-1], record, "")
        at = int(record["previous"][record["msg_ids"].index(msg_id)])
    return Life(events[::-1], None, f"These are its last {len(events):,} records.")


async def _gone(client: AsyncClient, msg_id: int) -> Life:
    shard, first = msg_id % ID_SHARDS, max(msg_id // ID_SHARDS, 1)
    after, read, note = first - 1, 0, ""
    events: list[Event] = []
    produced: dict[str, Any] | None = None
    while read < RECORDS_MAX:
        reply = await client.log(after=after, count=PIECE, shard=shard)
        if reply["first_trans_id"] > first and not note:
            note = f"The log begins at record {reply['first_trans_id']:,}: what was before is not in it any more."
            after = max(after, reply["first_trans_id"] - 1)
        for record in reply["records"]:
            found = event_of(record, msg_id)
            if found is not None:
                events.append(found)
                produced = record if found.kind == "produce" else produced
        read += len(reply["records"])
        after = max(after, reply["last_trans_id"])
        if (events and events[-1].kind in ENDS) or after >= reply["committed"] or not reply["records"]:
            return Life(events, produced, note)
    return Life(events, produced, f"{RECORDS_MAX:,} records were read, up to {after:,}; the log goes on.")
