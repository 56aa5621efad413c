"""A worker is killed while jobs are inside their steps: finished steps are not repeated, and nothing is lost."""

import asyncio

import psycopg
import pytest
from reconciliation.accounts import Account, save
from reconciliation.app import app
from reconciliation.database import Connection
from reconciliation.stand_ins import PartnerStandIn
from reconciliation.tests.steps import assert_invariants_hold, run_now

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

STAGES = ("request", "poll", "download")


async def test_a_worker_killed_in_any_step_loses_and_repeats_nothing(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    """One account is held in each call to the partner, and one where its file is registered."""
    accounts = [Account(stage, stage) for stage in (*STAGES, "register")]
    await save(connection, accounts)
    # Reports are ready at the first poll.
    partner.polls = 0
    for stage in STAGES:
        partner.held[stage, stage] = asyncio.Event()
    jobs = await run_now(kit, connection, *(account.id for account in accounts))
    async with connection.transaction():
        await connection.execute("lock table reconciliation.files")
        with kit.crash_worker("reconciliation.app:app") as worker:
            await asyncio.to_thread(worker.until, lambda: all(partner.calls[stage, stage] for stage in STAGES))
            await asyncio.to_thread(worker.until, a_job_waits_for_the_table)
            assert {kit.job(job).state for job in jobs} == {"running"}
            worker.kill()
    for held in partner.held.values():
        held.set()
    kit.lose_leases()
    drained = await kit.adrain()
    assert not drained.failed
    assert {kit.job(job).state for job in jobs} == {"succeeded"}

    # A call that was under way is repeated; one that had completed is not. A link is not stored, but polled for again.
    del partner.calls["token", ""]
    again = {(stage, merchant): count for (stage, merchant), count in partner.calls.items() if count > 1}
    assert again == {("poll", "download"): 2} | {(stage, stage): 2 for stage in STAGES}
    # The partner got two requests for one report, and made it once.
    assert len(partner.reports) == len(accounts)
    cursor = await connection.execute("select count(*), count(processed_at) from reconciliation.files")
    assert await cursor.fetchone() == (4, 4)
    kit.assert_enqueued("reconciliation.process", times=4)
    await assert_invariants_hold(kit)


def a_job_waits_for_the_table() -> bool:
    waiting = (
        "select 1 from pg_locks join pg_database on pg_database.oid = database "
        "where datname = current_database() and relation = 'reconciliation.files'::regclass and not granted"
    )
    with psycopg.connect(app.url) as own:
        return own.execute(waiting).fetchone() is not None
