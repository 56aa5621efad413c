"""The header `traceparent`: what a request creates belongs to the trace of its caller."""

from collections.abc import Iterator
from typing import Any

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
EMPTY = "truncate sereno.jobs, sereno.signals, sereno.events cascade"
Requests = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def requests(app: Sereno, connection: psycopg.Connection) -> Requests:
    """A job, a signal, an event of this application, and one that the code of another service declares."""

    @app.task(name="ship")
    def ship() -> None: ...

    app.event("shipped", dict, channels=["in_app"])
    connection.execute("insert into sereno.event_types (name, definition) values ('other', '{\"channels\": []}')")
    return [
        ("/jobs", {"task": "ship"}),
        ("/signals", {"name": "paid:42"}),
        ("/events", {"type": "shipped", "payload": {"order": 7}}),
        ("/events", {"type": "other", "payload": {"order": 7}}),
    ]


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    yield InMemorySpanExporter()
    uninstrument()


def trace_by(exporter: InMemorySpanExporter, root: Sampler) -> None:
    provider = TracerProvider(sampler=ParentBased(root))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(provider)


def send(ask: Ask, requests: Requests, traceparent: str) -> None:
    headers = {"traceparent": traceparent}
    for path, body in requests:
        response = ask("operator").post(path, json=body, headers=headers)
        assert response.status_code == 201, response.text


def stored(connection: psycopg.Connection) -> list[str | None]:
    """Return the traces of what was sent: the job that fans out an event has that of the event."""
    query = """
    select trace from sereno.jobs where task = 'ship' union all select trace from sereno.signals
    union all select events.trace from sereno.events
    join sereno.jobs on task = 'sereno.fan_out' and args ->> 'event' = events.id::text
        and jobs.trace is not distinct from events.trace
    """
    return [trace for (trace,) in connection.execute(query)]


def test_a_server_without_opentelemetry_stores_the_caller(
    ask: Ask, requests: Requests, connection: psycopg.Connection
) -> None:
    send(ask, requests, PARENT)
    assert stored(connection) == [PARENT] * 4


def test_a_malformed_header_is_ignored(
    ask: Ask, requests: Requests, connection: psycopg.Connection, subtests: pytest.Subtests
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
            send(ask, requests, header)
            assert stored(connection) == [None] * 4
            connection.execute(EMPTY)


def test_the_span_of_the_server_is_a_child_of_the_caller(
    ask: Ask, requests: Requests, connection: psycopg.Connection, spans: InMemorySpanExporter
) -> None:
    trace_by(spans, ALWAYS_ON)
    send(ask, requests, PARENT)
    found = {span.name: span for span in spans.get_finished_spans()}
    assert set(found) == {"enqueue ship", "signal", "notify shipped", "notify other"}
    for span in found.values():
        assert span.parent is not None
        assert f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}" == f"{NUMBER}-{SPAN}"
    made = {f"00-{NUMBER}-{span.context.span_id:016x}-01" for span in found.values() if span.context}
    assert set(stored(connection)) == made


def test_the_decision_of_the_caller_is_kept(
    ask: Ask, requests: Requests, connection: psycopg.Connection, spans: InMemorySpanExporter
) -> None:
    """Sampled by the caller, or not: whatever the sampler of the server does with traces of its own."""
    trace_by(spans, ALWAYS_OFF)
    send(ask, requests, PARENT)
    assert len(spans.get_finished_spans()) == 4
    connection.execute(EMPTY)
    spans.clear()
    trace_by(spans, ALWAYS_ON)
    unsampled = PARENT.removesuffix("1") + "0"
    send(ask, requests, unsampled)
    assert spans.get_finished_spans() == ()
    assert one(connection, "select right(trace, 2) from sereno.jobs where task = 'ship'") == "00"
    assert {(trace or "").split("-")[1] for trace in stored(connection)} == {NUMBER}
