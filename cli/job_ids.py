"""Messages as they are named on the command line: by their ids, or by the ids that Disque's clients know them by."""

from typing import Annotated

import typer

from cli.output import fail
from net.node_facts import NodeFacts
from net.protocols.job_ids import is_well_formed, msg_id_of
from quorate import Client
from quorate.protocol import MSG_ID_MAX, Action

MessageIds = Annotated[list[str], typer.Argument(help="Messages' ids, or job ids (D-...).", metavar="MSG_IDS...")]


def message_id(connection: Client, given: str) -> int:
    """Read which message is named. Exits where that is none."""
    if given.isdigit() and 0 < int(given) <= MSG_ID_MAX:
        return int(given)
    job = given.encode("utf-8", "replace")
    if not is_well_formed(job):
        raise fail(f"{given!r} is no message's id, and no job's")
    cluster_id = int(connection.request(Action.NODE_DESCRIBE)["cluster_id"], 16)
    msg_id = msg_id_of(NodeFacts(cluster_id=cluster_id), job)
    if msg_id is None:
        raise fail(f"{given} is not the id of a job of this cluster")
    return msg_id


def message_ids(connection: Client, given: list[str]) -> list[int]:
    """Those that are named."""
    return [message_id(connection, one) for one in given]
