"""What blocks: actors on threads of their own, since they wait for a disk, and what keeps a loop from waiting for them.

Apart from `contract`, since mypyc compiles no class that inherits from a built-in one.
"""

import threading
from types import TracebackType
from typing import Any

import pykka

from actors.runtime.contract import Runtime


class BlockedLoopError(RuntimeError):
    """A loop's thread was about to wait for a future; it would have stopped every actor and socket on it."""

    def __init__(self) -> None:
        super().__init__("an actor on the event loop may not wait for a future: tell, and handle the answer")


_this_thread = threading.local()


def mark_loop_thread(runs_loop: bool) -> None:
    """Say that the calling thread runs actors' turns now, or does not any more."""
    _this_thread.runs_loop = runs_loop


class GuardedFuture(pykka.ThreadingFuture[Any]):
    """pykka's future, except that `get` on a thread that runs a loop raises `BlockedLoopError` at once."""

    def get(self, *, timeout: float | None = None) -> Any:
        """Give the value, as pykka's; raises `BlockedLoopError` on a loop's thread, even if the value is there."""
        if getattr(_this_thread, "runs_loop", False):
            raise BlockedLoopError
        return super().get(timeout=timeout)


class BlockingActor(pykka.ThreadingActor):
    """An actor on a thread of its own, since it waits for a disk. If it raises, its worker ends."""

    use_daemon_thread = True

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return GuardedFuture()

    def _handle_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super()._handle_failure(exception_type, exception_value, traceback)
        self.runtime.actor_failed(self, exception_value or RuntimeError("an actor failed"))
