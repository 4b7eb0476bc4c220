"""Traces by OpenTelemetry: `Client(tracing=True)`, with the extra `otel`.

A message carries its sender's context in its headers (W3C `traceparent`, or what propagators are set). Spans follow
OpenTelemetry's messaging conventions: `send`, `receive`, `settle`, and `process` around a `Worker`'s handler and a
message's `with` block. Receiving and processing are linked to sending, and not its children: a message may wait for
days, and be processed more than once.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from quorate.messages import Message, NewMessage
from quorate.version import VERSION

SYSTEM: Final = "quorate"


class Tracing:
    """Makes spans by the tracer provider that is set in this process."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("quorate", VERSION)

    @contextmanager
    def sending(self, queue: str, headers: dict[str, str] | None, count: int = 1) -> Iterator[dict[str, str]]:
        """Around a produce; yields its headers with this context in them."""
        carried = dict(headers or {})
        with self._span("send", SpanKind.PRODUCER, queue, count=count):
            propagate.inject(carried)
            yield carried

    def with_context(self, messages: Iterable[Any], carried: dict[str, str]) -> list[Any]:
        """Messages of a batch: those with headers of their own carry the context, too."""
        return [
            replace(one, headers={**carried, **one.headers}) if isinstance(one, NewMessage) and one.headers else one
            for one in messages
        ]

    @contextmanager
    def receiving(self, queues: str | Sequence[str]) -> Iterator[list[Message]]:
        """Around a consume; what is put into the list that it yields is linked to who sent it."""
        name = queues if isinstance(queues, str) else ",".join(queues)
        found: list[Message] = []
        with self._span("receive", SpanKind.CLIENT, name) as span:
            yield found
            for message in found:
                if (link := _link(message)) is not None:
                    span.add_link(link.context)
            if found:
                span.set_attribute("messaging.batch.message_count", len(found))

    @contextmanager
    def processing(self, message: Message) -> Iterator[None]:
        """Around what is done with a message. What that raises is noted, and goes on."""
        link = _link(message)
        links = [] if link is None else [link]
        with self._span("process", SpanKind.CONSUMER, message.queue, links=links, msg_id=message.msg_id):
            yield

    @contextmanager
    def settling(self, name: str, messages: Any) -> Iterator[None]:
        """Around confirm, release, extend and bury."""
        listed = [messages] if isinstance(messages, Message | int) else list(messages)
        known = [one for one in listed if isinstance(one, Message)]
        links = [link for one in known if (link := _link(one)) is not None]
        queues = ",".join(sorted({one.queue for one in known}))
        with self._span("settle", SpanKind.CLIENT, queues, links=links, count=len(listed), name=name):
            yield

    @contextmanager
    def _span(
        self,
        kind: str,
        span_kind: SpanKind,
        queue: str,
        *,
        links: Sequence[Link] = (),
        count: int = 1,
        msg_id: int | None = None,
        name: str | None = None,
    ) -> Iterator[trace.Span]:
        attributes: dict[str, str | int] = {
            "messaging.system": SYSTEM,
            "messaging.operation.type": kind,
            "messaging.operation.name": name or kind,
            "messaging.destination.name": queue,
        }
        if count != 1:
            attributes["messaging.batch.message_count"] = count
        if msg_id is not None:
            attributes["messaging.message.id"] = str(msg_id)
        title = f"{name or kind} {queue}".strip()
        with self._tracer.start_as_current_span(
            title,
            kind=span_kind,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, str(error)))
                raise


def _link(message: Message) -> Link | None:
    """To who sent it; None: it carries no context."""
    context = trace.get_current_span(propagate.extract(message.headers)).get_span_context() if message.headers else None
    return Link(context) if context is not None and context.is_valid else None
