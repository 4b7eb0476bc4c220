"""LoopActor: pykka's Actor on an event loop instead of a thread of its own.

Its inbox asks the runtime for a turn when the first message arrives; a turn handles at most `TURN_MESSAGES_MAX`
messages, and none once it is late, and then goes to the back of the line. A message costs no thread switch, and actors
on one loop never run at the same time. Everything else is pykka's: refs, envelopes, ask and its futures, proxies, the
registry, the hooks, what happens to messages left behind a stop.

One thing differs on purpose: an exception that nobody asked for is reported to the runtime, which ends the worker.
"""

import sys
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, cast

import pykka
from mypy_extensions import mypyc_attr
from pykka import ActorDeadError, ActorRef, ActorRegistry
from pykka import messages as pykka_messages
from pykka._envelope import Envelope

from actors.runtime.blocking import GuardedFuture
from actors.runtime.contract import TURN_MESSAGES_MAX, Runtime, Turn

_PYKKA_MESSAGES: Final = frozenset(
    {pykka_messages._ActorStop, pykka_messages.ProxyCall, pykka_messages.ProxyGetAttr, pykka_messages.ProxySetAttr}
)
_Envelope: Final = Envelope


class LoopInbox:
    """Messages in order of arrival; put from any thread, taken on the loop alone.

    Holds pykka's envelopes, and bare messages where nobody waits for an answer: an envelope would only cost.
    """

    __slots__ = ("envelopes", "is_awake", "is_closed", "is_paused", "runtime", "turn")

    def __init__(self) -> None:
        self.envelopes: deque[Any] = deque()
        self.is_closed = False
        self.is_paused = False
        self.turn: Turn | None = None
        self.runtime: Runtime | None = None
        self.is_awake = True  # no turns before the actor has started

    def put(self, envelope: Any, /) -> None:
        """Add a message, and ask for a turn if none is coming."""
        self.envelopes.append(envelope)
        if not self.is_awake:
            self.is_awake = True
            if self.runtime is not None and self.turn is not None:
                self.runtime.wake(self.turn)

    def get(self) -> Envelope[Any]:
        """Take the oldest message, in an envelope. Raises IndexError if there is none."""
        item = self.envelopes.popleft()
        return item if type(item) is Envelope else Envelope(item)

    def empty(self) -> bool:
        """Whether no message waits."""
        return not self.envelopes

    def __len__(self) -> int:
        return len(self.envelopes)

    def attach(self, turn: Turn, runtime: Runtime) -> None:
        """Whose inbox this is has started: turns may come from here on."""
        self.turn = turn
        self.runtime = runtime
        runtime.wake(turn)

    def rest(self) -> None:
        """End the turn. Order matters: a message put from a thread right now either sees us resting, or is seen."""
        self.is_awake = False
        if self.envelopes and not self.is_awake:
            self.is_awake = True
            if self.runtime is not None and self.turn is not None:
                self.runtime.wake(self.turn)


M = TypeVar("M")


class LoopRef(ActorRef[Any], Generic[M]):
    """pykka's reference, to an actor that takes messages of the kinds `M`; `tell` costs a third, since its message goes
    without an envelope."""

    actor_inbox: LoopInbox

    def tell(self, message: M) -> None:
        """Send a message. Raises `ActorDeadError` if the actor has stopped."""
        inbox = self.actor_inbox
        if inbox.is_closed or type(message) in _PYKKA_MESSAGES:
            super().tell(message)
            return
        inbox.envelopes.append(message)  # as `put` does, without the call: every message comes this way
        if not inbox.is_awake:
            inbox.is_awake = True
            if inbox.runtime is not None and inbox.turn is not None:
                inbox.runtime.wake(inbox.turn)


@mypyc_attr(allow_interpreted_subclasses=True)
class LoopActor(pykka.Actor, Generic[M]):
    """An actor whose turns a runtime gives it on its loop, and who takes messages of the kinds `M`. Subclasses pass the
    runtime to `super().__init__`."""

    actor_inbox: LoopInbox
    _has_started = False
    handlers: dict[type, Callable[[Any], None]]
    """What is done with each kind of message; set by a subclass's `__init__`, unless it has its own `on_receive`."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.handlers = {}
        self._actor_ref = LoopRef(self)
        self.runtime = runtime

    def on_receive(self, message: Any) -> Any:
        """Dispatch by the message's type. Raises TypeError for one that this actor does not know.

        What an actor's own returns goes to whoever asked.
        """
        handler = self.handlers.get(type(message))
        if handler is None:
            raise TypeError(f"{type(self).__name__} takes no {type(message).__name__}")
        handler(message)

    @classmethod
    def start_object(cls, *arguments: Any, **named: Any) -> Self:
        """As `start`, but gives the actor itself: for the composition root, where sockets call it on its own loop."""
        actor = cls(*arguments, **named)
        actor.begin()
        return actor

    @property
    def mailbox(self) -> LoopRef[M]:
        """Its reference, typed: for the composition root, so that who takes what is checked where actors meet."""
        return cast("LoopRef[M]", self.actor_ref)

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more messages: the opposite of `actor_ref.is_alive()`, at a tenth of the cost."""
        return self.actor_inbox.is_closed

    def begin(self) -> None:
        """Start an actor that was made already: where actors know each other, all are made before one begins."""
        ActorRegistry.register(self.actor_ref)
        self._start_actor_loop()

    @staticmethod
    def _create_actor_inbox() -> LoopInbox:
        return LoopInbox()

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return GuardedFuture()

    def _start_actor_loop(self) -> None:
        self.actor_inbox.attach(self, self.runtime)

    def take_turn(self) -> None:
        """Handle messages until the budget is used up; called by the runtime."""
        if not self._has_started:
            self._has_started = True
            self._actor_loop_setup()
        inbox = self.actor_inbox
        envelopes = inbox.envelopes
        budget = TURN_MESSAGES_MAX
        while envelopes and not inbox.is_closed and not inbox.is_paused:
            message = envelopes.popleft()
            if type(message) is _Envelope:
                self._handle_envelope(message)
            else:
                try:
                    self.on_receive(message)
                except Exception as error:
                    self._raised(Envelope(message), error)
            budget -= 1
            if not budget or (envelopes and self.runtime.is_late()):
                break
        if inbox.is_closed:
            self._actor_loop_teardown()
        if not inbox.is_paused:
            inbox.rest()

    def pause(self) -> None:
        """Handle no more messages, from within the turn of one, before `resume`: they wait where they are."""
        self.actor_inbox.is_paused = True

    def resume(self) -> None:
        """Go on with those that wait, in turns of their own; not from within the turn that paused."""
        self.actor_inbox.is_paused = False
        self.actor_inbox.rest()

    def _handle_envelope(self, envelope: Envelope[Any]) -> None:
        try:
            response = self._handle_receive(envelope.message)
            if envelope.reply_to is not None:
                envelope.reply_to.set(response)
        except Exception as error:
            self._raised(envelope, error)
        except BaseException as error:
            self._stop()
            ActorRegistry.stop_all(block=False)
            self.runtime.actor_failed(self, error)

    def _stop(self) -> None:
        super()._stop()
        self.actor_inbox.is_closed = True

    def _handle_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super()._handle_failure(exception_type, exception_value, traceback)
        self.actor_inbox.is_closed = True

    def _actor_loop_setup(self) -> None:
        try:
            self.on_start()
        except Exception as error:
            self._handle_failure(*sys.exc_info())
            self.runtime.actor_failed(self, error)

    def _raised(self, envelope: Envelope[Any], error: Exception) -> None:
        """Send an exception to whoever asked; if nobody did, the actor is done for, and its runtime is told."""
        if envelope.reply_to is not None:
            envelope.reply_to.set_exception()
            return
        self._handle_failure(*sys.exc_info())
        try:
            self.on_failure(*sys.exc_info())
        except Exception:
            self._handle_failure(*sys.exc_info())
        self.runtime.actor_failed(self, error)

    def _actor_loop_teardown(self) -> None:
        while not self.actor_inbox.empty():
            envelope = self.actor_inbox.get()
            if envelope.reply_to is None:
                continue
            if isinstance(envelope.message, pykka_messages._ActorStop):
                envelope.reply_to.set(None)
            else:
                dead = ActorDeadError(f"{self.actor_ref} stopped before handling the message")
                envelope.reply_to.set_exception(exc_info=(ActorDeadError, dead, None))
