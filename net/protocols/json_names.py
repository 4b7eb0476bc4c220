"""What can be wrong with the names in a JSON request that few requests have."""

from net.protocols.session import Fault
from quorate.protocol import AFTER_BYTES_MAX, ErrorWord, Request, name_fault
from quorate.request_faults import group_fault, group_name_fault


def rare_fault_in(request: Request, body: bytes) -> Fault | None:
    """Say what is wrong with the names that few requests have."""
    names: list[tuple[str, str | None]] = [("key", request.key), ("pattern", request.pattern)]
    names += [("reader", request.reader), ("consumer", request.consumer), ("to", request.to)]
    if isinstance(request.after, str) and (why := name_fault(request.after, AFTER_BYTES_MAX)):
        return Fault(ErrorWord.FIELD, f"after {why}", body=body)
    if request.queues is not None:
        names += [(f"queues[{index}]", name) for index, name in enumerate(request.queues)]
    if isinstance(request.dead_letter, str):
        names.append(("dead_letter", request.dead_letter))
    for field, name in names:
        if name is not None and (why := name_fault(name)):
            return Fault(ErrorWord.FIELD, f"{field} {why}", body=body)
    return None


def topic_fault_in(request: Request, body: bytes) -> Fault | None:
    """Say what is wrong with the names in a request about a topic."""
    if request.topic is not None and (why := name_fault(request.topic)):
        return Fault(ErrorWord.FIELD, f"topic {why}", body=body)
    for field, name in (("member", request.member), ("producer", request.producer)):
        if name is not None and (why := group_name_fault(name)):
            return Fault(ErrorWord.FIELD, f"{field} {why}", body=body)
    if request.group is not None and (why := group_fault(request.group)):
        return Fault(ErrorWord.FIELD, f"group {why}", body=body)
    return None
