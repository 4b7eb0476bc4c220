"""MetaQ's transaction: what begins and ends one, local or a branch of a distributed one (XA)."""

from typing import Final

from msgspec.structs import replace

from net.protocols.metaq_client import CHECK, FAILED, LATER, OK, UNAVAILABLE, Made, MetaqClient, Step
from net.protocols.metaq_framing import MalformedError, number_in, result
from net.protocols.metaq_transactions import LOCAL, Staged, check_key, not_begun, qualifier_of
from net.protocols.session import Ask, Found, Say
from quorate.protocol import Action, Code, ErrorWord, Reply, Request, TransactionRequest
from quorate.stream_replies import PreparedReply

PREPARED: Final = "0"
READ_ONLY: Final = "3"
"""What a prepare is answered: XA_OK, and XA_RDONLY of a branch that has ended since it has put nothing."""

PREPARED_TWICE: Final = "XAException:code=-6,msg=Cannot call prepare now."

LOOKS_MAX: Final = 1000
"""So often it is looked whether all puts of a transaction are answered that is committed without waiting for them."""

_OK: Final = int(Code.OK)


def transaction(client: MetaqClient, words: list[str], body: bytes) -> Found | None:
    """Begin or end a transaction: transaction key session TYPE [timeout_s] [qualifier] opaque."""
    count = len(words)
    if not 5 <= count <= 7:
        raise MalformedError
    key, kind, opaque = words[1], words[3], number_in(words[count - 1])
    timeout_s, qualifier = 0, ""
    if count == 7:
        timeout_s, qualifier = number_in(words[4]), words[5]
    elif count == 6:
        is_timeout = words[4].isascii() and words[4].isdigit()
        timeout_s, qualifier = (number_in(words[4]), "") if is_timeout else (0, words[4])
    if kind not in KINDS or (key == "null" and kind != "RECOVER"):
        raise MalformedError
    if key != "null":
        check_key(key)
    if kind == "END":
        return None
    if key.startswith(LOCAL) and kind != "RECOVER":
        return _local(client, key, kind, timeout_s, opaque)
    return _distributed(client, key, kind, (timeout_s, qualifier), opaque)


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
    if staged is None or staged.is_sent:
        return Say(result(FAILED, not_begun(key), opaque))
    if kind == "PREPARE":
        text = "XAException:code=-3,msg=Prepare not implemented on Local Transactions."
        return Say(result(FAILED, text, opaque))
    if kind == "ROLLBACK":
        stats.total["tx_rollback"] += 1
        staging.end(staged)
        return Say(result(OK, "", opaque))
    stats.total["tx_commit"] += 1
    return _Ended(client, opaque, staged).begin()


# -- branches of distributed ones --------------------------------------------------------------------------------------


def _distributed(client: MetaqClient, key: str, kind: str, asked: tuple[int, str], opaque: int) -> Found:
    """Begin or end a branch: as long as it is not prepared, the worker has it; then the shard's log."""
    now, staging, stats = client.listener.monotonic(), client.worker.staging, client.worker.stats
    timeout_s, qualifier = asked
    if kind == "FORGET":
        return Say(result(OK, "", opaque))
    if kind == "RECOVER":
        return Ask(_request(client, "list"), _Recovered(client, opaque, qualifier))
    if kind == "BEGIN":
        stats.total["tx_xa_begin"] += 1
        why_not = staging.begin(staging.branches, key, timeout_s, now)
        return Say(result(OK, "", opaque) if why_not is None else result(FAILED, why_not, opaque))
    staged = staging.find(staging.branches, key, now)
    if staged is not None and staged.is_sent:
        staged = None  # it is being prepared, or committed: what is asked now is done behind that
    if kind == "PREPARE":
        return _prepare(client, key, staged, opaque)
    stats.total["tx_rollback" if kind == "ROLLBACK" else "tx_commit"] += 1
    if staged is None:
        command = "rollback" if kind == "ROLLBACK" else "commit"
        return Ask(_request(client, command, key), _Decided(client, opaque, key))
    if kind == "COMMIT_TWO_PHASE":
        text = "XAException:code=-6,msg=Cannot do 2 phase commit if the transaction has not been prepared."
        return Say(result(FAILED, text, opaque))
    if kind == "ROLLBACK":
        staging.end(staged)
        return Say(result(OK, "", opaque))
    return _Ended(client, opaque, staged).begin()


def _request(client: MetaqClient, command: str, key: str | None = None) -> Request:
    return Request(Action.PREPARED, command=command, shard=client.listener.shard, xid=key)


def _prepare(client: MetaqClient, key: str, staged: Staged | None, opaque: int) -> Found:
    """Have what a branch has put be kept until it is decided about."""
    if staged is None:  # unless it is prepared already
        return Ask(_request(client, "list"), _Looked(client, opaque, key))
    return _Prepared(client, opaque, staged).begin()


class _Ended(Step):
    """A transaction is committed: when all its puts are answered, it is one request."""

    xid: str | None = None
    """Of one that is prepared."""

    nothing = ""
    """What is said of one that has put nothing."""

    def __init__(self, client: MetaqClient, opaque: int, staged: Staged) -> None:
        super().__init__(client, opaque)
        self.staged = staged
        self.left = LOOKS_MAX
        self.has_sent = False

    def begin(self) -> Found:
        """Take no more puts; ask for it, or say that there is nothing to be done."""
        self.staged.is_closed = True
        made = self._next()
        return made if isinstance(made, Ask) else Say(made)

    def _next(self) -> Ask | bytes:
        staged = self.staged
        if staged.unchecked:  # what is asked now is answered behind those
            return Ask(replace(staged.puts[-1], command=CHECK), self)
        if not staged.puts:
            self.client.worker.staging.end(staged)
            return result(OK, self.nothing, self.opaque)
        staged.is_sent = self.has_sent = True
        return Ask(TransactionRequest(Action.TRANSACTION, xid=self.xid, operations=[*staged.puts]), self)

    def told(self, reply: Reply) -> Made:
        """Say that it is done, or why not. What may be asked again leaves it open."""
        staged, staging = self.staged, self.client.worker.staging
        if not self.has_sent:
            self.left -= 1
            if staged.is_sent or not staging.is_open(staged):  # it was ended twice
                return result(FAILED, not_begun(staged.key), self.opaque)
            if not staged.unchecked or self.left:
                return self._next()
            staged.is_closed = False
            return result(UNAVAILABLE, "overloaded: puts of the transaction are not answered yet", self.opaque)
        staged.is_sent = False
        if self.stays_open(reply):
            staged.is_closed = False
            return self.refused(reply)
        staging.end(staged)
        return self.ended(reply)

    def stays_open(self, reply: Reply) -> bool:
        """Whether nothing was done, and it may be asked again."""
        return reply.error in LATER

    def ended(self, reply: Reply) -> bytes:
        """Say how it ended."""
        return result(OK, "", self.opaque) if reply.code == _OK else self.refused(reply)


class _Prepared(_Ended):
    """A branch is prepared; if it can't be, it is open as before. Where nobody knows, the shard's log does."""

    nothing = READ_ONLY

    def __init__(self, client: MetaqClient, opaque: int, staged: Staged) -> None:
        super().__init__(client, opaque, staged)
        self.xid = staged.key

    def stays_open(self, reply: Reply) -> bool:
        """Whether it is not prepared."""
        return reply.code != _OK and reply.error not in (ErrorWord.TRANSACTION_EXISTS, ErrorWord.UNKNOWN_OUTCOME)

    def ended(self, reply: Reply) -> bytes:
        """Say that it is prepared, or was before."""
        if reply.error == ErrorWord.TRANSACTION_EXISTS:
            return result(FAILED, PREPARED_TWICE, self.opaque)
        return result(OK, PREPARED, self.opaque) if reply.code == _OK else self.refused(reply)


class _Looked(Step):
    """It was looked whether a branch that is not open is prepared."""

    def __init__(self, client: MetaqClient, opaque: int, key: str) -> None:
        super().__init__(client, opaque)
        self.key = key

    def told(self, reply: Reply) -> Made:
        """Say so."""
        if not isinstance(reply, PreparedReply):
            return self.refused(reply)
        is_there = any(row.xid == self.key for row in reply.prepared)
        return result(FAILED, PREPARED_TWICE if is_there else _unknown(self.key), self.opaque)


class _Decided(Step):
    """A prepared branch was committed or rolled back, or there is none."""

    def __init__(self, client: MetaqClient, opaque: int, key: str) -> None:
        super().__init__(client, opaque)
        self.key = key

    def told(self, reply: Reply) -> Made:
        """Say so."""
        if reply.error == ErrorWord.NO_SUCH_TRANSACTION:
            return result(FAILED, _unknown(self.key), self.opaque)
        return result(OK, "", self.opaque) if reply.code == _OK else self.refused(reply)


class _Recovered(Step):
    """The shard has told which branches are prepared. `qualifier`: of one transaction manager; empty: of all."""

    def __init__(self, client: MetaqClient, opaque: int, qualifier: str) -> None:
        super().__init__(client, opaque)
        self.qualifier = qualifier

    def told(self, reply: Reply) -> Made:
        """Say their keys."""
        if not isinstance(reply, PreparedReply):
            return self.refused(reply)
        keys = [row.xid for row in reply.prepared if not self.qualifier or qualifier_of(row.xid) == self.qualifier]
        return result(OK, "\r\n".join(keys), self.opaque)


def _unknown(key: str) -> str:
    return f"XAException:code=-4,msg={not_begun(key)}"
