"""A message in the hands of who consumed it by a sync client: what it can be told to become."""

import logging
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from quorate.errors import QuorateError
from quorate.messages import Message
from quorate.traced import Tracing

log = logging.getLogger("quorate")


class Settles(Protocol):
    """What a delivered message needs of its client: to say what becomes of it."""

    @property
    def tracing(self) -> Tracing | None:
        """Where what is done is traced."""

    def confirm(self, message: Message) -> int:
        """See `Client.confirm`."""

    def release(self, message: Message, *, delay: float = 0.0) -> int:
        """See `Client.release`."""

    def extend(self, message: Message, retry: float) -> int:
        """See `Client.extend`."""

    def bury(self, message: Message, reason: str | None = None) -> int:
        """See `Client.bury`."""


@dataclass(frozen=True)
class DeliveredMessage(Message):
    """A `Message` of which `client` can say what became of it.

    As a context manager it is confirmed when the block ends, and released when the block raises, or has tried to say
    something else of it and failed. What the block has settled itself is left alone.
    """

    client: Settles = field(kw_only=True, repr=False, compare=False)
    is_worked_on: bool = field(default=False, kw_only=True, repr=False, compare=False)
    """A `Worker` has it, and says what becomes of it when its handler raises."""

    _said: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)
    """Whether a node has taken what was said of it; empty: nothing was said."""

    _spans: list[AbstractContextManager[None]] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def is_settled(self) -> bool:
        """Whether a node has been told what becomes of it."""
        return True in self._said

    @property
    def is_unsettled(self) -> bool:
        """Whether it was to be told, and that failed."""
        return bool(self._said) and True not in self._said

    def __enter__(self) -> Self:
        if self.client.tracing is not None and not self.is_worked_on:
            self._spans.append(self.client.tracing.processing(self))
            self._spans[-1].__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._spans:
            with suppress(BaseException):  # it raises what it was given
                self._spans.pop().__exit__(kind, error, traceback)
        if self.is_settled or not self.retry:
            return
        if kind is None and not self._said:
            self.confirm()
            return
        if self.is_worked_on:
            return
        try:
            self.release()
        except QuorateError as failed:  # it comes again anyway, and what was raised is not to be replaced
            log.debug("message %d could not be released: %s", self.msg_id, failed)

    def confirm(self) -> bool:
        """Confirm that it is done; False: it was not this one's any more."""
        self._said.append(False)
        confirmed = self.client.confirm(self)
        self._said.append(True)
        return confirmed > 0

    def release(self, *, delay: float = 0.0) -> None:
        """Give it back, due after `delay` seconds."""
        self._said.append(False)
        self.client.release(self, delay=delay)
        self._said.append(True)

    def extend(self, retry: float | None = None) -> None:
        """Keep it for `retry` seconds from now; None: as long as a lease of it lasts."""
        self.client.extend(self, self.retry if retry is None else retry)

    def bury(self, reason: str | None = None) -> None:
        """Move it to the dead letter queue of its queue."""
        self._said.append(False)
        self.client.bury(self, reason)
        self._said.append(True)
