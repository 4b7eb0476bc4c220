"""bench.metered: a node whose worker says where its time goes is a node as any other, whatever its runtime takes."""

import re

import pytest

from bench import metered
from tests.node import free_ports


def test_a_measured_node_serves_and_says_where_its_time_goes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("BENCH_DIR", str(tmp_path_factory.mktemp("metered")))
    metered.measure(free_ports(2), 2, 2000)
    told = {what: float(us) for us, what in re.findall(r"^ +([\d.]+)  (.+)$", capsys.readouterr().out, re.MULTILINE)}
    assert set(metered.STAGES.values()) < told.keys()
    busy = [metered.STAGES[name] for name in ("Listener", "QueueOwner", "Replicator")]
    assert all(told[stage] > 0.0 for stage in busy)
    assert told[metered.IN_ALL] > sum(told[stage] for stage in busy)
