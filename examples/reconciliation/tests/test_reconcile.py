"""The steps of a run, and its outcome when the partner fails."""

import asyncio
import gzip
import os
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from reconciliation import settings
from reconciliation.accounts import Account, save, standing
from reconciliation.app import app
from reconciliation.database import Connection
from reconciliation.oauth import LIMIT
from reconciliation.periods import month
from reconciliation.stand_in_files import BALANCE, FEE, report
from reconciliation.stand_ins import PartnerStandIn
from reconciliation.tests.steps import assert_invariants_hold, pause_schedules, rows, run_now

from sereno.testing.chats import DiscordProvider
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.storm)])
async def test_many_accounts_are_reconciled_in_one_night(
    kit: Kit, connection: Connection, partner: PartnerStandIn, count: int
) -> None:
    partner.polls = 0
    await save(connection, [Account(f"a-{number:04}", f"m-{number}") for number in range(count)])
    await kit.adrain()
    await app.limits.aset(LIMIT, rate=100_000, burst=10_000, note="a test does not wait for real seconds")
    kit.travel("24h")
    assert not (await kit.adrain(timeout=800)).failed
    found = kit.jobs("reconciliation.reconcile", state="succeeded")
    assert len(found) == count
    assert len(kit.jobs("reconciliation.process", state="succeeded")) == count
    assert await rows(connection, "select count(*), count(processed_at) from reconciliation.files") == [(count, count)]
    competence = found[0].args["competence"]
    lines = len(report("m-0", competence))
    cents = (lines - 1) // 2 * BALANCE - FEE
    assert await rows(connection, "select count(*), sum(amount) from reconciliation.entries") == [
        (lines * count, Decimal(cents * count) / 100)
    ]
    # One token for all, and three requests for each account, none repeated.
    assert set(partner.calls.values()) == {1}
    assert len(partner.calls) == 1 + 3 * count
    stood = (await standing(connection, "a-0007"))["reconcile"]
    assert (stood.last_status, stood.last_error) == ("success", None)
    assert stood.last_run_at is not None
    assert stood.next_run_at is not None
    await assert_invariants_hold(kit)


@pytest.mark.quick
async def test_a_finished_file_is_stored_and_registered(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    await save(connection, [Account("a-1", "m-1")])
    (job,) = await run_now(kit, connection, "a-1")
    await kit.adrain()
    # The report is not ready: the job is snoozed and uses neither a slot nor an attempt.
    assert kit.job(job).state == "scheduled"
    assert await rows(connection, "select outcome, reason from sereno.attempts_v1 where job_id = %s", job) == [
        ("snooze", "the partner is preparing the report")
    ]
    kit.travel_to_next()
    await kit.adrain()
    competence = month(kit.now().date()).name
    [(file, path, merchant, lines, announced)] = await rows(
        connection, "select id, path, merchant, lines, lines_announced from reconciliation.files"
    )
    assert (file, path, merchant) == (job, f"a-1/{competence}/{job}.csv", "m-1")
    stored = Path(urlsplit(settings.STORAGE).path) / path
    assert stored.read_bytes() == gzip.decompress(stored.with_suffix(".csv.gz").read_bytes())
    assert lines == announced == len(report("m-1", competence))
    # The month is an argument, and so a field that jobs are searched by; the counts are results.
    found = await rows(
        connection,
        "select args ->> 'competence', args ->> 'source', result ->> 'bytes' from sereno.jobs_v1 where id = %s",
        job,
    )
    assert found == [(competence, "scheduler", str(stored.stat().st_size))]
    process = kit.jobs("reconciliation.process")[0]
    [(result,)] = await rows(connection, "select result from sereno.jobs_v1 where id = %s", process.id)
    orders = (lines - 1) // 2
    wanted = {"lines": lines, "orders": orders, "differences": 0, "difference_total": 0.0, "is_complete": True}
    assert result == wanted


@pytest.mark.quick
async def test_retries_after_15_30_and_60_minutes_and_then_a_dead_letter(
    kit: Kit, connection: Connection, partner: PartnerStandIn, discord: DiscordProvider
) -> None:
    await save(connection, [Account("a-1", "m-1")])
    partner.troubles["m-1"] = "broken"
    (job,), tried = await run_now(kit, connection, "a-1"), [kit.now()]
    for _ in range(3):
        assert not (await kit.adrain()).failed
        tried.append(kit.travel_to_next())
    (dead,) = (await kit.adrain()).failed
    assert (dead.id, dead.reason, dead.error_message) == (job, "failed 4 times", "request: HTTP 503")
    waits = [(after - before) / timedelta(minutes=1) for before, after in pairwise(tried)]
    assert all(least <= wait < least * 1.1 + 1 for wait, least in zip(waits, (15, 30, 60), strict=True))
    stood = (await standing(connection, "a-1"))["reconcile"]
    assert (stood.last_status, stood.last_error) == ("failed", "request: HTTP 503")
    statuses = (
        "select context ->> 'status' from sereno.logs where job_id = %s and context ->> 'stage' = 'request' order by id"
    )
    assert await rows(connection, statuses, job) == [("error",), ("error",), ("error",), ("failed",)]
    # Its unique key is taken: the night does not start again. By now it may be the next day.
    assert await run_now(kit, connection, "a-1", night=tried[0].date()) == [job]


async def test_an_account_that_has_left_is_reported_in_discord_once(
    kit: Kit, connection: Connection, partner: PartnerStandIn, discord: DiscordProvider
) -> None:
    await save(connection, [Account("a-1", "m-1"), Account("a-2", "m-2")])
    partner.troubles["m-1"] = "left"
    job, other = await run_now(kit, connection, "a-1", "a-2")
    await kit.adrain()
    found = kit.job(job)
    assert (found.state, found.attempt, found.reason) == ("dead", 1, "permanent error: Refused")
    assert partner.calls["request", "m-1"] == 1
    for _ in range(4):
        kit.travel("1m")
        await kit.adrain()
    assert kit.job(other).state == "succeeded"
    (message,) = discord.sent.values()
    competence = month(kit.now().date()).name
    for part in (
        f"reconcile of a-1, merchant m-1, {competence}",
        "stage request: request: HTTP 403",
        f"(run {job}, trace {found.trace})",
        f"sereno job retry {job}",
    ):
        assert part in message["content"]
    await assert_invariants_hold(kit)


async def test_discord_shows_the_day_of_sales_and_the_month_of_a_file(
    kit: Kit, connection: Connection, partner: PartnerStandIn, discord: DiscordProvider
) -> None:
    """Also many failures are one message."""
    sellers = [Account(f"a-{number}", f"m-{number}", runs=("sales_sync",)) for number in range(30)]
    await save(connection, [*sellers, Account("b-1", "m-b")])
    partner.troubles = {account.merchant: "left" for account in sellers} | {"m-b": "no-numbers"}
    partner.polls = 0
    (run,) = await run_now(kit, connection, "b-1")
    await kit.adrain()
    await run_now(kit, connection, *(account.id for account in sellers), name="sales_sync")
    night = kit.now().date()
    for _ in range(4):
        await kit.adrain()
        kit.travel("1m")
    (message,) = discord.sent.values()
    for part in (
        "31 jobs need a person",
        "… and 21 more",
        f"process of b-1, merchant m-b, {month(night).name}: stage read: line 2: not readable",
        f"sales_sync of a-0, merchant m-0, {night - timedelta(days=1)}: stage fetch: sales: HTTP 403",
    ):
        assert part in message["content"], message["content"]
    assert run < kit.jobs("reconciliation.process")[0].id


async def test_a_429_holds_all_jobs_and_uses_up_no_attempt(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    accounts = [Account(f"a-{number:03}", f"m-{number}") for number in range(100)]
    await save(connection, accounts)
    # A worker stores the limits when it starts; jobs enqueued before that have none.
    await kit.adrain()
    partner.troubles = {account.merchant: "busy" for account in accounts}
    await run_now(kit, connection, *(account.id for account in accounts))
    async with app.working():
        await asyncio.to_thread(kit.until, lambda: _is_closed() and not kit.jobs(state="running"))
        assert 1 <= partner.calls.total() - partner.calls["token", ""] <= settings.AT_ONCE
        assert len(kit.jobs("reconciliation.reconcile", state="ready")) >= 100 - settings.AT_ONCE
        partner.troubles = {}
        await app.limits.aset(LIMIT, rate=100_000, burst=10_000, note="a test does not wait for real seconds")
        kit.travel("11m")
        await asyncio.to_thread(kit.until, lambda: len(partner.reports) == 100)
        await asyncio.to_thread(kit.until, lambda: not kit.jobs(state="running"))
        kit.travel("10m")
        await asyncio.to_thread(kit.until, lambda: len(kit.jobs("reconciliation.reconcile", state="succeeded")) == 100)
    outcomes = "select distinct outcome from sereno.attempts_v1 where outcome <> 'succeeded'"
    assert await rows(connection, outcomes) == [("snooze",)]
    await assert_invariants_hold(kit)


def _is_closed() -> bool:
    return any(key.closed_until for key in app.limits.show(LIMIT).keys)


async def test_a_report_that_never_comes_is_given_up(kit: Kit, connection: Connection, partner: PartnerStandIn) -> None:
    await save(connection, [Account("a-1", "m-1")])
    partner.troubles["m-1"] = "never"
    (job,) = await run_now(kit, connection, "a-1")
    await pause_schedules()
    await kit.adrain()
    kit.travel("25h")
    await kit.adrain()
    assert "has been preparing the report since" in (kit.job(job).reason or "")
    # Retried by an operator, it requests a new report: the partner has forgotten the other one.
    del partner.troubles["m-1"]
    partner.recent.clear()
    command = [sys.executable, "-m", "sereno", "job", "retry", str(job)]
    await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
    await kit.adrain()
    assert len(partner.reports) == 2


async def test_a_month_without_entries_is_an_empty_file(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    await save(connection, [Account("a-1", "m-1")])
    partner.troubles["m-1"] = "empty"
    await run_now(kit, connection, "a-1")
    await kit.adrain()
    kit.travel_to_next()
    assert not (await kit.adrain()).failed
    assert await rows(connection, "select lines, orders, processed_at is null from reconciliation.files") == [
        (0, 0, False)
    ]


async def test_replaced_files_are_deleted_after_their_retention(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    partner.polls = 0
    await save(connection, [Account("a-1", "m-1")])
    await pause_schedules()
    # Two nights of one month.
    kit.travel_to(kit.now().replace(day=1) + timedelta(days=40))
    (first,) = await run_now(kit, connection, "a-1")
    await kit.adrain()
    kit.travel("24h")
    (second,) = await run_now(kit, connection, "a-1")
    await kit.adrain()
    states = "select id, status from reconciliation.received_files order by id"
    assert await rows(connection, states) == [(first, "replaced"), (second, "processed")]
    assert await rows(connection, "select distinct file_id from reconciliation.entries") == [(second,)]
    kit.travel("32d")
    await kit.adrain()
    assert await rows(connection, states) == [(second, "processed")]
    names = [name for _, _, names in os.walk(urlsplit(settings.STORAGE).path) for name in names]
    assert sorted(names) == [f"{second}.csv", f"{second}.csv.gz"]
