"""Spans of enqueues and attempts, as a receiver of OTLP gets them."""

from typing import Any

import msgspec
import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import Tracer

from sereno import Backoff, Cancel, Context, Sereno
from sereno.contrib.opentelemetry import instrument, uninstrument
from sereno.database.statement import queries
from sereno.jobs.encryption import new_key
from sereno.monitoring.traces import operations as traces
from sereno.telemetry.tracing import trace_id
from tests.contrib.opentelemetry.conftest import MakeTracer, only, run
from tests.contrib.opentelemetry.otlp_receiver import OtlpReceiver, values
from tests.facts import one


@pytest.mark.quick
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_an_attempt_is_a_child_of_its_enqueue(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, tracer: Tracer, is_async: bool
) -> None:
    seen: list[str | None] = []

    def work(ctx: Context) -> None:
        seen.append(ctx.trace)
        with tracer.start_as_current_span("query"):
            pass

    async def awork(ctx: Context) -> None:
        work(ctx)

    task = app.task(name="ship", queue="goods")(awork if is_async else work)
    with tracer.start_as_current_span("request"):
        job = task.using(tenant="acme").enqueue()
    await run(app, connection, 1)
    request, sent, processed, query = (
        only(receiver.named(name)) for name in ("request", "enqueue ship", "process ship", "query")
    )
    assert {span.trace_id for span in (sent, processed, query)} == {request.trace_id}
    assert (sent.parent_span_id, sent.kind) == (request.span_id, Span.SPAN_KIND_PRODUCER)
    assert (processed.parent_span_id, processed.kind) == (sent.span_id, Span.SPAN_KIND_CONSUMER)
    assert query.parent_span_id == processed.span_id
    shared = {"messaging.system": "sereno", "messaging.destination.name": "goods", "sereno.task": "ship"}
    assert values(sent) == shared | {"messaging.operation.name": "enqueue", "messaging.operation.type": "send"}
    session = one(connection, "select session_id from sereno.history")
    assert values(processed) == shared | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": str(job.id),
        "sereno.attempt": 1,
        "sereno.session": session,
        "sereno.tenant": "acme",
    }
    assert processed.status.code == Status.STATUS_CODE_UNSET
    # The job is found by the id of the trace, which handlers and logs see.
    number = request.trace_id.hex()
    assert seen == [number]
    assert app.database.run(traces.trace(number)).id == number
    assert one(connection, "select trace from sereno.jobs_v1 where id = %s", job.id) == number


async def test_a_later_attempt_begins_a_trace_and_links_to_the_enqueue(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, tracer: Tracer
) -> None:
    @app.task(name="ship", retry=Backoff(retries=1, first="10ms"))
    async def ship(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise OSError("no ship at postgresql://me:correct-horse@db/shop")

    ship.enqueue()
    await run(app, connection, 1)
    sent, (first, second) = only(receiver.named("enqueue ship")), receiver.named("process ship")
    assert first.trace_id == sent.trace_id != second.trace_id
    assert second.parent_span_id == b""
    assert [(link.trace_id, link.span_id) for link in second.links] == [(sent.trace_id, sent.span_id)]
    assert (first.status.code, first.status.message) == (Status.STATUS_CODE_ERROR, "OSError")
    assert values(first)["error.type"] == "OSError"
    (event,) = first.events
    error = {each.key: each.value.string_value for each in event.attributes}
    assert error["exception.message"] == "no ship at postgresql://me:********@db/shop"
    assert error["exception.stacktrace"].endswith("OSError: no ship at postgresql://me:********@db/shop\n")


async def test_an_outcome_is_no_error(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, tracer: Tracer
) -> None:
    @app.task(name="ship")
    async def ship() -> None:
        raise Cancel("not wanted any more")

    ship.enqueue()
    await run(app, connection, 1)
    span = only(receiver.named("process ship"))
    assert (span.status.code, values(span)["sereno.outcome"]) == (Status.STATUS_CODE_UNSET, "cancel")


async def test_a_batch_is_one_span_with_a_link_to_each_enqueue(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, tracer: Tracer
) -> None:
    @app.task(name="ship", batch=10)
    async def ship(orders: list[int]) -> None: ...

    ship.enqueue(1)
    app.enqueue_many([ship.job(2), ship.job(3)])
    await run(app, connection, 3)
    span = only(receiver.named("process ship"))
    assert {link.span_id for link in span.links} == {sent.span_id for sent in receiver.named("enqueue ship")}
    # The two jobs of one enqueue have the same link.
    assert len(span.links) == 2
    assert values(span)["messaging.batch.message_count"] == 3


async def test_a_job_that_is_called_is_below_the_attempt_that_calls_it(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, tracer: Tracer
) -> None:
    @app.task(name="child")
    async def child() -> int:
        return 7

    @app.task(name="parent")
    async def parent(ctx: Context) -> None:
        assert await ctx.call(child.job()) == 7

    parent.enqueue()
    await run(app, connection, 2)
    sent, (first, second) = only(receiver.named("enqueue parent")), receiver.named("process parent")
    assert only(receiver.named("process child")).parent_span_id == first.span_id
    # It waits, and continues in a second attempt of the same trace.
    assert first.parent_span_id == second.parent_span_id == sent.span_id


async def test_an_event_leads_to_its_fan_out(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, tracer: Tracer
) -> None:
    class Paid(msgspec.Struct):
        amount: int

    paid = app.event("order.paid", Paid, channels=["inapp"])
    with tracer.start_as_current_span("request") as span:
        paid.notify(Paid(7), to="ada")
        number = f"{span.get_span_context().trace_id:032x}"
    await run(app, connection, 1)
    names = [each.name for each in receiver.spans if each.trace_id.hex() == number]
    assert "process sereno.fan_out" in names
    assert one(connection, "select trace from sereno.events_v1") == number


async def test_nothing_is_stored_or_sent_if_nothing_is_sampled(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, sampled_by: MakeTracer
) -> None:
    sampled_by(ParentBased(ALWAYS_OFF))

    @app.task(name="ship")
    async def ship() -> None: ...

    ship.enqueue()
    await run(app, connection, 1)
    assert receiver.spans == []
    assert one(connection, "select trace from sereno.history") is None


class Some(Sampler):
    """Samples the root spans of one name."""

    def should_sample(self, *_: Any, **given: Any) -> SamplingResult:
        name = given["name"]
        return SamplingResult(Decision.RECORD_AND_SAMPLE if name == "sampled" else Decision.DROP)

    def get_description(self) -> str:
        return "Some"


async def test_the_attempt_follows_the_decision_of_the_enqueue(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, sampled_by: MakeTracer
) -> None:
    tracer = sampled_by(ParentBased(Some()))

    @app.task(name="ship")
    async def ship() -> None: ...

    for name in ("sampled", "not sampled"):
        with tracer.start_as_current_span(name):
            ship.enqueue()
    await run(app, connection, 2)
    assert [span.name for span in receiver.spans].count("process ship") == 1
    flags = connection.execute("select right(trace, 2) from sereno.history").fetchall()
    assert sorted(int(flag) & 1 for (flag,) in flags) == [0, 1]


async def test_a_traceparent_can_be_given_in_sql(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, tracer: Tracer
) -> None:
    @app.task(name="ship")
    async def ship() -> None: ...

    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    connection.execute("select sereno.enqueue('ship', '{}', trace => %s)", [parent])
    await run(app, connection, 1)
    span = only(receiver.named("process ship"))
    assert f"00-{span.trace_id.hex()}-{span.parent_span_id.hex()}-01" == parent
    assert app.database.run(traces.trace("4bf92f3577b34da6a3ce929d0e0e4736")).lanes


async def test_the_text_of_an_error_with_encrypted_arguments_is_not_sent(
    database_url: str, connection: psycopg.Connection, receiver: OtlpReceiver, tracer: Tracer
) -> None:
    app = Sereno(database_url, encryption_keys=[new_key("one")])

    @app.task(name="ship", encrypt=True, retry=0)
    async def ship(card: str) -> None:
        raise OSError(f"card {card}")

    ship.enqueue("4111-1111")
    await run(app, connection, 1)
    await app.aclose()
    span = only(receiver.named("process ship"))
    assert values(span)["error.type"] == "OSError"
    assert b"4111" not in span.SerializeToString()


def test_without_a_provider_nothing_is_stored(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def ship() -> None: ...

    instrument(trace.NoOpTracerProvider())
    try:
        ship.enqueue()
    finally:
        uninstrument()
    assert one(connection, "select trace from sereno.jobs") is None


@pytest.mark.parametrize(
    ("trace_text", "number"),
    [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("00-4bf92f3577b34da6a3ce929d0e0e473X-00f067aa0ba902b7-01", None),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n", None),
        ("order-7", None),
    ],
)
def test_sql_and_python_find_the_same_id(connection: psycopg.Connection, trace_text: str, number: str | None) -> None:
    expected = trace_text if number is None else number
    assert trace_id(trace_text) == one(connection, "select sereno.trace_id(%s)", trace_text) == expected


@pytest.mark.parametrize(("name", "scanned"), [("jobs", 2), ("events", 1)])
def test_a_trace_is_found_by_index(connection: psycopg.Connection, name: str, scanned: int) -> None:
    params = {"trace": "7", "tenant": None, "window": 100, "most": 100}
    connection.execute("set enable_seqscan = off")
    query = f"explain {queries('monitoring/traces/queries')[name]}"
    plan = [line for (line,) in connection.execute(query.encode(), params)]
    assert [line for line in plan if "Seq Scan" in line] == []
    assert len([line for line in plan if "Index Cond: (hashtext(" in line]) >= scanned
