"""The steps of a run, and its outcome when the partner fails."""

import asyncio
import logging
import os
import subprocess
import sys
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from psycopg.sql import SQL, Identifier
from reconciliation import settings
from reconciliation.accounts import Account, Connection, key_of, save, standing
from reconciliation.app import app
from reconciliation.partner import LIMIT
from reconciliation.stand_ins import CSV, PartnerStandIn

from sereno.monitoring.verify import verify
from sereno.testing.chats import DiscordProvider
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow


async def rows(connection: Connection, query: str) -> list[Any]:
    schema = Identifier(app.settings.schema)
    return await (await connection.execute(SQL(query).format(sereno=schema))).fetchall()


async def run_now(*accounts: str, name: str = "reconcile") -> list[int]:
    return [(await app.schedules.arun(key_of(name, account))).id for account in accounts]


async def assert_invariants_hold(kit: Kit) -> None:
    results = await kit.app.database.arun(verify(lease=kit.app.settings.lease))
    assert [result for result in results if not result.holds] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.storm)])
async def test_many_accounts_are_reconciled_in_one_night(
    kit: Kit, connection: Connection, partner: PartnerStandIn, count: int
) -> None:
    partner.polls = 0
    await save(connection, [Account(f"a-{number:04}", f"m-{number}") for number in range(count)])
    await kit.adrain()
    await app.limits.aset(LIMIT, rate=100_000, burst=10_000, note="a test does not wait for real seconds")
    kit.travel("24h")
    assert not (await kit.adrain(timeout=200)).failed
    assert len(kit.jobs("reconciliation.reconcile", state="succeeded")) == count
    assert len(kit.jobs("reconciliation.process", state="succeeded")) == count
    assert await rows(connection, "select count(*), count(processed_at) from reconciliation.files") == [(count, count)]
    assert await rows(connection, "select count(*), sum(amount) from reconciliation.entries") == [
        (3 * count, Decimal("109.3") * count)
    ]
    # Three requests for each account, none repeated.
    assert set(partner.calls.values()) == {1}
    assert len(partner.calls) == 3 * count
    await app.schedules.atick()
    stood = (await standing("a-0007"))["reconcile"]
    assert (stood.last_state, stood.last_error) == ("succeeded", None)
    assert stood.last_run_at is not None
    await assert_invariants_hold(kit)


@pytest.mark.quick
async def test_a_finished_file_is_stored_and_registered(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    await save(connection, [Account("a-1", "m-1")])
    (job,) = await run_now("a-1")
    await kit.adrain()
    # The report is not ready: the job is snoozed and uses neither a slot nor an attempt.
    assert kit.job(job).state == "scheduled"
    assert await rows(connection, "select outcome, reason from {sereno}.attempts") == [
        ("snooze", "the partner is preparing the report")
    ]
    kit.travel_to_next()
    await kit.adrain()
    [(path,)] = await rows(connection, "select path from reconciliation.files")
    assert (settings.STORAGE / path).read_text() == CSV
    turn = date.fromisoformat(f"{kit.job(job).args['turn']}-01")
    assert path == f"a-1/{turn - timedelta(days=1):%Y-%m}/report.csv"


@pytest.mark.slow
@pytest.mark.quick
async def test_retries_after_15_30_and_60_minutes_and_then_a_dead_letter(
    kit: Kit, connection: Connection, partner: PartnerStandIn, discord: DiscordProvider
) -> None:
    await save(connection, [Account("a-1", "m-1")])
    partner.troubles["m-1"] = "broken"
    (job,) = await run_now("a-1")
    tried = [kit.now()]
    for _ in range(3):
        assert not (await kit.adrain()).failed
        tried.append(kit.travel_to_next())
    (dead,) = (await kit.adrain()).failed
    assert (dead.id, dead.reason, dead.error_message) == (job, "failed 4 times", "request: HTTP 503")
    waits = [(after - before) / timedelta(minutes=1) for before, after in pairwise(tried)]
    assert all(least <= wait < least * 1.1 + 1 for wait, least in zip(waits, (15, 30, 60), strict=True))
    await app.schedules.atick()
    stood = (await standing("a-1"))["reconcile"]
    assert (stood.last_state, stood.last_error) == ("dead", "PartnerError: request: HTTP 503")
    # Its unique key is taken: the next night does not start the month again.
    kit.travel("24h")
    await kit.adrain()
    turns = [job.args["turn"] for job in kit.jobs("reconciliation.reconcile")]
    assert turns.count(turns[0]) == 1
    assert app.schedules.get(key_of("reconcile", "a-1")).last_planned_at is not None


async def test_an_account_that_has_left_is_reported_in_discord_once(
    kit: Kit, connection: Connection, partner: PartnerStandIn, discord: DiscordProvider
) -> None:
    await save(connection, [Account("a-1", "m-1"), Account("a-2", "m-2")])
    partner.troubles["m-1"] = "left"
    job, other = await run_now("a-1", "a-2")
    await kit.adrain()
    found = kit.job(job)
    assert (found.state, found.attempt, found.reason) == ("dead", 1, "permanent error: Refused")
    assert partner.calls["request", "m-1"] == 1
    for _ in range(4):
        kit.travel("1m")
        await kit.adrain()
    assert kit.job(other).state == "succeeded"
    (message,) = discord.sent.values()
    for part in ("a-1", "reconciliation.reconcile", "request: HTTP 403", f"job {job}", "trace reconcile-a-1"):
        assert part in message["content"]
    assert f"sereno job retry {job}" in message["content"]
    await assert_invariants_hold(kit)


async def test_many_failures_are_one_message(
    kit: Kit, connection: Connection, partner: PartnerStandIn, discord: DiscordProvider
) -> None:
    accounts = [Account(f"a-{number}", f"m-{number}") for number in range(30)]
    await save(connection, accounts)
    partner.troubles = {account.merchant: "left" for account in accounts}
    await run_now(*(account.id for account in accounts))
    for _ in range(4):
        await kit.adrain()
        kit.travel("1m")
    (message,) = discord.sent.values()
    assert "30 jobs need a person" in message["content"]
    assert "… and 20 more" in message["content"]


async def test_a_429_holds_all_jobs_and_uses_up_no_attempt(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    accounts = [Account(f"a-{number:03}", f"m-{number}") for number in range(100)]
    await save(connection, accounts)
    # A worker stores the limits when it starts; jobs enqueued before that have none.
    await kit.adrain()
    partner.troubles = {account.merchant: "busy" for account in accounts}
    await run_now(*(account.id for account in accounts))
    async with app.working():
        await asyncio.to_thread(kit.until, lambda: _is_closed() and not kit.jobs(state="running"))
        assert 1 <= partner.calls.total() <= settings.AT_ONCE
        assert len(kit.jobs("reconciliation.reconcile", state="ready")) >= 100 - settings.AT_ONCE
        partner.troubles = {}
        await app.limits.aset(LIMIT, rate=100_000, burst=10_000, note="a test does not wait for real seconds")
        kit.travel("11m")
        await asyncio.to_thread(kit.until, lambda: len(partner.reports) == 100)
        await asyncio.to_thread(kit.until, lambda: not kit.jobs(state="running"))
        kit.travel("10m")
        await asyncio.to_thread(kit.until, lambda: len(kit.jobs("reconciliation.reconcile", state="succeeded")) == 100)
    assert await rows(connection, "select distinct outcome from {sereno}.attempts") == [("snooze",)]
    await assert_invariants_hold(kit)


def _is_closed() -> bool:
    return any(key.closed_until for key in app.limits.show(LIMIT).keys)


async def test_hostile_files_are_refused(
    kit: Kit, connection: Connection, partner: PartnerStandIn, tmp_path: Path
) -> None:
    kinds = ["bomb", "lying-bomb", "escape", "absolute", "many", "no-zip"]
    await save(connection, [Account(kind, kind) for kind in kinds])
    partner.troubles = {kind: kind for kind in kinds}
    await run_now(*kinds)
    await kit.adrain()
    kit.travel("2m")
    dead = (await kit.adrain()).failed
    assert {job.tenant: job.error_type for job in dead} == dict.fromkeys(kinds, "BadReport")
    # The downloaded file is retained for inspection. Nothing else was written.
    assert [name for _, _, names in os.walk(tmp_path) for name in names] == ["report.zip"] * len(kinds)
    assert not await rows(connection, "select 1 from reconciliation.files")


async def test_invalid_lines_are_a_dead_letter(kit: Kit, connection: Connection, partner: PartnerStandIn) -> None:
    await save(connection, [Account("a-1", "m-1")])
    partner.troubles["m-1"] = "no-numbers"
    await run_now("a-1")
    await kit.adrain()
    kit.travel_to_next()
    (dead,) = (await kit.adrain()).failed
    assert (dead.task, dead.error_type) == ("reconciliation.process", "BadReport")
    assert not await rows(connection, "select 1 from reconciliation.entries")


async def test_a_report_that_never_comes_is_given_up(kit: Kit, connection: Connection, partner: PartnerStandIn) -> None:
    await save(connection, [Account("a-1", "m-1")])
    partner.troubles["m-1"] = "never"
    (job,) = await run_now("a-1")
    # Otherwise the next month could start meanwhile, with its own report.
    await app.schedules.apause(key_of("reconcile", "a-1"))
    await kit.adrain()
    kit.travel("25h")
    await kit.adrain()
    assert "has been preparing the report since" in (kit.job(job).reason or "")
    # Retried by an operator, it requests a new report.
    del partner.troubles["m-1"]
    environment = os.environ | {"SERENO_SCHEMA": app.settings.schema}
    command = [sys.executable, "-m", "sereno", "job", "retry", str(job)]
    await asyncio.to_thread(subprocess.run, command, env=environment, check=True, stdout=subprocess.DEVNULL)
    await kit.adrain()
    assert len(partner.reports) == 2


async def test_the_second_job_type_fetches_the_sales_of_a_day(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    await save(connection, [Account("a-1", "m-1", runs=("sales_sync",))])
    partner.troubles["m-1"] = "odd"
    (job,) = await run_now("a-1", name="sales_sync")
    await kit.adrain()
    assert kit.job(job).state == "scheduled"
    del partner.troubles["m-1"]
    kit.travel_to_next()
    await kit.adrain()
    assert kit.job(job).state == "succeeded"
    assert await rows(connection, "select count(*), sum(amount) from reconciliation.sales") == [(3, Decimal("29.70"))]
    await app.schedules.atick()
    assert (await standing("a-1"))["sales_sync"].last_state == "succeeded"


async def test_one_trace_covers_a_run_from_the_schedule_to_the_books(
    kit: Kit, connection: Connection, partner: PartnerStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    # As `sereno worker` does.
    caplog.set_level(logging.INFO, "sereno")
    await save(connection, [Account("a-1", "m-1")])
    partner.troubles["m-1"] = "broken"
    await run_now("a-1")
    await kit.adrain()
    del partner.troubles["m-1"]
    for _ in range(2):
        kit.travel_to_next()
        await kit.adrain()
    kit.assert_enqueued("reconciliation.process", times=1)
    lines = await rows(
        connection,
        "select event, task, tenant, context ->> 'month' is not null from {sereno}.logs "
        "where trace_id = 'reconcile-a-1' order by id",
    )
    assert [event for event, *_ in lines] == [
        "reconciliation.start",
        "job.retry",
        "reconciliation.poll",
        "job.snooze",
        "reconciliation.poll",
        "reconciliation.success",
        "reconciliation.processed",
    ]
    assert {tenant for _, _, tenant, _ in lines} == {"a-1"}
    assert {task for _, task, _, _ in lines} == {"reconciliation.reconcile", "reconciliation.process"}
    assert "secrets of theirs" not in str(await rows(connection, "select * from {sereno}.logs"))
