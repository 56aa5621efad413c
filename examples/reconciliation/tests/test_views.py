"""The tables of the original design as views, in its words; and its states."""

import asyncio
import os
import socket

import pytest
from reconciliation.accounts import Account, save
from reconciliation.app import app
from reconciliation.database import Connection
from reconciliation.stand_ins import PartnerStandIn
from reconciliation.tests.steps import pause_schedules, rows, run_now

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

# The columns that the original design names, by table.
COLUMNS = {
    "ifood_schedules": "account_id merchant_id enabled timezone preferred_hour run_conciliation run_sales_sync "
    "last_conciliation_run_at last_conciliation_status last_sales_sync_run_at last_sales_sync_status "
    "created_at updated_at",
    "ifood_jobs": "id job_type account_id merchant_id competence scheduled_for status attempts next_retry_at "
    "last_error run_id trace_id locked_at locked_by created_at updated_at",
    "logs": "created_at level message account_id file_id context",
    "received_files": "id",
    "ifood_conciliation_runs": "id",
    "ifood_sales_sync_status": "id",
}


async def test_views_have_the_columns_of_the_original_tables(connection: Connection) -> None:
    query = (
        "select column_name::text from information_schema.columns "
        "where table_schema = 'reconciliation' and table_name = %s"
    )
    for view, names in COLUMNS.items():
        found = {name for (name,) in await rows(connection, query, view)}
        assert found >= set(names.split()), view


async def test_jobs_have_the_states_of_the_original_design(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    troubles = {"a-error": "broken", "a-failed": "left", "a-pending": "never", "a-success": "", "a-running": ""}
    await save(connection, [Account(account, f"m-{account}") for account in troubles])
    partner.troubles = {f"m-{account}": kind for account, kind in troubles.items()}
    partner.polls = 0
    *ended, _ = names = list(troubles)
    runs = await run_now(kit, connection, *ended)
    await kit.adrain()
    held = partner.held["poll", "m-a-running"] = asyncio.Event()
    runs += await run_now(kit, connection, "a-running")
    query = (
        "select account_id, status, attempts, last_error, next_retry_at is not null, locked_by is not null "
        "from reconciliation.ifood_jobs order by id"
    )
    async with app.working():
        await asyncio.to_thread(kit.until, lambda: partner.calls["poll", "m-a-running"])
        found = await rows(connection, query)
        [(locked_by,)] = await rows(connection, "select locked_by from reconciliation.ifood_jobs where locked_by <> ''")
        held.set()
    assert found == [
        ("a-error", "error", 1, "request: HTTP 503", True, False),
        ("a-failed", "failed", 1, "request: HTTP 403", False, False),
        ("a-pending", "pending", 0, "the partner is preparing the report", True, False),
        ("a-success", "success", 1, None, False, False),
        ("a-running", "running", 0, None, False, True),
    ]
    assert locked_by == f"{socket.gethostname()}:{os.getpid()}"
    ids = "select account_id, id, run_id, job_type, trigger_source from reconciliation.ifood_jobs order by id"
    assert await rows(connection, ids) == [
        (name, run, run, "conciliation", "scheduler") for name, run in zip(names, runs, strict=True)
    ]
    # The runs, with their files.
    found = await rows(
        connection,
        "select runs.id, account_id, runs.status, file_id, runs.storage_path = files.storage_path "
        "from reconciliation.ifood_conciliation_runs runs join reconciliation.received_files files "
        "using (account_id) where account_id = 'a-success'",
    )
    assert found == [(runs[3], "a-success", "success", runs[3], True)]


async def test_accounts_show_their_last_runs(kit: Kit, connection: Connection, partner: PartnerStandIn) -> None:
    partner.polls = 0
    partner.troubles["m-2"] = "left"
    both = ("reconcile", "sales_sync")
    await save(connection, [Account("a-1", "m-1", runs=both), Account("a-2", "m-2", runs=both), Account("a-3", "m-3")])
    await pause_schedules()
    await run_now(kit, connection, "a-1", "a-2")
    (sale, _) = await run_now(kit, connection, "a-1", "a-2", name="sales_sync")
    await kit.adrain()
    query = (
        "select account_id, run_conciliation, run_sales_sync, last_conciliation_status, last_sales_sync_status, "
        "last_conciliation_run_at is null, last_sales_sync_error, preferred_hour::text, timezone "
        "from reconciliation.ifood_schedules order by account_id"
    )
    place = ("03:00:00", "America/Sao_Paulo")
    found = await rows(connection, query)
    assert found == [
        ("a-1", True, True, "success", "success", False, None, *place),
        ("a-2", True, True, "failed", "failed", False, "sales: HTTP 403", *place),
        ("a-3", True, False, None, None, True, None, *place),
    ]
    day = kit.job(sale).args["day"]
    query = "select job_day, status, sales from reconciliation.ifood_sales_sync_status where id = %s"
    assert await rows(connection, query, sale) == [(day, "success", 2)]
    # When the history of jobs has expired, successes are still known.
    await kit.app.jobs.adelete(*(job.id for job in kit.jobs() if job.tenant == "a-1"))
    query = "select last_conciliation_status, last_sales_sync_status from reconciliation.ifood_schedules limit 1"
    assert await rows(connection, query) == [("success", "success")]
