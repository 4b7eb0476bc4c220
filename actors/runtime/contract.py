"""What actors run on. An actor asks its runtime for the time, for timers and for its turn, and nothing else for them.

There are two: `AsyncioRuntime` in `actors.runtime.asyncio_runtime`, one event loop of a worker process, and the
simulated one in `tests.simulation`, with virtual time and every choice drawn from a seed. The same actor classes run
on both.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Protocol

import pykka
from mypy_extensions import mypyc_attr

TURN_MESSAGES_MAX: Final = 64
"""Messages that an actor handles before another has its turn."""

TURN_S: Final = 0.002
"""How long actors may run before the sockets are looked at. A request has some four turns of the loop before its reply
leaves: where others have work for all of them, it takes four times as long as actors and sockets may have of each."""


STILL_S: Final = 0.1
"""A loop that has not come back for so long has stood still: its process was stopped, or had no processor."""


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


@mypyc_attr(allow_interpreted_subclasses=True)
class Runtime(ABC):
    """The world as an actor sees it.

    Which thread calls what: turns, timers, and what sockets call (`Listener`, `Links`, through their connections and
    links) run on the loop's thread, one at a time, and may call each other's public methods only there. Blocking actors
    run each on a thread of its own; they and the loop's actors share nothing but messages. `wake`, `actor_failed` and
    an inbox's `put` may be called from any thread.

    A base class, and no Protocol: compiled code calls what it knows the place of, and each turn asks for something.
    `watcher` is told what actors decide; None but in the simulator and in tests. `monotonic_clock` is `monotonic`, at a
    third of the cost, for who calls it very often. A subclass calls `super().__init__()`.
    What a subclass lacks raises when it is called: mypyc lets an incomplete one be made.
    """

    def __init__(self) -> None:
        self.watcher: Watcher | None = None
        self.monotonic_clock: Callable[[], float] = self.monotonic

    @abstractmethod
    def now(self) -> float:
        """Read the wall clock (Unix seconds). It may jump."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def random(self) -> float:
        """Draw a number from [0, 1), each as likely as any other."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def process(self) -> tuple[int, int]:
        """Give the process's id and its resident memory (bytes; 0 where the system does not tell)."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def usage(self) -> tuple[float, float, int]:
        """Give what the process has used of the processors, itself and by the system (s), and its open descriptors (0
        where nobody tells)."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def worked(self) -> float:
        """Give what the loop's thread has used of the processors (s), without what it waited for one. A system call."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def is_late(self) -> bool:
        """Whether what runs on the loop now has taken its time (`TURN_S`): who has more to do leaves that for another
        turn. Each turn does something all the same, also one that is late from its beginning."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    def stood_still(self) -> bool:
        """Whether the loop had stood still for more than `STILL_S` before what is read from sockets now: that may have
        lain there for so long, and whoever sent it may have given it up."""
        return False

    @abstractmethod
    def rest(self) -> None:
        """Let the loop's thread have the interpreter for a moment: for a blocking actor, in the middle of long work.

        The loop lets go of the interpreter with every system call, a hundred times in one round. Whoever computes
        beside it without resting takes it each time for as long as `sys.setswitchinterval` says.
        """
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the loop after `delay_s` seconds of monotonic time."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def watch(self, descriptor: int, callback: Callable[[], None], expects: Callable[[], bool]) -> None:
        """Call `callback` on the loop whenever `descriptor` has something to read, and now and then while something is
        expected there."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def wake(self, turn: Turn) -> None:
        """Give `turn` its turn soon, on the loop. May be called from any thread."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def actor_failed(self, who: object, error: BaseException) -> None:
        """Something raised, in a turn, a timer or a socket's callback: its worker ends, and recovers.

        What an actor knew when it raised can't be trusted any more. `who` is it, or what it happened in.
        """
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory

    @abstractmethod
    def start_blocking(self, actor_class: type[pykka.ThreadingActor], *arguments: Any) -> pykka.ActorRef[Any]:
        """Start an actor that blocks (on a disk) where that holds up nobody; the runtime is its first argument."""
        raise NotImplementedError  # abstract; from an empty body compiled code would return undefined memory
