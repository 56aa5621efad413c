"""Spans of signals: the attempt that receives one is linked to its sender."""

import psycopg
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.trace import Tracer

from sereno import Context, Sereno
from tests.contrib.opentelemetry.conftest import only
from tests.contrib.opentelemetry.otlp_receiver import OtlpReceiver, values
from tests.facts import auntil, one

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_the_attempt_that_resumes_is_linked_to_the_sender(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, tracer: Tracer, is_async: bool
) -> None:
    async def order(ctx: Context) -> None:
        await ctx.wait_for("paid:42")
        await ctx.wait_for("shipped:42", which="all")

    def sync_order(ctx: Context) -> None:
        ctx.receive("paid:42")
        ctx.receive("shipped:42", which="all")

    task = app.task(name="order")(order if is_async else sync_order)
    async with app.working():
        await task.aenqueue()
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where state = 'scheduled'") == 1)
        with tracer.start_as_current_span("request"):
            await app.asignal("paid:42", 7)
        await auntil(lambda: one(connection, "select coalesce(max(attempt), 0) from sereno.jobs") >= 2)
        # From SQL, and without a span: the latter is received, and linked to nothing.
        connection.execute("select sereno.signal('shipped:42', trace => %s)", [PARENT])
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
    request, sent, enqueued = (only(receiver.named(name)) for name in ("request", "signal", "enqueue order"))
    assert (sent.trace_id, sent.parent_span_id, sent.kind) == (
        request.trace_id,
        request.span_id,
        Span.SPAN_KIND_PRODUCER,
    )
    assert values(sent)["sereno.signal"] == "paid:42"
    attempts = receiver.named("process order")
    assert {attempt.parent_span_id for attempt in attempts} == {enqueued.span_id}
    assert attempts[0].links == []
    linked = [link.span_id for attempt in attempts for link in attempt.links]
    assert linked == [sent.span_id, bytes.fromhex("00f067aa0ba902b7")]


def test_without_tracing_a_trace_is_stored_from_sql_only(app: Sereno, connection: psycopg.Connection) -> None:
    app.signal("paid:42", 7)
    connection.execute("select sereno.signal('paid:42', '7', 'acme', 'order-7')")
    assert connection.execute("select tenant, trace from sereno.signals order by id").fetchall() == [
        (None, None),
        ("acme", "order-7"),
    ]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="1 to 500"):
        connection.execute("select sereno.signal('paid:42', trace => %s)", ["x" * 501])
