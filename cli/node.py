"""qctl node: start, stop, look at and reload a node."""

import json
import os
import select
import signal
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from actors.node import config as configuration
from actors.node.config_file import ConfigError
from actors.node.data_folder import ReloadOutcome, holder_of, last_reload
from actors.node.launch import READY, TRYING, environment, launch, supervisor_command
from actors.node.security import load_security
from cli.output import (
    UNWELL,
    AsJson,
    asked_nodes,
    asking,
    client_at,
    console,
    fail,
    print_json,
    print_table,
    speaking,
    told_error,
)
from cli.quantities import written
from quorate import QuorateError
from quorate.protocol import DOWN
from quorate.replies import NodeStatus

app = typer.Typer(help="Run a node.", no_args_is_help=True)

RELOAD_S: Final = 5.0
"""So long a node has to read its configuration again."""

ConfigPath = Annotated[
    Path | None, typer.Option("--config", "-c", envvar="QUORATE_CONFIG", help="A JSON file; comments are allowed.")
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", "-d", help="The folder that the node keeps its data in.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="Any setting as NAME=VALUE; see qctl config show.")
]


def flags_of(settings: list[str] | None, **named: Any) -> dict[str, Any]:
    """Read the command line's settings by name. Raises typer.Exit."""
    flags = {name: value for name, value in named.items() if value is not None}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals:
            raise fail(f"--set {setting}: NAME=VALUE is wanted")
        flags[name] = value
    return flags


@app.command()
@speaking
def start(
    config: ConfigPath = None,
    data_dir: DataDir = None,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", "-p", help="The port, TCP and UDP.")] = None,
    settings: Settings = None,
    listen: Annotated[
        list[str] | None,
        typer.Option("--listen", help="One more port for clients: PROTOCOL or PROTOCOL:PORT, as disque:7711."),
    ] = None,
    with_console: Annotated[
        bool, typer.Option("--console", help="With a page, metrics and health on 127.0.0.1:1180.")
    ] = False,
    background: Annotated[
        bool, typer.Option("--background", "-b", help="Return when the node is ready; it logs to DATA_DIR/node.log.")
    ] = False,
) -> None:
    """Start a durable node: with nothing at all, on 127.0.0.1:1111 with its data in ./quorate-data."""
    http = "[{}]" if with_console else None
    flags = flags_of(settings, data_dir=data_dir and str(data_dir), host=host, port=port, http_listeners=http)
    if listen:
        flags["listeners"] = json.dumps([_listener(one, host) for one in listen])
    loaded = configuration.load(config, flags=flags)
    if not background:
        command = supervisor_command(config, flags)
        os.execve(command[0], command, environment())
    _, faults = load_security(loaded)
    if faults:
        raise ConfigError(faults)
    folder = Path(loaded["data_dir"])
    os.umask(0o077)
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "node.log"
    if not loaded["log_prefix"]:  # so that the log may be moved away, and goes on under its name
        flags["log_prefix"] = str(output.with_suffix("").resolve())
    log = Path(f"{loaded['log_prefix']}.log") if loaded["log_prefix"] else output
    process, said = launch(config, flags, output)
    if said.startswith(TRYING):
        reason = said.removeprefix(TRYING)
        raise fail(
            f"process {process.pid} is not ready, and goes on trying: {reason}; qctl node stop ends it, see {log}"
        )
    if said != READY:
        process.wait()
        raise fail(said or f"the node did not start; {log} says why")
    where = f"{loaded['host']}:{loaded['port']}"
    console.print(f"node {loaded['node_id']} ready on {where}, process {process.pid}, log in {log}")
    for one in loaded["http_listeners"]:
        console.print(
            f"{', '.join(one['serves'])} at http{'s' if one.get('cert') else ''}://{one['host']}:{one['port']}/"
        )


def _listener(text: str, host: str | None) -> dict[str, Any]:
    """Read a listener as it is said in one word. Exits where it is none."""
    protocol, _, port = text.partition(":")
    if port and not port.isdigit():
        raise fail(f"--listen {text}: the port {port!r} is no number")
    listener: dict[str, Any] = {"protocol": protocol, "host": host or "127.0.0.1"}
    return {**listener, "port": int(port)} if port else listener


def _running(config: Path | None, data_dir: Path | None) -> tuple[int, Path]:
    """Find the process of the node that holds the folder, and the folder. Raises typer.Exit if none does."""
    loaded = configuration.load(config, flags=flags_of(None, data_dir=data_dir and str(data_dir)))
    folder = Path(loaded["data_dir"])
    holder = holder_of(folder)
    if holder is None or "pid" not in holder:
        raise fail(f"no node runs on {folder}")
    return int(holder["pid"]), folder


@app.command()
@speaking
def stop(config: ConfigPath = None, data_dir: DataDir = None) -> None:
    """Stop the node that holds the data folder, and wait until it has."""
    pid, _ = _running(config, data_dir)
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        if not select.select([descriptor], [], [], 10.0)[0]:
            raise fail(f"process {pid} did not stop within 10 s")
    finally:
        os.close(descriptor)
    console.print(f"process {pid} has stopped")


def reloaded(pid: int, folder: Path) -> ReloadOutcome:
    """Let the supervisor `pid` of the node in that folder read its configuration again. Raises typer.Exit."""
    before = last_reload(folder)
    os.kill(pid, signal.SIGHUP)
    until = time.monotonic() + RELOAD_S
    while (outcome := last_reload(folder)) is None or outcome == before or outcome.pid != pid:
        if time.monotonic() > until:
            raise fail(f"process {pid} has not said within {RELOAD_S:g} s what came of it; its log may")
        time.sleep(0.02)
    return outcome


@app.command()
@speaking
def reload(config: ConfigPath = None, data_dir: DataDir = None) -> None:
    """Let the node read its configuration again: log level, limits, virtual queues, who may do what, certificates.

    Exit code 1 if the configuration has faults; the node goes on with the one that it has. 3 if a worker does not go by
    it, or not yet.
    """
    outcome = reloaded(*_running(config, data_dir))
    said = "\n".join(outcome.said)
    if not outcome.is_taken:
        raise fail(said)
    console.print(said, soft_wrap=True)
    if outcome.without:
        raise typer.Exit(3)


@app.command()
@asking
def status(as_json: AsJson = False) -> None:
    """Show a running node and its shards; each node, where the address names several.

    Exit code 3 if a shard is down, knows no leader, has a full disk or contradicts its leader; 1 if a node can't be
    asked.
    """
    codes = [_show_node(host, port, as_json=as_json) for host, port in asked_nodes()]
    if any(codes):
        raise typer.Exit(1 if 1 in codes else UNWELL)


def _show_node(host: str, port: int, *, as_json: bool) -> int:
    """Show one, and give the exit code for it."""
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        with client_at(host, port, timeout=10.0) as connection:
            reply = connection.status()
    except QuorateError as error:
        if len(asked_nodes()) == 1:
            raise
        told_error(f"{at}: {error}")
        return 1
    if as_json:
        print_json(reply)
        return _code_of(reply)
    console.print(
        f"node {reply['node_id']} on {at}, version {reply['version']}, {reply.get('runs') or '-'}, "
        f"process {reply['pid']}, "
        f"up {written(reply['uptime_s'])}, {reply['resident_bytes'] / 2**20:.0f} MiB, "
        f"{reply['connections']} clients, {reply['requests']} requests"
    )
    columns = ["shard", "role", "leader_node_id", "trans_id", "committed", "durable", "checkpointed", "first_trans_id"]
    columns += ["queues", "messages", "waiting_consumers"]
    if len(reply["shards"]) > 1:
        columns.append("direct_port")
    print_table(columns, [[shard.get(column, "-") for column in columns] for shard in reply["shards"]])
    for shard in reply["shards"]:
        if shard["role"] == DOWN:
            console.print(f"shard {shard['shard']} is down: {shard['fault']}")
        if shard.get("disk_full"):
            console.print(f"shard {shard['shard']}: the disk is full: {shard['disk_full']}")
        if shard.get("contradiction"):
            console.print(f"shard {shard['shard']}: its data contradict the leader's: {shard['contradiction']}")
        if shard.get("recovery"):
            console.print(f"shard {shard['shard']}: cut off at the last start: {shard['recovery']}")
        if shard.get("abstains"):
            console.print(
                f"shard {shard['shard']} began anew: it votes for nobody before it has all that its leader has"
            )
    for warning in reply.get("warnings", ()):
        console.print(f"warning: {warning}")
    for limit in reply.get("limits_reached", ()):
        console.print(f"a limit was reached in the last minute: {limit}")
    return _code_of(reply)


def _code_of(reply: NodeStatus) -> int:
    return UNWELL if reply.get("partial") or any(map(what_is_wrong, reply["shards"])) else 0


def what_is_wrong(shard: dict[str, Any]) -> str | None:
    """Say why a shard of a node can't do its work, by its row of the status; None: it can."""
    if shard["role"] == DOWN:
        return f"it is down: {shard['fault']}"
    if shard["role"] == "none":
        return "this node knows no leader"
    if shard.get("disk_full"):
        return f"the disk is full: {shard['disk_full']}"
    return f"its data contradict the leader's: {shard['contradiction']}" if shard.get("contradiction") else None
