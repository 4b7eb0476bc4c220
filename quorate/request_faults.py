"""What can be wrong with a request's fields beyond their types, for clients and nodes."""

from typing import Final

from quorate.actions import NAMES, OF_TRANSACTIONS
from quorate.protocol import BATCH_MAX, GROUP_MAX, HEADER_BYTES_MAX, NAMED_MAX, Request, name_fault

NOT_IN_GROUPS: Final = frozenset(" ~!#$%^&*()+=`'\",;/?[]<>.:{}")
"""Characters that a group's name can't have: MetaQ's, which are those that paths of ZooKeeper and addresses use."""


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


def group_name_fault(name: str) -> str | None:
    """Say what is wrong with the name of a member or a producer; None if it may be used."""
    fault = name_fault(name)
    if fault is None and len(name.encode()) > GROUP_MAX:
        return f"is longer than {GROUP_MAX} bytes of UTF-8"
    return fault


def group_fault(name: str) -> str | None:
    """Say what is wrong with the name of a group; None if it may be used."""
    fault = group_name_fault(name)
    if fault is None:
        wrong = next((one for one in name if one in NOT_IN_GROUPS), None)
        fault = None if wrong is None else f"holds {wrong!r}: letters, digits, '-', '_', '@' and '|' may stand there"
    return fault


def named_in(operation: Request) -> int:
    """Count the messages and positions that an operation names in lists."""
    return len(operation.messages or ()) + len(operation.msg_ids or ()) + len(operation.positions or ())


def operations_fault(operations: list[Request]) -> str | None:
    """Say what is wrong with the operations of a transaction, beside what may be wrong with each; None: nothing is."""
    if not 0 < len(operations) <= BATCH_MAX:
        return f"operations: there are {len(operations)}, and from 1 to {BATCH_MAX} are allowed"
    named = 0
    for index, one in enumerate(operations):
        if one.action not in OF_TRANSACTIONS:
            allowed = ", ".join(f"{NAMES[action]} ({int(action)})" for action in sorted(OF_TRANSACTIONS))
            return f"operations[{index}].action: {one.action} is not one of {allowed}"
        if one.replicate is not None:
            return f"operations[{index}].replicate: a transaction is on a majority of the nodes, as a whole"
        named += named_in(one)
    if named > NAMED_MAX:
        return f"operations: they name {named} messages and positions in lists, and {NAMED_MAX} are allowed in all"
    return None
