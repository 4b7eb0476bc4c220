"""Which fields of a request may stand together where they name messages."""

from quorate.protocol import Request


def naming_fault(request: Request) -> tuple[str, str] | None:
    """Say which field keeps a request from naming messages, and what is wrong with it; None if it names them.

    Messages are named by `msg_id`, by `msg_ids`, by both, or by a `key` with a `scope`; `queue` narrows that down.
    This is the one place that says which of these fields may stand together, for confirm, release, extend, bury and
    withhold.
    """
    if request.delivery is not None and (fault := delivery_fault(request)) is not None:
        return "delivery", fault
    if request.msg_id is None and request.msg_ids is None and (request.scope is None or request.key is None):
        return "msg_id", "is missing, and so is msg_ids"
    return None


def delivery_fault(request: Request) -> str | None:
    """Say what is wrong with a request's `delivery`; None if it says one for each message, or none.

    A delivery is counted for a message that the request names by its id: a number stands beside `msg_id` alone, a list
    beside `msg_ids` alone. Beside a `key` there is none.
    """
    delivery = request.delivery
    if delivery is None:
        return None
    if isinstance(delivery, int):
        if request.msg_ids is not None:
            return "is a number, and with msg_ids it must be a list"
        return None if request.msg_id is not None else "is a number, which stands beside msg_id alone"
    if request.msg_ids is None or request.msg_id is not None:
        return "is a list, which stands beside msg_ids alone"
    wanted = len(request.msg_ids)
    return None if len(delivery) == wanted else f"has {len(delivery)} numbers for {wanted} msg_ids"
