"""The header `traceparent`: what a request creates belongs to the trace of its caller."""

from collections.abc import Iterator

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler

from sereno import Sereno
from sereno.contrib.opentelemetry import instrument, uninstrument
from tests.facts import one
from tests.server.api.conftest import Ask

NUMBER, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{NUMBER}-{SPAN}-01"


@pytest.fixture
def ship(app: Sereno) -> str:
    @app.task(name="ship")
    def ship() -> None: ...

    return ship.name


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    yield InMemorySpanExporter()
    uninstrument()


def trace_by(exporter: InMemorySpanExporter, root: Sampler) -> None:
    provider = TracerProvider(sampler=ParentBased(root))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(provider)


def send(ask: Ask, ship: str, traceparent: str) -> None:
    headers = {"traceparent": traceparent}
    for path, body in (("/jobs", {"task": ship}), ("/signals", {"name": "paid:42"})):
        response = ask("operator").post(path, json=body, headers=headers)
        assert response.status_code == 201, response.text


def stored(connection: psycopg.Connection) -> list[str | None]:
    query = "select trace from sereno.jobs union all select trace from sereno.signals"
    return [trace for (trace,) in connection.execute(query)]


def test_a_server_without_opentelemetry_stores_the_caller(ask: Ask, ship: str, connection: psycopg.Connection) -> None:
    send(ask, ship, PARENT)
    assert stored(connection) == [PARENT, PARENT]


def test_a_malformed_header_is_ignored(
    ask: Ask, ship: str, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for header in [
        "",
        "order-7",
        f"00-{NUMBER}-{SPAN}",
        f"00-{NUMBER.upper()}-{SPAN}-01",
        f"ff-{NUMBER}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{NUMBER}-{'0' * 16}-01",
        f"{PARENT}-{'x' * 1000}",
    ]:
        with subtests.test(header=header):
            send(ask, ship, header)
            assert stored(connection) == [None, None]
            connection.execute("truncate sereno.jobs, sereno.signals")


def test_the_span_of_the_server_is_a_child_of_the_caller(
    ask: Ask, ship: str, connection: psycopg.Connection, spans: InMemorySpanExporter
) -> None:
    trace_by(spans, ALWAYS_ON)
    send(ask, ship, PARENT)
    found = {span.name: span for span in spans.get_finished_spans()}
    assert set(found) == {"enqueue ship", "signal"}
    for span in found.values():
        assert span.parent is not None
        assert f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}" == f"{NUMBER}-{SPAN}"
    made = {f"00-{NUMBER}-{span.context.span_id:016x}-01" for span in found.values() if span.context}
    assert set(stored(connection)) == made


def test_the_decision_of_the_caller_is_kept(
    ask: Ask, ship: str, connection: psycopg.Connection, spans: InMemorySpanExporter
) -> None:
    """Sampled by the caller, or not: whatever the sampler of the server does with traces of its own."""
    trace_by(spans, ALWAYS_OFF)
    send(ask, ship, PARENT)
    assert len(spans.get_finished_spans()) == 2
    connection.execute("truncate sereno.jobs, sereno.signals")
    spans.clear()
    trace_by(spans, ALWAYS_ON)
    unsampled = PARENT.removesuffix("1") + "0"
    send(ask, ship, unsampled)
    assert spans.get_finished_spans() == ()
    assert one(connection, "select right(trace, 2) from sereno.jobs") == "00"
    assert {(trace or "").split("-")[1] for trace in stored(connection)} == {NUMBER}
