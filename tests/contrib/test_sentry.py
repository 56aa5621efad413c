"""`sereno.contrib.sentry`: failures and check-ins, as a receiver of envelopes gets them from the real SDK."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sentry_sdk
from sentry_sdk.integrations.logging import LoggingIntegration

from sereno import Backoff, Cancel, Context, Dead, Every, JobEvent, Sereno, Snooze
from sereno.contrib.sentry import Sentry, instrument, uninstrument
from sereno.jobs.encryption import new_key
from tests.acceptance.conftest import WorkerProcess
from tests.contrib.envelope_receiver import EnvelopeReceiver
from tests.facts import advance, auntil, one, until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CANARY = "correct-horse-battery"


@pytest.fixture
def receiver() -> Iterator[EnvelopeReceiver]:
    with EnvelopeReceiver() as started:
        sentry_sdk.init(dsn=started.dsn, default_integrations=False, integrations=[LoggingIntegration()])
        yield started
        uninstrument()
        sentry_sdk.get_client().close()
        sentry_sdk.init()


async def run(app: Sereno, connection: psycopg.Connection, ended: int) -> None:
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == ended)
    await asyncio.to_thread(sentry_sdk.flush)


def only(events: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = events
    return found


@pytest.mark.quick
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_a_dead_job_is_reported_once_with_its_masked_arguments(
    app: Sereno, connection: psycopg.Connection, receiver: EnvelopeReceiver, is_async: bool
) -> None:
    instrument(app)

    def ship(order: int, password: str) -> None:
        raise ValueError(f"order {order}: postgresql://me:{CANARY}@db/shop")

    async def aship(order: int, password: str) -> None:
        ship(order, password)

    task = app.task(name="ship", queue="goods", retry=0)(aship if is_async else ship)
    job = task.using(tenant="acme", trace=f"00-{TRACE}-00f067aa0ba902b7-01").enqueue(7, CANARY)
    await run(app, connection, 1)
    event = only(receiver.events)
    (error,) = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("ValueError", "order 7: postgresql://me:********@db/shop")
    assert error["stacktrace"]["frames"][-1]["function"] == "ship"
    assert event["transaction"] == "ship"
    assert event["tags"] == {
        "sereno.task": "ship",
        "sereno.queue": "goods",
        "sereno.tenant": "acme",
        "sereno.trace": TRACE,
        "sereno.outcome": "dead",
    }
    details = event["contexts"]["job"]
    assert (details["id"], details["attempt"], details["failures"]) == (job.id, 1, 0)
    assert details["arguments"] == {"order": 7, "password": "********"}
    assert event["contexts"]["trace"]["trace_id"] == TRACE
    assert CANARY.encode() not in receiver.raw


async def test_failures_that_are_retried_are_reported_on_request(
    app: Sereno, connection: psycopg.Connection, receiver: EnvelopeReceiver
) -> None:
    @app.task(retry=Backoff(retries=2, first="10ms"))
    async def ship(ctx: Context) -> None:
        raise OSError(f"attempt {ctx.attempt}")

    instrument(app)
    ship.enqueue()
    await run(app, connection, 1)
    assert [event["exception"]["values"][0]["value"] for event in receiver.events] == ["attempt 3"]
    receiver.items.clear()
    instrument(app, failures="all", arguments=False)
    ship.enqueue()
    await run(app, connection, 2)
    reported = [(event["tags"]["sereno.outcome"], event["contexts"]["job"]["attempt"]) for event in receiver.events]
    assert reported == [("retry", 1), ("retry", 2), ("dead", 3)]
    assert all("arguments" not in event["contexts"]["job"] for event in receiver.events)


async def test_outcomes_are_no_failures_and_a_decided_death_is_one(
    app: Sereno, connection: psycopg.Connection, receiver: EnvelopeReceiver
) -> None:
    instrument(app, failures="all")

    @app.task(retry=0)
    async def ship(ctx: Context, outcome: str) -> None:
        if outcome == "snooze" and ctx.attempt == 1:
            raise Snooze("10ms")
        if outcome == "cancel":
            raise Cancel("not wanted")
        if outcome == "dead":
            raise Dead("no such order") from KeyError("order")

    for outcome in ("ok", "snooze", "cancel", "dead"):
        ship.enqueue(outcome)
    await run(app, connection, 4)
    cause, decided = only(receiver.events)["exception"]["values"]
    assert (cause["type"], decided["type"], decided["value"]) == ("KeyError", "Dead", "no such order")


async def test_deaths_without_an_exception_of_the_handler_are_reported_as_messages(
    app: Sereno, connection: psycopg.Connection, receiver: EnvelopeReceiver
) -> None:
    instrument(app)

    @app.task(name="slow", retry=0, timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(600)

    @app.task(name="blocked", retry=0, timeout=0.05)
    def blocked() -> None:
        while True:
            time.sleep(0.001)

    @app.task(name="typed", retry=0)
    async def typed(number: int) -> None: ...

    @app.task(name="late", retry=0)
    async def late() -> None: ...

    @app.task(name="many", batch=10, retry=0)
    async def many(items: list[int]) -> list[Dead | None]:
        return [Dead("odd") if item % 2 else None for item in items]

    slow.enqueue()
    blocked.enqueue()
    connection.execute("select sereno.enqueue('typed', '{\"number\": \"seven\"}')")
    late.using(expires_at=one(connection, "select sereno.now() + interval '1 second'")).enqueue()
    advance(connection, 2)
    for number in (1, 2):
        many.enqueue(number)
    await run(app, connection, 6)
    messages = {event["transaction"]: event.get("message", "") for event in receiver.events}
    assert len(receiver.events) == 5
    assert messages["slow"] == "slow: ran longer than 0.05 s"
    assert messages["typed"].startswith("typed: undecodable arguments: ")
    assert messages["late"] == "late: expired before it could run"
    assert messages["many"] == "many: odd"
    stopped = next(event for event in receiver.events if event["transaction"] == "blocked")
    assert stopped["exception"]["values"][0]["stacktrace"]["frames"][-1]["function"] == "blocked"


async def test_nothing_of_encrypted_arguments_is_sent(
    database_url: str, connection: psycopg.Connection, receiver: EnvelopeReceiver
) -> None:
    app = Sereno(database_url, encryption_keys=[new_key("k1")])
    instrument(app, failures="all")

    @app.task(name="pay", retry=0, encrypt=True)
    async def pay(number: str) -> None:
        raise ValueError(f"refused: {number}")

    pay.enqueue(CANARY)
    await run(app, connection, 1)
    event = only(receiver.events)
    (error,) = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("ValueError", "")
    assert "arguments" not in event["contexts"]["job"]
    assert CANARY.encode() not in receiver.raw
    await app.aclose()


async def test_what_a_handler_captures_has_the_tags_of_its_job_alone(
    app: Sereno, connection: psycopg.Connection, receiver: EnvelopeReceiver
) -> None:
    instrument(app)
    both = asyncio.Barrier(2)

    @app.task
    async def ship(ctx: Context) -> None:
        await both.wait()
        sentry_sdk.capture_message(f"of {ctx.tenant}")

    for tenant in ("ann", "bob"):
        ship.using(tenant=tenant).enqueue()
    await run(app, connection, 2)
    sentry_sdk.capture_message("outside")
    await asyncio.to_thread(sentry_sdk.flush)
    assert sorted((event["message"], event.get("tags", {}).get("sereno.tenant")) for event in receiver.events) == [
        ("of ann", "ann"),
        ("of bob", "bob"),
        ("outside", None),
    ]


async def test_runs_of_declared_schedules_are_checked_in(
    app: Sereno, connection: psycopg.Connection, receiver: EnvelopeReceiver
) -> None:
    instrument(app)

    @app.cycle(Every("5m"), key="Menu: refresh")
    @app.task(timeout="2m", retry=Backoff(retries=1, first="10ms"))
    async def refresh() -> None: ...

    @app.schedule(Every("1h"), key="report")
    @app.task(retry=Backoff(retries=1, first="10ms"))
    async def report(ctx: Context) -> None:
        raise OSError("no paper")

    @app.task
    async def other() -> None: ...

    await app.adeclare()
    app.schedules.upsert("tenant's own", other.job(), Every("1m"))
    advance(connection, 4000)
    app.schedules.tick()
    await run(app, connection, 3)
    found = [(each["monitor_slug"], each["status"]) for each in receiver.check_ins]
    assert sorted(found) == [
        ("menu-refresh", "in_progress"),
        ("menu-refresh", "ok"),
        ("report", "error"),
        ("report", "in_progress"),
        ("report", "in_progress"),
    ]
    for slug in ("menu-refresh", "report"):
        ids = {each["check_in_id"] for each in receiver.check_ins if each["monitor_slug"] == slug}
        assert len(ids) == 1, "the attempts of a job are one run"
    refreshed = next(each for each in receiver.check_ins if each["monitor_slug"] == "menu-refresh")
    assert refreshed["monitor_config"] == {
        "schedule": {"type": "interval", "value": 5, "unit": "minute"},
        "timezone": "UTC",
        "checkin_margin": 5,
        "max_runtime": 2,
    }


async def test_no_attempt_fails_because_of_a_report(
    app: Sereno, connection: psycopg.Connection, receiver: EnvelopeReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    instrument(app)

    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @app.task(retry=0)
    async def ship(number: int) -> None:
        if number:
            raise UnprintableError

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("the SDK is broken")

    monkeypatch.setattr(sentry_sdk, "continue_trace", refuse)
    monkeypatch.setattr("sereno.contrib.sentry._capture", refuse)
    for number in (0, 1):
        ship.using(trace=f"00-{TRACE}-00f067aa0ba902b7-01").enqueue(number)
    await run(app, connection, 2)
    rows = connection.execute("select state, error_type from sereno.history order by id").fetchall()
    assert [state for state, _ in rows] == ["succeeded", "dead"]
    assert "UnprintableError" in rows[1][1]


async def test_a_job_that_kills_its_workers_is_reported_when_it_dies(app: Sereno, receiver: EnvelopeReceiver) -> None:
    sentry = Sentry(app, "dead", arguments=True, monitors=False)
    event = JobEvent("job.dead", 7, "ship", "goods", "acme", 3, reason="crash loop: its worker died, 3 times")
    await sentry.job_failed(event)
    await sentry.job_failed(replace(event, name="job.failed", reason="its worker died"))
    await asyncio.to_thread(sentry_sdk.flush)
    reported = only(receiver.events)
    assert reported["message"] == "ship: crash loop: its worker died, 3 times"
    assert (reported["tags"]["sereno.tenant"], reported["contexts"]["job"]["id"]) == ("acme", 7)


@pytest.mark.slow
def test_isolated_processes_report_their_own_failures(
    database_url: str, connection: psycopg.Connection, receiver: EnvelopeReceiver, tmp_path: Path
) -> None:
    (log := tmp_path / "handlers").touch()
    app = "tests.contrib.reporting_app:app"
    process = WorkerProcess(database_url, log, "--queue", "default=3", app=app, REPORTING_APP_DSN=receiver.dsn)
    try:
        process.wait_started()
        for task in ("alone", "together", "slow"):
            connection.execute("select sereno.enqueue(%s)", [task])
        until(lambda: one(connection, "select count(*) from sereno.history") == 3)
        assert process.end() == 0
    finally:
        process.kill()
    # The SDK also reports errors that the engine logs, of a machine that is too busy for its leases, for example.
    reported = [event for event in receiver.events if "logger" not in event]
    texts = sorted(event.get("message") or event["exception"]["values"][-1]["value"] for event in reported)
    assert [text.partition(" than ")[0] for text in texts] == ["alone", "slow: ran longer", "together"]
