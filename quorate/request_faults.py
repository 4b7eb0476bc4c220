"""What can be wrong with a request's fields beyond their types; names are `quorate.protocol`'s."""

from quorate.protocol import HEADER_BYTES_MAX, Request


def host_fault(host: str) -> str | None:
    """Say what is wrong with the name or address of a host; None if it could be looked up."""
    try:
        encoded = host.encode("idna")
    except UnicodeError as error:
        return f"is no host's name: {error}"
    return None if encoded.isascii() and encoded.decode().isprintable() and " " not in host else "is no host's name"


def headers_fault(headers: dict[str, str]) -> str | None:
    """Say what is wrong with a message's headers; None if it may have them."""
    size = 0
    for name, text in headers.items():
        if not name:
            return "has an empty name"
        size += len(name.encode()) + len(text.encode())
    return f"has {size} bytes, and {HEADER_BYTES_MAX} are allowed" if size > HEADER_BYTES_MAX else None


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
