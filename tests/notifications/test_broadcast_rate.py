"""The deliveries of an event with a rate become due at that rate."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from sereno import QuietHours, Sereno, Snooze
from sereno.database.statement import run
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.notifications import event_types, events
from tests.facts import advance, one
from tests.monitoring.verify_steps import broken
from tests.notifications.conftest import Pager, Tender

Connection = psycopg.Connection[Any]


def write_recipients(app: Sereno, number: int) -> None:
    for place in range(number):
        app.recipients.upsert(f"user:{place}", {"pager": f"a{place}"})


def offsets(connection: Connection, table: str = "deliveries") -> list[float]:
    """Return the seconds from the first due time to each."""
    weight = "cardinality(deliveries)" if table == "batches" else "1"
    rows = connection.execute(
        f"select extract(epoch from due_at - (select paced_from from sereno.events))::float "
        f"from sereno.{table}, generate_series(1, {weight}) order by 1"
    )
    return [round(row[0], 3) for row in rows]


def test_deliveries_become_due_at_the_rate_across_steps_and_processes(
    app: Sereno, connection: Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    write_recipients(app, 10)
    event = published.notify(Tender("T1"), rate="2/s")
    steps = []
    for _ in range(3):
        # Another process continues with what is stored.
        with psycopg.connect(app.url) as own:
            steps.append(run(own, events.fan_out(event, 4, {"pager": 10})))
    assert [(step.created, step.more) for step in steps] == [(4, True), (4, True), (2, False)]
    assert offsets(connection) == offsets(connection, "batches") == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    # Jobs come for the deliveries of each second.
    assert sum(count for step in steps for _, _, count, _ in step.waiting) == 10
    assert len(steps[2].waiting) == 1
    assert broken(app) == {}


def test_a_late_fan_out_continues_at_the_rate_and_catches_up_no_more_than_seconds(
    app: Sereno, connection: Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    write_recipients(app, 6)
    event = published.notify(Tender("T1"), rate="1/m")
    for pause in (110.0, 7200.0, 0.0):
        with connection.transaction():
            run(connection, events.fan_out(event, 2, {"pager": 10}))
        advance(connection, pause)
    due = [row[0] for row in connection.execute("select due_at from sereno.deliveries order by due_at")]
    gaps = [(after - before).total_seconds() for before, after in pairwise(due)]
    # The second step is in time, and keeps the pace. The third is hours late: nothing is lost or hurried.
    assert gaps[:3] == pytest.approx([60, 60, 60])
    assert gaps[3] > 6000
    assert gaps[4] == pytest.approx(60)


async def test_the_fan_out_of_a_slow_broadcast_waits_without_a_slot(
    app: Sereno, connection: Connection, pager: Pager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sereno.notifications.broadcasts.FEWEST_PACED", 3)
    published = app.event("tender.published", Tender, channels=[pager])
    for place in range(7):
        await app.recipients.aupsert(f"user:{place}", {"pager": f"a{place}"})
    event = await published.anotify(Tender("T1"), rate="6/m")
    waits: list[float] = []
    for _ in range(2):
        with pytest.raises(Snooze) as snoozed:
            await app.notifications.fanout.fan_out(event)
        waits.append(snoozed.value.wait or 0.0)
        advance(connection, waits[-1])
    assert waits[0] == pytest.approx(20)
    assert 5 < waits[1] <= 30
    assert await app.notifications.fanout.fan_out(event) == 1
    assert offsets(connection) == [10.0 * place for place in range(7)]


def test_deliveries_held_in_quiet_hours_are_spread_after_them(
    app: Sereno, connection: Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    write_recipients(app, 4)
    now: datetime = one(connection, "select sereno.now()").astimezone(UTC)
    hours = QuietHours(f"{now - timedelta(hours=1):%H:%M}", f"{now + timedelta(hours=1):%H:%M}")
    app.recipients.prefer(None, quiet=hours)
    event = published.notify(Tender("T1"), rate="1/s")
    with connection.transaction():
        run(connection, events.fan_out(event, 100, {"pager": 10}))
    due = [row[0] for row in connection.execute("select due_at from sereno.deliveries order by due_at")]
    assert [(each - due[0]).total_seconds() for each in due] == [0, 1, 2, 3]
    assert due[0] > now + timedelta(minutes=50)


def test_an_event_without_a_rate_is_not_paced(app: Sereno, connection: Connection, pager: Pager) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    write_recipients(app, 2)
    event = published.notify(Tender("T1"))
    step = run(connection, events.fan_out(event, 10))
    assert (step.created, step.ahead) == (2, 0)
    assert one(connection, "select num_nulls(rate, paced, paced_from, cancelled_at, variants) from sereno.events") == 5


def test_rates_are_checked_in_python_and_sql(app: Sereno, connection: Connection, pager: Pager) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    run(connection, event_types.declare(app.notifications.definitions.values(), app.channels.resolve))
    for rate in ("fast", "0/s", -1, "1/w", float("nan"), 2e6, "0.5/h"):
        with pytest.raises((ConfigurationError, InvalidArguments)):
            published.notify(Tender("T1"), rate=rate)
    call = "select sereno.notify('tender.published', '{\"code\": \"T\"}', rate => %s)"
    for value in (0, -1, float("nan"), float("inf"), 1e-5):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute(call, [value])
    published.notify(Tender("T1"), rate="30/m")
    connection.execute(call, [0.5])
    assert [row[0] for row in connection.execute("select rate from sereno.events")] == [0.5, 0.5]
