"""LMDB's tables as they are on a real disk; what all tables have in common is tested with the log's."""

from pathlib import Path

from storage.tables import LOG, LmdbTables


def test_a_file_that_is_read_ahead_is_what_it_was(tmp_path: Path) -> None:
    tables = LmdbTables(tmp_path)
    rows = [(b"%08d" % number, bytes(3000)) for number in range(500)]
    with tables.write() as transaction:
        transaction.put(LOG, rows)
    tables.close()
    again = LmdbTables(tmp_path)
    again.warm()
    with again.read() as transaction:
        assert list(transaction.range(LOG)) == rows
    again.close()
