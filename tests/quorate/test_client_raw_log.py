"""The raw log and its readers, of a real node, through the library."""

import pytest

from quorate import Client, RefusedError
from storage.entry import Entry
from storage.entry_codec import decode
from tests.cluster import wait_for
from tests.conftest import StartNode


def entries_of(data: bytes) -> list[Entry]:
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(decode(data[at + 4 : at + 4 + size], "a part"))
        at += 4 + size
    return found


def whole_log(client: Client, after: int = 0) -> list[Entry]:
    found: list[Entry] = []
    while (reply := client.raw_log(after))["last_trans_id"] > after:
        found += entries_of(reply["entries"])
        after = reply["last_trans_id"]
    return found


def test_the_raw_log_holds_what_the_log_says(start_node: StartNode) -> None:
    node = start_node(max_data_bytes=1 << 20)
    with node.client() as client:
        for number in range(30):
            client.produce("q", "x" * 300_000 if number % 3 == 0 else number, retry=60)
        shown = [record["trans_id"] for record in client.log(0, 1000)["records"]]
        entries = whole_log(client)
        assert [entry.first_trans_id for entry in entries[1:]] == [entry.last_trans_id + 1 for entry in entries[:-1]]
        assert list(range(entries[0].first_trans_id, entries[-1].last_trans_id + 1))[: len(shown)] == shown
        assert client.raw_log(5, count=1)["last_trans_id"] == 6
        assert client.queues() == ["q"], "the connection is good for more"


def test_readers_are_remembered_over_a_restart_and_keep_the_log(start_node: StartNode) -> None:
    node = start_node(queue_log_size=100)
    with node.client() as client:
        client.produce("q", 1)
        assert client.position("archive") is None
        client.set_position("archive", 2)
        client.set_position("gone", 1)
        client.forget_reader("gone")
        for _ in range(40):
            client.produce_many("q", list(range(100)), retry=60)
        node.kill()
        node.start()
        assert client.position("archive") == 2
        assert entries_of(client.raw_log(2)["entries"])[0].first_trans_id == 3, "nothing is trimmed that it lacks"
        [row] = client.readers()
        assert (row["reader"], row["lost"]) == ("archive", 0)
        assert row["lag"] > 4000
        end = client.raw_log(2, count=1)["committed"]
        client.set_position("archive", end)
        client.produce("q", 1)
        wait_for(lambda: client.status()["shards"][0]["first_trans_id"] > 3000)
        with pytest.raises(RefusedError, match="not kept any more"):
            client.raw_log(2)


def test_a_reader_that_is_too_slow_is_told_and_named(start_node: StartNode) -> None:
    node = start_node(queue_log_size=100, log_retention_records=500)
    with node.client() as client:
        client.produce("q", 1)
        client.set_position("slow", 2)
        for _ in range(20):
            client.produce_many("q", list(range(100)), retry=60)
        wait_for(lambda: client.readers()[0]["lost"] > 0)
        with pytest.raises(RefusedError, match="trimmed"):
            client.raw_log(2)
        assert client.status()["shards"][0]["readers"][0]["lost"] > 0
    assert "reader 'slow' is too far behind" in node.log
