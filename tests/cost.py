"""What some work costs, without a clock's word for it.

A time in seconds says as much of the machine as of the code: it fails where others run, and says nothing where it has
room. Calls are counted instead (of Python's functions and of C's), and bytes that are held at a time; the growth from a
part of the input to all of it is a ratio of one process's times, the least of several.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

SHORT_NS = 200_000
"""Of what is shorter, a ratio says nothing."""


def calls_of(work: Callable[[], object]) -> int:
    """How many functions `work` calls. Compiled code's calls of its own functions are not seen."""
    return _events(work, ("call", "c_call"), sys.getprofile, sys.setprofile)


def lines_of(work: Callable[[], object]) -> int:
    """How many lines `work` runs. Compiled code has none."""
    return _events(work, ("line",), sys.gettrace, sys.settrace)


def _events(
    work: Callable[[], object], wanted: tuple[str, ...], get: Callable[[], Any], put: Callable[[Any], None]
) -> int:
    """How many of the wanted events the interpreter tells of, to whoever is put there."""
    count = 0

    def seen(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event in wanted
        return seen

    before, was_enabled = get(), gc.isenabled()
    gc.disable()  # it runs what others have asked it to call, and would end what tests before have left
    put(seen)
    try:
        work()
    finally:
        put(before)
        if was_enabled:
            gc.enable()
    return count


def peak_of(work: Callable[[], object]) -> int:
    """How many bytes of Python's memory `work` holds at a time, at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def growth(part: Callable[[], object], whole: Callable[[], object]) -> float:
    """How many times this thread's time for `part` that for `whole` is, the least of several each.

    What takes less than SHORT_NS counts as so much: a page fault would decide there.
    """

    def least(work: Callable[[], object], tries: int) -> int:
        times = []
        for _ in range(tries):
            begun = time.thread_time_ns()
            work()
            times.append(time.thread_time_ns() - begun)
        return min(times)

    was_enabled = gc.isenabled()
    gc.disable()  # it counts what the tests before have left
    try:
        return least(whole, 3) / max(least(part, 5), SHORT_NS)
    finally:
        if was_enabled:
            gc.enable()
