"""qctl cluster: found, look at and change a cluster; run one on this machine for trying and testing."""

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from actors.node.data_folder import holder_of
from actors.node.launch import READY, launch
from cli.cluster_view import show_spread
from cli.output import (
    UNWELL,
    AsJson,
    asked_nodes,
    asking,
    client,
    client_at,
    console,
    credentials,
    fail,
    print_json,
    print_table,
    shown_asked,
    speaking,
    told_error,
    was_refused,
)
from cli.secret import SECRET_FILE, make_secret, secret
from quorate import Client, QuorateError, RefusedError, UnknownOutcomeError
from quorate.protocol import DOWN, Action, ErrorWord

app = typer.Typer(help="Found, look at and change a cluster.", no_args_is_help=True)

NodeId = Annotated[int, typer.Argument(help="The node's number.")]
Folder = Annotated[Path, typer.Option("--dir", "-d", help="The folder with one folder for each node.")]
Patience = Annotated[float, typer.Option("--timeout", help="How long to wait for it (s).")]
COLUMNS = ["node_id", "address", "clients", "role", "state", "committed", "lag", "messages", "vote_id"]


@app.command()
@asking
def status(as_json: AsJson = False) -> None:
    """Show the members, who leads, and how far each is. Any node can be asked; where the address names several, the
    first member that answers is, and it is said of the others why they are none.

    Exit code 3 if no node leads, or no majority of those that vote is up and follows.
    """
    reply, spread = _asked_member()
    if spread is not None:
        show_spread(spread, as_json=as_json)
        return
    shard = _running(reply)
    rows = [_member_row(member, shard) for member in shard["members"]]
    furthest = max((row["committed"] for row in rows if row["state"] in WORKING), default=0)
    for row in rows:
        row["lag"] = furthest - row["committed"] if row["state"] in WORKING else None
    voters = [row for row in rows if row["role"] in ("leader", "voter")]
    is_well = bool(shard["leader_node_id"]) and 2 * sum(row["state"] in WORKING for row in voters) > len(voters)
    if as_json:
        for row in rows:
            print_json(row)
    elif not rows:
        console.print("this node belongs to no cluster yet: it waits for those it lists, or to be added to one")
        if why := _why(shard):
            console.print(f"it has no link to others{why}")
    else:
        leader = shard["leader_node_id"]
        leads = f"node {leader} leads" if leader else f"no node leads, as far as node {reply['node_id']} knows"
        console.print(
            f"cluster {shard['cluster_id']}: {leads}, vote {shard['vote_id']}, feature level {shard['level']}"
        )
        print_table(COLUMNS, [["-" if row[column] is None else str(row[column]) for column in COLUMNS] for row in rows])
        for row in rows:
            if row["fault"]:
                console.print(f"node {row['node_id']}: {row['fault']}")
    if not is_well:
        raise typer.Exit(UNWELL)


def _asked_member() -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Ask the nodes that the address names until one is a member of a cluster; else the last one's reply counts.

    Of several shards the cluster's reply is beside it. Raises what the last one did where none answers.
    """
    nodes = asked_nodes()
    found: dict[str, Any] | None = None
    failed: QuorateError | None = None
    for host, port in nodes:
        try:
            with client_at(host, port, timeout=10.0) as connection:
                reply: dict[str, Any] = {**connection.status()}
                spread: dict[str, Any] | None = {**connection.cluster()} if len(reply["shards"]) > 1 else None
        except QuorateError as error:
            if len(nodes) > 1:
                told_error(f"{host}:{port}: {error}")
            failed = error
            continue
        shard = _running(reply)
        if shard["members"]:
            return reply, spread
        found = reply
        if len(nodes) > 1:
            told_error(f"{host}:{port}: node {reply['node_id']} is no member of a cluster{_why(shard)}")
    if found is None:
        assert failed is not None, "some node is named"
        raise failed
    return found, None


def _why(shard: dict[str, Any]) -> str:
    """Say why a node has no link to others, where it has none."""
    named = [f"node {node_id}: {fault}" for node_id, fault in shard.get("unlinked", {}).items()]
    return f": {'; '.join(named)}" if named else ""


def _running(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Give a shard of a node that tells who its members are: all tell the same."""
    shard: dict[str, Any] = next((one for one in reply["shards"] if one["role"] != DOWN), reply["shards"][0])
    if shard["role"] == DOWN:
        raise fail(f"no shard of node {reply['node_id']} runs: {shard['fault']}")
    return shard


UP = "up"
FULL = "disk full"
WORKING = (UP, FULL)


def _member_row(member: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Ask what a member says of itself, as far as it can be reached and is the one that is meant."""
    row = {
        "node_id": member["node_id"],
        "address": f"{member['host']}:{member['port']}",
        "clients": f"{member['client_host']}:{member['client_port']}" if "client_port" in member else None,
        "role": "leader" if member["node_id"] == asked["leader_node_id"] else member["role"],
        "state": "down",
        "committed": None,
        "messages": None,
        "vote_id": None,
        "fault": member.get("fault", ""),
    }
    if "client_port" not in member:
        return row
    try:
        with client_at(member["client_host"], member["client_port"], timeout=2) as connection:
            reply = connection.status()
    except QuorateError as error:
        return row if was_refused(error) else row | {"fault": row["fault"] or str(error)}
    own = _running(reply)
    if reply["node_id"] != member["node_id"]:
        return row | {"state": f"node {reply['node_id']} is there"}
    if own["cluster_id"] != asked["cluster_id"]:
        state = "not in it" if own["cluster_id"] == "0" else "another cluster"
        return row | {"state": state, "fault": row["fault"] or _why(own).removeprefix(": ")}
    row |= {name: own[name] for name in ("committed", "messages", "vote_id")}
    if own.get("contradiction"):
        return row | {"state": "contradicts", "fault": f"its data contradict the leader's: {own['contradiction']}"}
    if own["disk_full"]:
        return row | {"state": FULL, "fault": f"its disk is full: {own['disk_full']}"}
    return row | {"state": UP if own["leader_node_id"] else "no leader"}


@app.command()
@asking
def init() -> None:
    """Found a cluster now with this node, which adds the nodes that it lists as soon as they are there.

    Nodes that all list each other need no init: they make a cluster as soon as all of them are up.
    """
    with client() as connection:
        connection.request(Action.NODE_INIT)
    console.print(f"{shown_asked()} founds a cluster")


@app.command("add-node")
@asking
def add_node(
    node_id: NodeId,
    address: Annotated[str, typer.Argument(help="Where nodes reach it, as its cluster_node_list says: HOST:PORT.")],
    timeout: Patience = 120.0,
) -> None:
    """Add a node, and wait until it has caught up and votes. Its data folder must be empty."""
    its_host, _, its_port = address.rpartition(":")
    its_host = its_host.strip("[]")
    if not its_host or not its_port.isdigit():
        raise fail(f"{address}: HOST:PORT is wanted")
    with client() as connection:
        _change(connection, timeout, command="add", node_id=node_id, host=its_host, port=int(its_port))
        console.print(f"node {node_id} at {address} is to be added; waiting until it has caught up")
        _wait(
            lambda: _role(connection, node_id) == "voter",
            timeout,
            lambda: f"node {node_id} does not vote yet{_fault(connection, node_id)}",
        )
    console.print(f"node {node_id} has caught up and votes")


@app.command("remove-node")
@asking
def remove_node(node_id: NodeId, timeout: Patience = 30.0) -> None:
    """Do without a node. If it leads, another leads first. Any node can be asked, the one that goes as well."""
    with client() as connection:
        members = _running(connection.status())["members"]
    others = [(m["client_host"], m["client_port"]) for m in members if m["node_id"] != node_id and "client_port" in m]
    with Client(nodes=others or asked_nodes(), timeout=timeout, credentials=credentials()) as connection:
        with contextlib.suppress(UnknownOutcomeError):  # then it is seen whether it was done
            _change(connection, timeout, command="remove", node_id=node_id)
        _wait(lambda: _role(connection, node_id) is None, timeout, lambda: f"node {node_id} is still a member")
    console.print(f"node {node_id} is no member any more")


@app.command()
@asking
def upgrade() -> None:
    """Use what the newest version brings, when every node runs it. There is no way back to an older version."""
    with client() as connection:
        connection.request(Action.CLUSTER, command="upgrade")
        console.print(f"the cluster is at feature level {connection.cluster()['level']}")


@app.command("transfer-leader")
@asking
def transfer_leader(
    node_id: Annotated[int | None, typer.Argument(help="Who is to lead; without it, the best.")] = None,
    shard: Annotated[int | None, typer.Option("--shard", help="Of several shards, which one.")] = None,
    timeout: Patience = 10.0,
) -> None:
    """Let another node lead. Where the one that is named leads, there is nothing to do."""
    with client() as connection:
        before = _leader(connection, shard)
        if node_id is not None and node_id == before:
            console.print(f"node {before} leads already")
            return
        connection.request(Action.CLUSTER, command="transfer", node_id=node_id, shard=shard)
        _wait(lambda: _leader(connection, shard) not in (0, before), timeout, lambda: f"node {before} still leads")
        console.print(f"node {_leader(connection, shard)} leads{'' if shard is None else f' shard {shard}'}")


@app.command()
@asking
def balance() -> None:
    """Let every shard be led by the node that should lead it, now. It happens by itself, too, after a while."""
    with client() as connection:
        connection.request(Action.CLUSTER, command="balance")
        leaders = [row.get("leader_node_id", "nobody") for row in _by_shard(connection)]
    console.print("; ".join(f"shard {shard}: node {leader}" for shard, leader in enumerate(leaders)))


def _change(connection: Client, timeout_s: float, **change: Any) -> None:
    """Change the members, as soon as all shards have followed the last change. Raises QuorateError."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection.request(Action.CLUSTER, **change)
        except RefusedError as error:
            if "can't be changed now" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return


def _by_shard(connection: Client) -> list[dict[str, Any]]:
    """Show the cluster as each shard's leader tells it: one, where there is one shard."""
    reply = connection.cluster()
    rows: list[dict[str, Any]] = reply.get("shards") or [{**reply}]
    return rows


def _leader(connection: Client, shard: int | None) -> int:
    rows = _by_shard(connection)
    if shard is not None and shard >= len(rows):
        raise fail(f"there is no shard {shard}; there are {len(rows)}, from 0 on")
    return int(rows[shard or 0].get("leader_node_id", 0))


def _role(connection: Client, node_id: int) -> str | None:
    """Say what the node is in the shard where it has come least far; None: in none of them anything."""
    roles = {
        next((one["role"] for one in row["members"] if one["node_id"] == node_id), None)
        if "members" in row
        else "wanted"  # nobody can say
        for row in _by_shard(connection)
    }
    known = [role for role in ("wanted", "catching up", "voter") if role in roles]
    return None if not known else known[0] if None not in roles else "wanted"


def _fault(connection: Client, node_id: int) -> str:
    faults = [
        f"shard {row['shard']}: {one['fault']}" if "shard" in row else one["fault"]
        for row in _by_shard(connection)
        for one in row.get("members", ())
        if one["node_id"] == node_id and "fault" in one
    ]
    return f" ({faults[0]})" if faults else _own_fault(connection, node_id)


def _own_fault(connection: Client, node_id: int) -> str:
    """Say why a node that others reach says that it does not reach them."""
    rows = [one for row in _by_shard(connection) for one in row.get("members", ()) if one["node_id"] == node_id]
    at = next(((one["client_host"], one["client_port"]) for one in rows if "client_port" in one), None)
    if at is None:
        return ""
    try:
        with client_at(*at, timeout=2) as its:
            why = _why(_running(its.status()))
    except QuorateError as error:
        why = f": {error}"
    return f" (it says{why})" if why else ""


def _wait(is_done: Callable[[], bool], timeout_s: float, otherwise: Callable[[], str]) -> None:
    """Ask until it is. Raises typer.Exit."""
    until = time.monotonic() + timeout_s
    why = ""
    while True:
        try:
            if is_done():
                return
            if time.monotonic() > until:
                why = otherwise()
        except QuorateError as error:
            why = str(error)
        if time.monotonic() > until:
            raise fail(f"{why} after {timeout_s:g} s; qctl cluster status shows how far it is")
        time.sleep(0.1)


# -- a cluster on this machine ----------------------------------------------------------------------------------


@app.command()
@speaking
def start(
    directory: Folder,
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, max=9, help="How many.")] = 3,
    port: Annotated[
        int, typer.Option("--port", "-p", min=1, max=65535, help="The first node's port; the others follow it.")
    ] = 1111,
    node_port: Annotated[
        int | None,
        typer.Option("--node-port", help="The first one's port for other nodes; without it, 10 below, or as needed."),
    ] = None,
    shards: Annotated[int, typer.Option("--shards", min=1, max=64, help="Parts of the queues.")] = 1,
) -> None:
    """Run a cluster on this machine, each node in the background with its own folder; again: start what is down."""
    first = directory / "node-1" / "node.json"
    if first.exists() and (there := json.loads(first.read_text())["port"]) != port:
        raise fail(f"the cluster in {directory} uses the ports from {there} on: --port {there}")
    if first.exists() and (kept := json.loads(first.read_text()).get("shards", 1)) != shards:
        raise fail(f"the cluster in {directory} was begun with {kept} shards: --shards {kept}")
    count = nodes * shards  # each shard of a node has a port for other nodes
    if node_port is None and first.exists():  # what is there is kept
        node_port = min(
            [node["port"] for node in json.loads(first.read_text()).get("cluster_node_list", [])], default=None
        )
    first_node_port = port - max(10, count) if node_port is None else node_port
    if first_node_port < 1 or max(port + nodes, first_node_port + count) > 65536:
        wanted = f"{nodes} ports from {port} on (--port) and {count} from {first_node_port} on (--node-port)"
        raise fail(f"{wanted} are wanted, of 1 to 65535")
    if set(range(port, port + nodes)) & set(range(first_node_port, first_node_port + count)):
        raise fail(f"{count} ports from {first_node_port} on are for nodes, and {nodes} from {port} on for clients")
    listed = [
        {"node_id": n, "host": "127.0.0.1", "port": first_node_port + (n - 1) * shards} for n in range(1, nodes + 1)
    ]
    secret_file = directory / SECRET_FILE
    has_secret = not first.exists() or "cluster_secret_file" in json.loads(first.read_text())
    os.umask(0o077)
    for node in listed:
        folder = directory / f"node-{node['node_id']}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "node.json"
        if not path.exists():
            if has_secret and not secret_file.exists():
                make_secret(secret_file)
            at = port + int(str(node["node_id"])) - 1
            own = {"node_id": node["node_id"], "port": at, "data_dir": str((folder / "data").resolve())}
            if shards > 1:
                own["shards"] = shards
            if has_secret:
                own["cluster_secret_file"] = str(secret_file.resolve())
            path.write_text(json.dumps({**own, "cluster_node_list": listed}, indent=2) + "\n")
        config = json.loads(path.read_text())
        if holder_of(Path(config["data_dir"])) is not None:
            console.print(f"node {config['node_id']} runs already, on port {config['port']}")
            continue
        own = {name: config[name] for name in ("node_id", "port", "data_dir")}  # over what the environment says
        own["log_prefix"] = str((folder / "node").resolve())
        log = folder / "node.log"
        before = log.stat().st_size if log.exists() else 0
        _, said = launch(path, {"host": "127.0.0.1", **own}, folder / "node.log")
        if said != READY:
            why = _last_line(log, before)
            raise fail(said or f"node {config['node_id']} did not start: {why} ({log} says more)")
        console.print(f"node {config['node_id']} ready on 127.0.0.1:{config['port']}, log in {log}")
    idle = _wait_until_they_take_part({n: port + n - 1 for n in range(1, nodes + 1)})
    for node_id, why in idle.items():
        console.print(
            f"node {node_id} does not take part: {why}; {directory / f'node-{node_id}' / 'node.log'} says more"
        )
    if idle:
        raise typer.Exit(1)
    console.print(f"all take part; see qctl cluster status --port {port}")


PATIENCE_S = 15.0


def _wait_until_they_take_part(ports: dict[int, int]) -> dict[int, str]:
    """Wait until each node votes and knows a leader; returns why not, of those that do not in time."""
    until = time.monotonic() + PATIENCE_S
    while True:
        idle = {node_id: why for node_id, port in ports.items() if (why := _why_idle(node_id, port))}
        if not idle or time.monotonic() > until:
            return idle
        time.sleep(0.1)


def _why_idle(node_id: int, port: int) -> str:
    """Why a node does not take part in its cluster; empty if it does."""
    try:
        with Client("127.0.0.1", port, timeout=5, retry_connect=False) as connection:
            rows = connection.status()["shards"]
    except RefusedError as refused:
        if refused.error in (ErrorWord.NOT_ALLOWED, ErrorWord.NOT_AUTHENTICATED):
            return ""  # it runs; how it is it tells to others
        return str(refused)
    except QuorateError as error:
        return str(error)
    faults = [why for shard in rows if (why := _why_idle_in(node_id, shard))]
    return faults[0] if faults else ""


def _why_idle_in(node_id: int, shard: dict[str, Any]) -> str:
    if shard["role"] == DOWN:
        return f"shard {shard['shard']} does not run: {shard['fault']}"
    role = next((member["role"] for member in shard["members"] if member["node_id"] == node_id), None)
    if not shard["members"]:
        return f"it belongs to no cluster yet (qctl cluster add-node {node_id} HOST:PORT adds it to one)"
    if not shard["leader_node_id"]:
        return "it knows no leader: others may not be up, or refuse it"
    return "" if role == "voter" else f"it is {role or 'no member'}"


def _last_line(log: Path, begin: int) -> str:
    """Read what a node said last, behind byte `begin`."""
    with log.open("rb") as lines:
        lines.seek(max(lines.seek(0, os.SEEK_END) - 4096, begin))
        said = lines.read().decode(errors="replace").strip().splitlines()
    return said[-1].strip() if said else "it said nothing"


@app.command()
@speaking
def stop(directory: Folder) -> None:
    """Stop all nodes of a cluster on this machine, and wait until they have."""
    waiting: dict[int, int] = {}
    for folder in sorted(directory.glob("node-*")):
        holder = holder_of(folder / "data") if folder.is_dir() else None
        if holder is not None and "pid" in holder:
            pid = int(holder["pid"])
            waiting[os.pidfd_open(pid)] = pid
    if not waiting:
        raise fail(f"no node runs in {directory}")
    for descriptor in waiting:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    until = time.monotonic() + 15.0
    while waiting:
        ended, _, _ = select.select(list(waiting), [], [], max(until - time.monotonic(), 0.0))
        if not ended:
            raise fail(f"processes {sorted(waiting.values())} did not stop within 15 s")
        for descriptor in ended:
            os.close(descriptor)
            console.print(f"process {waiting.pop(descriptor)} has stopped")


app.command()(secret)
