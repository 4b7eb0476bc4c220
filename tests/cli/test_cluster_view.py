"""How a cluster of several shards is shown."""

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli import cluster_view
from cli.cluster_view import cell, faults, show_spread
from cli.output import asking, credentials


def shard(number: int = 0, leader: int = 1, **member: Any) -> dict[str, Any]:
    return {"shard": number, "leader_node_id": leader, "members": [{"node_id": 2, "role": "voter", **member}]}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (shard(lag=0, is_full=False), "follows"),
        (shard(lag=12), "behind by 12"),
        (shard(leader=2, lag=0), "leads"),
        (shard(leader=2, lag=0, is_full=True), "leads, disk full"),
        (shard(role="catching up", lag=300), "catching up, behind by 300"),
        (shard(role="wanted"), "wanted"),
        (shard(lag=7, fault="refused"), "unreachable, behind by 7"),
        (shard(), "?"),
        ({"shard": 0, "leader_node_id": 1, "members": []}, "-"),
        ({"shard": 0, "fault": "no leader"}, "?"),
    ],
)
def test_a_cell_says_what_a_node_is_in_a_shard(row: dict[str, Any], says: str) -> None:
    assert cell(row, 2) == says


def test_a_fault_that_several_leaders_tell_is_said_once() -> None:
    rows = [shard(0, fault="refused"), shard(1, fault="refused"), shard(2), {"shard": 3, "fault": "no leader"}]
    assert faults(rows) == ["node 2: refused (shard 0, 1)"]


def test_every_node_is_shown_what_the_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked by threads of their own, which had what the environment says, and no more."""
    shown: list[tuple[str | None, bool]] = []

    def state(member: dict[str, Any]) -> str:
        shown.append((credentials().token, credentials().has_tls))
        return "up"

    monkeypatch.setattr(cluster_view, "_state", state)
    members = [{"node_id": number, "host": "h", "port": number} for number in (1, 2, 3)]
    app = typer.Typer()

    @app.command()
    @asking
    def status() -> None:
        show_spread({"members": members, "shards": []}, as_json=True)

    result = CliRunner().invoke(app, ["--host", "quorate://:secret@h?tls=1"])
    assert result.exception is None, result.output
    assert shown == [("secret", True)] * 3
