"""What actors run on. An actor asks its runtime for the time, for timers and for its turn, and nothing else for them.

There are two: `AsyncioRuntime` in `actors.runtime.asyncio_runtime`, one event loop of a worker process, and the
simulated one in `tests.simulation`, with virtual time and every choice drawn from a seed. The same actor classes run
on both.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Protocol

import pykka

TURN_MESSAGES_MAX: Final = 64
"""Messages that an actor handles before another has its turn."""


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None:
        """Do not call it any more."""


class Turn(Protocol):
    """Something that can be given a turn: an actor with messages in its inbox."""

    def take_turn(self) -> None:
        """Handle some of what waits, and ask for another turn if more does."""


Watcher = Callable[[str, Any], None]
"""Is told what happens, and with what: the seam that checkers look through. It changes nothing."""


class Runtime(Protocol):
    """The world as an actor sees it.

    Which thread calls what: turns, timers, and what sockets call (`Listener`, `Peers`, through their connections and
    links) run on the loop's thread, one at a time, and may call each other's public methods only there. Blocking actors
    run each on a thread of its own; they and the loop's actors share nothing but messages. `wake`, `actor_failed` and
    an inbox's `put` may be called from any thread.
    """

    def now(self) -> float:
        """The wall clock (Unix seconds). It may jump."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""

    def random(self) -> float:
        """A number from [0, 1), each as likely as any other."""

    def process(self) -> tuple[int, int]:
        """The process's id and its resident memory (bytes; 0 where the system does not tell)."""

    def rest(self) -> None:
        """Let the loop's thread have the interpreter for a moment: for a blocking actor, in the middle of long work.

        The loop lets go of the interpreter with every system call, a hundred times in one round. Whoever computes
        beside it without resting takes it each time for as long as `sys.setswitchinterval` says.
        """

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the loop after `delay_s` seconds of monotonic time."""

    def watch(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop whenever `descriptor` has something to read."""

    def wake(self, turn: Turn) -> None:
        """Give `turn` its turn soon, on the loop. May be called from any thread."""

    watcher: "Watcher | None"
    """Who is told what actors decide; None but in the simulator and in tests."""

    def actor_failed(self, who: object, error: BaseException) -> None:
        """Something raised, in a turn, a timer or a socket's callback: its worker ends, and recovers.

        What an actor knew when it raised can't be trusted any more. `who` is it, or what it happened in.
        """

    def start_blocking(self, actor_class: "type[BlockingActor]", *arguments: Any) -> pykka.ActorRef[Any]:
        """Start an actor that blocks (on a disk) where that holds up nobody; the runtime is its first argument."""


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
        """The value, as pykka's; raises `BlockedLoopError` on a loop's thread, even if the value is there."""
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
