"""MetaQ's transaction: what begins and ends one, local or a branch of a distributed one (XA)."""

from typing import Final

from net.protocols.metaq_client import FAILED, OK, Made, MetaqClient, Step
from net.protocols.metaq_framing import MalformedError, number_in, result
from net.protocols.metaq_transactions import LOCAL, check_key, not_begun
from net.protocols.session import Ask, Found, Say
from quorate.protocol import Action, Code, Reply, TransactionRequest

_OK: Final = int(Code.OK)


def transaction(client: MetaqClient, words: list[str], body: bytes) -> Found | None:
    """Begin or end a transaction: transaction key session TYPE [timeout_s] [qualifier] opaque."""
    count = len(words)
    if not 5 <= count <= 7:
        raise MalformedError
    key, kind, opaque = words[1], words[3], number_in(words[count - 1])
    timeout_s, _qualifier = 0, ""
    if count == 7:
        timeout_s, _qualifier = number_in(words[4]), words[5]
    elif count == 6:
        is_timeout = words[4].isascii() and words[4].isdigit()
        timeout_s, _qualifier = (number_in(words[4]), "") if is_timeout else (0, words[4])
    if kind not in KINDS or (key == "null" and kind != "RECOVER"):
        raise MalformedError
    if key != "null":
        check_key(key)
    if kind == "END":
        return None
    if key.startswith(LOCAL) and kind != "RECOVER":
        return _local(client, key, kind, timeout_s, opaque)
    return _distributed(client, key, kind, opaque)


KINDS: Final = frozenset(
    ("BEGIN", "PREPARE", "COMMIT_ONE_PHASE", "COMMIT_TWO_PHASE", "ROLLBACK", "RECOVER", "FORGET", "END")
)


def _local(client: MetaqClient, key: str, kind: str, timeout_s: int, opaque: int) -> Found:
    now, staging, stats = client.listener.monotonic(), client.worker.staging, client.worker.stats
    if kind == "FORGET":
        return Say(result(FAILED, f"XAException:code=-4,msg={key} is not a valid xid", opaque))
    if kind == "BEGIN":
        stats.total["tx_begin"] += 1
        why_not = staging.begin(client.open, key, timeout_s, now)
        return Say(result(OK, "", opaque) if why_not is None else result(FAILED, why_not, opaque))
    staged = staging.find(client.open, key, now)
    if staged is None:
        return Say(result(FAILED, not_begun(key), opaque))
    if kind == "PREPARE":
        text = "XAException:code=-3,msg=Prepare not implemented on Local Transactions."
        return Say(result(FAILED, text, opaque))
    staging.end(staged)
    if kind == "ROLLBACK":
        stats.total["tx_rollback"] += 1
        return Say(result(OK, "", opaque))
    stats.total["tx_commit"] += 1
    if not staged.puts:
        return Say(result(OK, "", opaque))
    return Ask(TransactionRequest(Action.TRANSACTION, operations=staged.puts), _Ended(client, opaque))


def _distributed(client: MetaqClient, key: str, kind: str, opaque: int) -> Found:
    return Say(result(FAILED, "XAException:code=-3,msg=XA transactions are not supported.", opaque))


class _Ended(Step):
    """A transaction was committed, or not."""

    def told(self, reply: Reply) -> Made:
        """Say so."""
        return result(OK, "", self.opaque) if reply.code == _OK else self.refused(reply)
