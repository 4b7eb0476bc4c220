"""A message's life, from the change log: produced, delivered to whom, extended, released, buried, moved, confirmed.

Its id names the record that produced it; from there on the log is read, `RECORDS_MAX` records at most, and no further
than its newest record where it still lives.
"""

from typing import Any, Final, NamedTuple

from quorate import AsyncClient
from quorate.shards import ID_SHARDS

RECORDS_MAX: Final = 200_000
PIECE: Final = 1000
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
    """What that record says of the message; None: nothing."""
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


async def life_of(client: AsyncClient, msg_id: int, newest: int | None) -> Life:
    """`newest`: the trans_id of its newest record, where it lives.

    Raises `NotAllowedError` for who may not read the log.
    """
    shard, first = msg_id % ID_SHARDS, msg_id // ID_SHARDS
    after, read = first - 1, 0
    events: list[Event] = []
    produced: dict[str, Any] | None = None
    while read < RECORDS_MAX:
        reply = await client.log(after=after, count=PIECE, shard=shard)
        if reply["first_trans_id"] > first and not events:
            after = reply["first_trans_id"] - 1
            note = f"The log begins at record {reply['first_trans_id']:,}: what was before is not in it any more."
            return Life(await _rest(client, msg_id, after, newest, shard), None, note)
        records = reply["records"]
        for record in records:
            found = event_of(record, msg_id)
            if found is not None:
                events.append(found)
                produced = record if found.kind == "produce" else produced
        read += len(records)
        after = reply["last_trans_id"]
        if not records or (events and events[-1].kind in ENDS) or (newest is not None and after >= newest):
            return Life(events, produced, "")
    return Life(events, produced, f"{RECORDS_MAX:,} records were read, up to {after:,}; the log goes on.")


async def _rest(client: AsyncClient, msg_id: int, after: int, newest: int | None, shard: int) -> list[Event]:
    events: list[Event] = []
    read = 0
    while read < RECORDS_MAX and (newest is None or after < newest):
        reply = await client.log(after=after, count=PIECE, shard=shard)
        found = [event_of(record, msg_id) for record in reply["records"]]
        events += [event for event in found if event is not None]
        read += len(found)
        after = reply["last_trans_id"]
        if not found or (events and events[-1].kind in ENDS):
            break
    return events
