"""How much work something is, in lines of Python: what does not depend on the machine. Of interpreted code alone."""

import sys
from collections.abc import Callable
from typing import Any


def steps(work: Callable[[], Any]) -> int:
    """How many lines run."""
    count = 0

    def trace(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
