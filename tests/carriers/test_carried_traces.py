"""Spans of carried jobs: one for each call that publishes, and attempts below it."""

from collections import Counter
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from sereno import JetStream, Sereno
from sereno.carriers.publisher import JOBS_IN_MESSAGE
from sereno.contrib.opentelemetry import instrument, uninstrument
from tests.facts import auntil

# Jobs that need more than one message.
MANY = JOBS_IN_MESSAGE + 10


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(provider)
    yield exporter
    uninstrument()


@pytest.mark.slow
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "relayed"])
async def test_a_published_batch_is_one_producer_span(
    database_url: str, jetstream: JetStream, spans: InMemorySpanExporter, direct: bool
) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=direct)

    @app.task(name="click", queue="clicks", history=False)
    async def click(number: int) -> None: ...

    def named(name: str) -> list[ReadableSpan]:
        return [span for span in spans.get_finished_spans() if span.name == name]

    async with app.working():
        await app.aenqueue_many([click.job(number) for number in range(MANY)])
        await click.aenqueue(MANY)
        await auntil(lambda: len(named("process click")) == MANY + 1)
    await app.aclose()
    batch, single = named("enqueue click")
    assert (batch.kind, single.kind) == (SpanKind.PRODUCER, SpanKind.PRODUCER)
    assert batch.attributes is not None
    assert batch.attributes["messaging.batch.message_count"] == MANY
    assert batch.attributes["messaging.destination.name"] == "clicks"
    parents = Counter(span.parent.span_id for span in named("process click") if span.parent is not None)
    assert parents == {batch.context.span_id: MANY, single.context.span_id: 1}
