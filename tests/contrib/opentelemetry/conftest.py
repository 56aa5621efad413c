"""A receiver of OTLP, and processes that send to it."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import Tracer

from sereno import Sereno
from sereno.contrib.opentelemetry import instrument, uninstrument
from tests.contrib.opentelemetry.otlp_receiver import OtlpReceiver
from tests.facts import auntil, one

MakeTracer = Callable[[Sampler], Tracer]


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as started:
        yield started


@pytest.fixture
def sampled_by(receiver: OtlpReceiver) -> Iterator[MakeTracer]:
    """Return a function that instruments this process with a sampler, and returns the tracer of the application."""

    def made(sampler: Sampler) -> Tracer:
        provider = TracerProvider(sampler=sampler)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(receiver.url("traces"))))
        instrument(provider)
        return provider.get_tracer("shop")

    yield made
    uninstrument()


@pytest.fixture
def tracer(sampled_by: MakeTracer) -> Tracer:
    return sampled_by(ParentBased(ALWAYS_ON))


async def run(app: Sereno, connection: psycopg.Connection, ended: int) -> None:
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == ended)


def only(spans: list[Span]) -> Span:
    (found,) = spans
    return found
