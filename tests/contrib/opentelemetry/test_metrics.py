"""Metrics by the API of OpenTelemetry, as a receiver of OTLP gets them."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.trace import NoOpTracerProvider

from sereno import Sereno
from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Failed
from sereno.contrib.opentelemetry import instrument, uninstrument
from sereno.contrib.opentelemetry.metrics import MOST_CODES, OTHER
from sereno.errors import InvalidArguments
from sereno.notifications.deliveries.channel_call import call_channel
from sereno.telemetry.metrics import BUCKETS
from tests.contrib.opentelemetry.conftest import run
from tests.contrib.opentelemetry.otlp_receiver import OtlpReceiver, values
from tests.notifications.conftest import Pager, Tender


@pytest.fixture
def meters(receiver: OtlpReceiver) -> Iterator[MeterProvider]:
    """Record metrics in this process, without spans."""
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(receiver.url("metrics")))])
    instrument(NoOpTracerProvider(), provider)
    yield provider
    uninstrument()
    provider.shutdown()


def counted(receiver: OtlpReceiver, name: str) -> dict[tuple[str, ...], int]:
    """Return the values of a counter by operation, destination and error."""
    labels = ("messaging.operation.name", "messaging.destination.name", "error.type")
    return {
        tuple(str(values(point).get(label, "")) for label in labels): point.as_int for point in receiver.points(name)
    }


async def test_jobs_are_counted_and_their_attempts_measured(
    app: Sereno, connection: psycopg.Connection, receiver: OtlpReceiver, meters: MeterProvider
) -> None:
    @app.task(name="ship", queue="goods", retry=0)
    async def ship(number: int) -> None:
        if number == 3:
            raise OSError("no ship")

    ship.enqueue(1)
    app.enqueue_many([ship.job(2), ship.job(3)])
    await run(app, connection, 3)
    meters.force_flush()
    assert counted(receiver, "messaging.client.sent.messages") == {("enqueue", "goods", ""): 3}
    assert counted(receiver, "messaging.client.consumed.messages") == {("process", "goods", ""): 3}
    points = receiver.points("messaging.process.duration")
    shared = {
        "messaging.system": "sereno",
        "messaging.operation.name": "process",
        "messaging.destination.name": "goods",
        "sereno.task": "ship",
    }
    found: list[tuple[dict[str, Any], int]] = sorted(
        ((values(point), point.count) for point in points), key=lambda each: each[1]
    )
    assert found == [
        (shared | {"sereno.outcome": "dead", "error.type": "dead"}, 1),
        (shared | {"sereno.outcome": "succeeded"}, 2),
    ]
    assert all(tuple(point.explicit_bounds) == BUCKETS and 0 < point.sum < 60 for point in points)
    # No trace is stored without spans.
    assert connection.execute("select distinct trace from sereno.history").fetchall() == [(None,)]


async def test_events_signals_and_messages_are_counted(
    app: Sereno, receiver: OtlpReceiver, meters: MeterProvider
) -> None:
    pager = Pager()
    pager.outcomes["a2"] = Failed("too_large", "a secret")
    published = app.event("tender.published", Tender, channels=[pager])
    await published.anotify(Tender("T1"), to="ada")
    await app.asignal("paid:42", 7)
    with pytest.raises(InvalidArguments):
        await app.asignal("paid:42", object())
    messages = [Message(delivery=number, key=f"k{number}", address=f"a{number}") for number in (1, 2, 3)]
    async with Exchange() as exchange:
        await call_channel(pager, messages, exchange, ())
    meters.force_flush()
    assert counted(receiver, "messaging.client.sent.messages") == {
        ("notify", "tender.published", ""): 1,
        ("signal", "", ""): 1,
        ("signal", "", "InvalidArguments"): 1,
        ("send", "pager", ""): 2,
        ("send", "pager", "too_large"): 1,
    }


async def test_invented_codes_do_not_fill_the_memory(receiver: OtlpReceiver, meters: MeterProvider) -> None:
    """A tenant with a server of its own chooses the codes of refusals, and each one is kept until the process ends."""
    pager = Pager()
    pager.outcomes = {f"a{number}": Failed(f"code {number}") for number in range(1000)}
    messages = [Message(delivery=number, key=f"k{number}", address=f"a{number}") for number in range(1000)]
    async with Exchange() as exchange:
        await call_channel(pager, messages, exchange, ())
        await call_channel(pager, messages[:1], exchange, ())
    meters.force_flush()
    found = counted(receiver, "messaging.client.sent.messages")
    assert found["send", "pager", "code 0"] == 2
    assert found["send", "pager", OTHER] == 1000 - MOST_CODES
    assert len(found) == MOST_CODES + 1


def test_a_provider_of_the_api_alone_records_nothing(app: Sereno) -> None:
    @app.task
    def ship() -> None: ...

    instrument(NoOpTracerProvider(), NoOpMeterProvider())
    try:
        ship.enqueue()
    finally:
        uninstrument()
