"""What a reply may hold, as far as its request says: by that a connection bounds what it has open."""

from typing import Any, Final

from msgspec import Raw

from quorate.actions import LONG_REPLIES
from quorate.protocol import Action, Reply, Request, TransactionRequest

SHORT: Final = 0
"""A few words."""
ONE_MESSAGE: Final = 1
"""A message of any size."""
LONG: Final = 2
"""As much as a reply can."""
ALONE: Final = 3
"""Nothing behind it is to be begun before it is answered."""

ROW_BYTES: Final = 300
"""What each row of a long reply takes beside its data, more or less."""

SHORT_OPERATIONS: Final = 100
"""The replies to so many operations are as long as that to a batch."""

_TRANSACTION: Final = int(Action.TRANSACTION)
_CONSUME: Final = int(Action.CONSUME)
_FIND: Final = int(Action.FIND)
_WAIT_WITH_LONG: Final = frozenset({int(Action.SHOW), int(Action.READ), int(Action.GROUP)})
_LONG_REPLIES: Final = LONG_REPLIES


def reply_length(request: Request) -> int:
    """One of the above. What waits (a consume, a show, a read) holds nobody up meanwhile, so its reply counts as short.

    But a job's, which waits in its connection's order. So does what asks first whether there is a cluster (a find as a
    job: `disque_session`): what stands behind it would overtake what is done then.
    """
    action = request.action
    if action == _FIND:
        return ALONE if request.as_job else SHORT
    if action != _CONSUME:
        if action not in _LONG_REPLIES:
            return SHORT if action != _TRANSACTION else _of_transaction(request)
        return SHORT if action in _WAIT_WITH_LONG and request.wait else LONG
    if request.wait:
        return ALONE if request.as_job else SHORT
    return ONE_MESSAGE if request.count is None else LONG


def _of_transaction(request: Request) -> int:
    return LONG if isinstance(request, TransactionRequest) and len(request.operations) > SHORT_OPERATIONS else SHORT


def reply_bytes(reply: Reply) -> int:
    """About how long a reply is, of which nobody has made bytes."""
    size = ROW_BYTES
    for name in reply.__struct_fields__:
        rows: Any = getattr(reply, name)
        if isinstance(rows, list):
            size += len(rows) * ROW_BYTES + sum([_data_bytes(row) for row in rows])
    one: Any = getattr(reply, "message", None)
    return size + _data_bytes(reply) + _data_bytes(one)


def _data_bytes(row: object) -> int:
    """Of a message, or of what was packed already: a record, an entry."""
    data: Any = row
    if not isinstance(row, (bytes, Raw)):
        data = row.get("data") if isinstance(row, dict) else getattr(row, "data", None)
    return 0 if data is None else len(data) if isinstance(data, str) else len(bytes(data))
