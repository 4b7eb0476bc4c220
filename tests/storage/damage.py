"""Damage done to a log in LMDB: a byte of an entry is another, whichever row it is in."""

from storage.log_rows import entries_in
from storage.log_store import LogStore
from storage.tables import LOG, Tables


def damage_entries(tables: Tables, *indexes: int) -> list[int]:
    """Flip the last byte of these entries of the log's, of all if none is named; returns their last trans_ids."""
    trimmed = LogStore(tables, 0).bounds.trimmed
    with tables.write() as transaction:
        rows = list(transaction.range(LOG))
        ends = [(key, end) for key, value in rows for end, _ in entries_in(key, value, trimmed)]
        chosen = [ends[index] for index in indexes] or ends
        for key, value in rows:
            damaged = value
            for end, data in entries_in(key, value, trimmed):
                if (key, end) in chosen:
                    at = value.index(data) + len(data) - 1
                    damaged = damaged[:at] + bytes([damaged[at] ^ 1]) + damaged[at + 1 :]
            transaction.put(LOG, [(key, damaged)])
    return [end for _, end in chosen]
