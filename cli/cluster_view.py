"""How a cluster of several shards is shown: nodes by shards."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import typer

from cli.output import UNWELL, client_at, console, print_json, print_table
from quorate import QuorateError

STATUS_S = 2.0
"""So long a node has to say how it is."""


def show_spread(reply: dict[str, Any], *, as_json: bool) -> None:
    """Who leads what, how far behind each node is in each shard, and whose disk is full.

    Raises typer.Exit with `UNWELL` when a shard has no leader that could be asked, or a node is down.
    """
    members, shards = reply["members"], reply["shards"]
    with ThreadPoolExecutor(max(len(members), 1)) as pool:
        asked = [pool.submit(copy_context().run, _state, member) for member in members]  # with what the options say
        states = [one.result() for one in asked]
    rows = [
        {
            "node_id": member["node_id"],
            "address": f"{member['host']}:{member['port']}",
            "clients": f"{member['client_host']}:{member['client_port']}" if "client_port" in member else None,
            "state": state,
            "shards": {str(shard["shard"]): cell(shard, member["node_id"]) for shard in shards},
        }
        for member, state in zip(members, states, strict=True)
    ]
    missing = [shard for shard in shards if "fault" in shard]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        console.print(f"{len(members)} nodes, {len(shards)} shards, feature level {reply['level']}")
        table = [
            [str(row["node_id"]), row["address"], row["clients"] or "-", row["state"], *row["shards"].values()]
            for row in rows
        ]
        print_table(["node_id", "address", "clients", "state", *[f"shard {one['shard']}" for one in shards]], table)
        for shard in missing:
            console.print(f"shard {shard['shard']}: {shard['fault']}")
        for fault in faults(shards):
            console.print(fault)
    if missing or any(state != "up" for state in states):
        raise typer.Exit(UNWELL)


def cell(shard: dict[str, Any], node_id: int) -> str:
    """Say what a node is in a shard, as that shard's leader tells it.

    "leads", "follows", "behind by 12", "catching up, behind by 300", "unreachable", "wanted"; "-": no member; "?":
    nobody can tell.
    """
    if "fault" in shard:
        return "?"
    member = next((one for one in shard["members"] if one["node_id"] == node_id), None)
    if member is None:
        return "-"
    lag = member.get("lag")
    behind = "" if not lag else f"behind by {lag}"
    said = [member["role"], behind]
    if node_id == shard["leader_node_id"]:
        said = ["leads"]
    elif "fault" in member:
        said = ["unreachable", behind]
    elif member["role"] == "voter":
        said = [behind or ("follows" if lag is not None else "?")]
    if member.get("is_full"):
        said.append("disk full")
    return ", ".join(one for one in said if one)


def faults(shards: list[dict[str, Any]]) -> list[str]:
    """Why a node can't be reached, each once, with the shards whose leaders say so."""
    found: dict[str, list[str]] = {}
    for shard in shards:
        for member in shard.get("members", ()):
            if "fault" in member:
                found.setdefault(f"node {member['node_id']}: {member['fault']}", []).append(str(shard["shard"]))
    return [f"{said} (shard {', '.join(by)})" for said, by in found.items()]


def _state(member: dict[str, Any]) -> str:
    """Whether a node runs, and all of its workers do."""
    if "client_port" not in member:
        return "down"
    try:
        with client_at(member["client_host"], member["client_port"], timeout=STATUS_S) as connection:
            reply = connection.status()
    except QuorateError:
        return "down"
    if reply["node_id"] != member["node_id"]:
        return f"node {reply['node_id']} is there"
    down = [str(row["shard"]) for row in reply["shards"] if row["role"] == "down"]
    return f"shard {', '.join(down)} down" if down else "up"
