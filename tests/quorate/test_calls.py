"""What clients ask by keys: produces that keep or replace, and results that are waited for."""

import asyncio
import os
import threading
import time

import pytest

from quorate import AsyncClient, DuplicateKeyError, NewMessage, Produced, RefusedError
from quorate.calls import known_level
from tests.conftest import StartNode


def is_duplicate(msg_id: int) -> bool:
    assert isinstance(msg_id, Produced)
    return msg_id.is_duplicate


def test_keep_and_replace(start_node: StartNode) -> None:
    with start_node().client() as client:
        first = client.produce("q", 1, key="k", on_duplicate="keep")
        assert not is_duplicate(first)
        kept = client.produce("q", 2, key="k", on_duplicate="keep")
        assert (kept, is_duplicate(kept)) == (first, True)
        new = client.produce("q", 3, key="k", on_duplicate="replace")
        assert (new != first, is_duplicate(new)) == (True, False)
        with pytest.raises(DuplicateKeyError):
            client.produce("q", 4, key="k")
        items = [NewMessage(5, key="k"), NewMessage(6, key="l", on_duplicate="replace")]
        both = client.produce_many("q", items, on_duplicate="keep")
        assert [is_duplicate(one) for one in both] == [True, False]
        shown = client.show(queue="q", key="k")
        assert (shown.data, shown.msg_id, shown.state) == (3, new, "ready")
        assert client.show(new) == shown


def test_a_result_is_waited_for(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client, node.client() as other:
        assert client.result("q", "k") is None
        begun = time.monotonic()
        assert client.result("q", "k", wait=0.2) is None
        assert 0.15 < time.monotonic() - begun < 5
        storing = threading.Timer(0.2, lambda: other.produce("q", "done", key="k", on_duplicate="replace"))
        storing.start()
        found = client.result("q", "k", wait=30)
        assert found is not None
        assert found.data == "done"
        storing.join()
        storing = threading.Timer(0.2, lambda: other.produce("q", "again", key="k", on_duplicate="replace"))
        storing.start()
        following = client.result("q", "k", wait=30, unless=found)
        assert following is not None
        assert following.data == "again"
        storing.join()


def test_a_long_wait_goes_on_in_slices(start_node: StartNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with the first slice, which is answered that there is no such message."""
    monkeypatch.setattr("quorate.trying.WAIT_SLICE_S", 0.2)
    with start_node().client() as client:
        begun = time.monotonic()
        assert client.result("q", "k", wait=0.7) is None
        assert time.monotonic() - begun > 0.65
        storing = threading.Timer(0.5, lambda: client.produce("q", 1, key="k"))
        storing.start()
        assert client.result("q", "k", wait=30) is not None
        storing.join()


def test_waits_for_results_share_connections_and_end_at_once(start_node: StartNode) -> None:
    async def go(port: int) -> None:
        client = AsyncClient("127.0.0.1", port)
        waits = [asyncio.create_task(client.result("q", f"k{n}", wait=60)) for n in range(150)]
        await asyncio.sleep(0.5)
        assert len(os.listdir("/proc/self/fd")) < before + 60
        begun = time.monotonic()
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await client.close()
        assert time.monotonic() - begun < 2

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(go(start_node().port))


def test_the_async_client_waits_for_many(start_node: StartNode) -> None:
    async def go(port: int) -> list[object]:
        async with AsyncClient("127.0.0.1", port) as client:
            waits = [asyncio.create_task(client.result("q", f"k{n}", wait=30)) for n in range(40)]
            await asyncio.sleep(0.1)
            for n in range(40):
                await client.produce("q", n, key=f"k{n}", on_duplicate="replace")
            found = await asyncio.gather(*waits)
            return [one.data for one in found if one is not None]

    assert asyncio.run(go(start_node().port)) == list(range(40))


@pytest.mark.parametrize("reply", [{"code": 0}, {"code": 0, "level": 5}])
def test_an_older_cluster_is_not_asked(reply: dict[str, int]) -> None:
    with pytest.raises(RefusedError, match="upgrade every node"):
        known_level(reply, 6)
    assert known_level({"level": 7}, 6) == 7


def test_system_queues_are_listed_when_they_are_asked_for(start_node: StartNode) -> None:
    with start_node().client() as client:
        client.produce("mine", 1)
        assert client.configure("inner", system=True, paused="out").system
        assert client.queues() == ["mine"]
        assert [row.name for row in client.queue_rows("n", system=True)] == ["inner", "mine"]
        assert client.settings("inner").paused is True
        client.configure("inner", system=False)
        assert client.queues() == ["inner", "mine"]
