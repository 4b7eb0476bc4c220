"""qctl log: the change log of a running node, and checking and mending the log of one that is stopped."""

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from actors.node import config as configuration
from actors.node.config import NodeConfig
from actors.node.data_folder import NodeLock
from cli.node import ConfigPath, DataDir, flags_of
from cli.output import AsJson, asking, client, console, fail, print_json, print_table, speaking
from cli.quantities import clock
from quorate import Client
from quorate.protocol import DOWN
from storage.errors import DamagedError, NoMembersError
from storage.real_disk import RealFolder
from storage.renewal import abstain, aside_name, members_of, others_can_elect, renew
from storage.repair import Findings, repair, verify
from storage.tables import LmdbTables
from storage.vote_file import NAME as VOTES
from storage.vote_file import Identity, open_vote_file

app = typer.Typer(help="The change log.", no_args_is_help=True)
POLL_S = 0.2
IN_A_CLUSTER = (
    "this node is one of a cluster, and has told the others that it stores what can't be read any more: to go on "
    "without it would lose what was acknowledged. Start the node, and it gets all from the others by itself, once; "
    "or qctl log repair --from-cluster. Where no other node has all, --force keeps what can be read"
)
TOO_FEW = (
    "the other nodes can't elect a leader without this one, which would vote for nobody before it has all again. With "
    "--force it votes at once: do that if one of them has all that this one had (of two nodes, the other has)"
)
HIDDEN = ("trans_id", "time", "kind", "queue")


@app.command()
@asking
def tail(
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many of the last records.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as records come.")] = False,
    shard: Annotated[int, typer.Option(help="The shard.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Print the log's last records."""
    with client() as connection:
        state = _running(connection).get(shard)
        if state is None:
            raise fail(f"there is no shard {shard}, or it is down")
        after = max(state["committed"] - count, state["first_trans_id"] - 1)
        while True:
            reply = connection.log(after, 1000, shard)
            for record in reply["records"]:
                if as_json:
                    print_json(record)
                else:
                    rest = " ".join(
                        f"{name}={_said(name, value)}" for name, value in record.items() if name not in HIDDEN
                    )
                    print(record["trans_id"], clock(record["time"]), record["kind"], record["queue"], rest)
            after = reply["last_trans_id"]
            if after < reply["committed"]:
                continue
            if not follow:
                return
            time.sleep(POLL_S)


def _said(name: str, value: Any) -> Any:
    """Write instants for people."""
    if name.endswith("_at"):
        return clock(value)
    return f"[{', '.join(map(clock, value))}]" if name.endswith("_ats") else value


@app.command()
@asking
def readers(
    forget: Annotated[str | None, typer.Option("--forget", help="Keep nothing for this reader any more.")] = None,
    shard: Annotated[int | None, typer.Option(help="This shard alone.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the log's named readers: where they are, how far behind, and what they have lost."""
    with client() as connection:
        shards = sorted(_running(connection)) if shard is None else [shard]
        rows: list[dict[str, Any]] = [{"shard": one, **row} for one in shards for row in connection.readers(one)]
        if forget is not None:
            known = [row["shard"] for row in rows if row["reader"] == forget]
            for one in known:
                connection.forget_reader(forget, one)
            if not known:
                raise fail(f"there is no reader {forget!r}")
            console.print(f"forgotten: {forget}")
            return
    if as_json:
        print_json(rows)
        return
    columns = ["reader", "shard", "trans_id", "lag", "lost"]
    table = [[*(row[name] for name in columns), clock(row["at"])] for row in rows]
    print_table(["reader", "shard", "has up to", "behind by", "lost", "said at"], table)


def _running(connection: Client) -> dict[int, dict[str, Any]]:
    """Give the shards of a node that run, by number."""
    return {int(one["shard"]): one for one in connection.status()["shards"] if one["role"] != DOWN}


def _shard_folder(config: Path | None, data_dir: Path | None, shard: int) -> Path:
    return _held_folder(_loaded(config, data_dir), shard)


def _loaded(config: Path | None, data_dir: Path | None) -> NodeConfig:
    return configuration.load(config, flags=flags_of(None, data_dir=data_dir and str(data_dir)))


def _held_folder(loaded: NodeConfig, shard: int) -> Path:
    folder = Path(loaded["data_dir"]) / f"shard-{shard}"
    if not (folder / "data.mdb").exists():
        raise fail(f"{folder} holds no log")
    lock = NodeLock(Path(loaded["data_dir"]))
    lock.take({})  # held until qctl ends
    return folder


def _from_cluster(loaded: NodeConfig, folder: Path, shard: int, force: bool) -> None:
    """Begin anew."""
    own = loaded["node_id"]
    try:
        members = members_of(folder, shard)
    except NoMembersError:
        members = None
    listed = {node_id: f"node {node_id} at {host}:{port}" for node_id, host, port in configuration.other_nodes(loaded)}
    if members is not None:
        known = [*members.members, *members.wanted]
        listed = {one.node_id: f"node {one.node_id} at {one.host}:{one.port}" for one in known if one.node_id != own}
    if not listed:
        raise fail("neither these data nor the configuration name another node: there is none to get them from")
    if not force and not others_can_elect(own, members, listed):
        raise fail(TOO_FEW)
    try:
        aside = renew(folder, shard, members, votes=force)
    except DamagedError as error:
        raise fail(
            f"{error}: it can't remember how it voted. qctl cluster remove-node N, empty the folder, start the "
            "node, qctl cluster add-node"
        ) from error
    console.print(f"the damaged data are in {aside}; remove them when all is well")
    until = "votes as it did" if force else "votes for nobody before"
    console.print(f"start the node: it gets all from the leader ({', '.join(listed.values())}), and {until}")


def _abstains(folder: Path) -> bool:
    """Whether the node has begun anew, and did not get all again."""
    journal = RealFolder(folder / "journal")
    if VOTES not in journal.names():
        return False
    votes = open_vote_file(journal, Identity(0, 0, 0))
    try:
        return votes.identity.abstains
    finally:
        votes.close()


def _print(findings: Findings, as_json: bool) -> None:
    if as_json:
        print_json(findings)
        return
    console.print(
        f"records {findings.first_trans_id} to {findings.last_trans_id} in {findings.entries} entries, "
        f"{findings.journal_entries} more in the journal; {findings.backlog_messages} messages in the backlog; "
        f"{findings.live_messages} live messages in {findings.queues} queues"
    )
    if findings.rows_without_checksum:
        console.print(
            f"{findings.rows_without_checksum} rows have no checksum: an earlier version wrote them. They get one "
            "when they are next written, from feature level 6 on (qctl cluster upgrade)"
        )
    if findings.blocks:
        console.print(f"{findings.blocks} blocks of topics' messages")
    for text in findings.damaged_blocks:
        console.print(f"DAMAGED: {text}; its messages are lost, and readers of the topic are told so")
    for text in findings.torn:
        console.print(f"torn (a start cuts it off): {text}")
    for text in findings.faults:
        console.print(f"DAMAGED: {text}")
    for first, last in findings.lost:
        console.print(f"unreadable: records {first} to {last}")


@app.command(name="verify")
@speaking
def verify_command(
    config: ConfigPath = None, data_dir: DataDir = None, shard: int = 0, as_json: AsJson = False
) -> None:
    """Read a stopped node's whole log and name every fault. Exit code 1 if a start would refuse it."""
    folder = _shard_folder(config, data_dir, shard)
    tables = LmdbTables(folder)
    findings = verify(tables, RealFolder(folder / "journal"), shard)
    tables.close()
    _print(findings, as_json)
    if findings.faults:
        way = "--from-cluster gets all from the other nodes" if findings.is_of_cluster else "keeps what can be read"
        console.print(f"qctl log repair {way}")
        raise typer.Exit(1)
    if not as_json:
        console.print("no damage")


@app.command(name="repair")
@speaking
def repair_command(
    config: ConfigPath = None,
    data_dir: DataDir = None,
    shard: int = 0,
    from_cluster: Annotated[
        bool, typer.Option("--from-cluster", help="Put the data aside; the node gets all from the other nodes.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Though the others can't elect then, or it is a cluster's: the node votes with what it has."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a damaged log usable: keep what can be read, say what is lost. The folder is copied first.

    Not for a node of a cluster, which has told the others that it stores what would be lost: --from-cluster is.
    """
    loaded = _loaded(config, data_dir)
    folder = _held_folder(loaded, shard)
    if from_cluster:
        _from_cluster(loaded, folder, shard, force)
        return
    if force and _abstains(folder):
        abstain(RealFolder(folder / "journal"), abstains=False)
        console.print("it votes again, with what it has")
    tables = LmdbTables(folder)
    findings = verify(tables, RealFolder(folder / "journal"), shard)
    if not findings.faults:
        tables.close()
        _print(findings, as_json)
        console.print("nothing to repair")
        return
    tables.close()
    if findings.is_of_cluster and not force:
        _print(findings, as_json)
        raise fail(IN_A_CLUSTER)
    copy = aside_name(folder)
    shutil.copytree(folder, copy)
    tables = LmdbTables(folder)
    repair(tables, RealFolder(folder / "journal"), shard)
    tables.close()
    _print(findings, as_json)
    console.print(f"repaired: {findings.live_messages} live messages kept; the damaged folder is copied to {copy}")
    console.print("what the unreadable records had produced is gone, what they had confirmed comes back")
