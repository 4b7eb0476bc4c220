"""Spans of a message's way, as OpenTelemetry's messaging conventions want them."""

import asyncio
import os
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from quorate import AsyncClient, Client, NewMessage, Worker

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
URL = os.environ["QUORATE_URL"]


def spans():
    found = exporter.get_finished_spans()
    exporter.clear()
    return {span.name: span for span in found}


def sync():
    with Client(URL, tracing=True) as client:
        with provider.get_tracer("app").start_as_current_span("app"):
            client.produce("q", "x", headers={"mine": "kept"})
        message = client.consume("q")
        assert message.headers["mine"] == "kept"
        assert message.headers["traceparent"].startswith("00-")
        with message:
            pass
        found = spans()
        sent = found["send q"]
        assert sent.parent.span_id == found["app"].context.span_id
        assert sent.attributes["messaging.system"] == "quorate"
        assert sent.kind == trace.SpanKind.PRODUCER
        for name in ("receive q", "process q", "confirm q"):
            assert [link.context.span_id for link in found[name].links] == [sent.context.span_id], name
        assert found["process q"].kind == trace.SpanKind.CONSUMER
        assert found["confirm q"].attributes["messaging.operation.type"] == "settle"
        client.produce_many("q", [1, NewMessage(2, headers={"own": "1"})])
        first, second = client.consume_many("q", 2)
        assert first.headers["traceparent"] == second.headers["traceparent"]
        assert second.headers["own"] == "1"
        try:
            with first:
                raise KeyError("x")
        except KeyError:
            pass
        assert spans()["process q"].attributes["error.type"] == "KeyError"
        second.confirm()

        def handle(message):
            seen.append(trace.get_current_span().get_span_context().span_id)
            worker.stop()

        seen = []
        worker = Worker(client, "q", handle)
        worker.run()
        assert spans()["process q"].context.span_id == seen[0]


async def asynchronous():
    async with AsyncClient(URL, tracing=True) as client:
        await client.produce("q2", 1)
        message = await client.consume("q2", wait=5)
        async with message:
            assert trace.get_current_span().is_recording()
        found = spans()
        sent = found["send q2"].context.span_id
        assert [link.context.span_id for link in found["process q2"].links] == [sent]


sync()
asyncio.run(asynchronous())
sys.stdout.write("traced\n")
