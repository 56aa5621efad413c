"""The central log: start, success and error of each run with the same fields; the queries of the original design."""

import logging
from typing import Any

import pytest
from reconciliation.accounts import Account, save
from reconciliation.database import Connection
from reconciliation.stand_ins import PartnerStandIn
from reconciliation.tests.steps import rows, run_now

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

# The two queries, with the schema in the search path.
BY_FEATURE = """
select created_at, level, message, account_id, file_id, context
from logs
where context ->> 'feature' = 'ifood_conciliation'
order by created_at desc, id desc
limit 50"""
ERRORS = """
select *
from logs
where context ->> 'feature' = 'ifood_conciliation' and upper(level) in ('ERROR', 'CRITICAL')
order by created_at desc, id desc
limit 50"""
FIELDS = {
    "feature",
    "system",
    "stage",
    "status",
    "run_id",
    "trace_id",
    "file_id",
    "account_id",
    "merchant_id",
    "competence",
    "storage_path",
}


@pytest.fixture(autouse=True)
def _logs_as_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sereno")


def own(contexts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of this program, without those of sereno itself, the oldest first."""
    return [context for context in reversed(contexts) if context["event"].startswith("ifood_")]


async def test_the_queries_of_the_original_design_find_every_run(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    accounts = {"a-good": "", "a-left": "left", "a-down": "broken", "a-bad": "no-numbers"}
    await save(connection, [Account(account, f"m-{account}") for account in accounts])
    partner.troubles = {f"m-{account}": kind for account, kind in accounts.items()}
    partner.polls = 0
    runs = dict(zip(accounts, await run_now(kit, connection, *accounts), strict=True))
    await kit.adrain()
    kit.travel_to_next()
    await kit.adrain()
    await connection.execute("set search_path to reconciliation, public")

    found = await rows(connection, BY_FEATURE)
    lines = own([context for *_, context in found])
    by_account: dict[str, list[tuple[str, str, str]]] = {}
    for context in lines:
        assert context.keys() >= FIELDS
        assert context["run_id"] == context["file_id"] == runs[context["account_id"]]
        assert context["merchant_id"] == f"m-{context['account_id']}"
        assert context["storage_path"].startswith(f"{context['account_id']}/{context['competence']}/")
        assert context["trace_id"] == kit.job(context["run_id"]).trace
        word = context["event"].removeprefix("ifood_conciliation.")
        by_account.setdefault(context["account_id"], []).append((word, context["stage"], context["status"]))
    received = [
        ("start", "start", "running"),
        ("poll", "poll", "running"),
        ("success", "register", "success"),
        ("python.start", "start", "running"),
    ]
    down = [("start", "start", "running"), ("error", "request", "error"), ("error", "request", "error")]
    assert by_account == {
        "a-good": [*received, ("python.success", "compare", "success")],
        "a-left": [("start", "start", "running"), ("error", "request", "failed")],
        "a-down": down,
        "a-bad": [*received, ("python.error", "read", "failed")],
    }
    assert {context["system"] for context in lines if ".python." in context["event"]} == {"dex-python"}
    assert {context["system"] for context in lines if ".python." not in context["event"]} == {"dex-api"}
    assert {(account, file) for *_, account, file, context in found if context in lines} == {
        (account, str(run)) for account, run in runs.items()
    }

    errors = own([row[-2] for row in await rows(connection, ERRORS)])
    assert errors == [context for context in lines if context["event"].endswith(".error")]
    assert {context["error_message"] for context in errors} >= {"request: HTTP 403", "request: HTTP 503"}
    # sereno's own lines are found with them: a run whose worker was killed logs no error itself.
    assert [row for row in await rows(connection, ERRORS) if row[3] == "job.dead"]
    assert "secrets of theirs" not in str(await rows(connection, "select * from sereno.logs"))


async def test_the_log_of_sales_has_the_same_fields_and_their_day(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    await save(connection, [Account("a-1", "m-1", runs=("sales_sync",))])
    partner.troubles["m-1"] = "odd"
    (job,) = await run_now(kit, connection, "a-1", name="sales_sync")
    await kit.adrain()
    del partner.troubles["m-1"]
    kit.travel_to_next()
    await kit.adrain()
    query = "select context from reconciliation.logs where context ->> 'feature' = 'ifood_sales_sync' order by id desc"
    lines = own([context for (context,) in await rows(connection, query)])
    assert [(line["event"], line["stage"]) for line in lines] == [
        ("ifood_sales_sync.start", "start"),
        ("ifood_sales_sync.error", "fetch"),
        ("ifood_sales_sync.success", "store"),
    ]
    day = kit.job(job).args["day"]
    for line in lines:
        assert line.keys() >= FIELDS - {"file_id", "storage_path", "competence"} | {"day"}
        assert (line["job_id"], line["run_id"], line["day"], line["merchant_id"]) == (job, job, day, "m-1")
    assert lines[-1]["sales"] == 2


async def test_one_trace_covers_a_run_and_only_that_run(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    await save(connection, [Account("a-1", "m-1")])
    partner.troubles["m-1"] = "broken"
    (job,) = await run_now(kit, connection, "a-1")
    await kit.adrain()
    del partner.troubles["m-1"]
    for _ in range(2):
        kit.travel_to_next()
        await kit.adrain()
    trace = kit.job(job).trace
    query = "select event, task, tenant from sereno.logs where trace_id = %s order by id"
    lines = await rows(connection, query, trace)
    assert [event for event, *_ in lines] == [
        "ifood_conciliation.start",
        "ifood_conciliation.error",
        "job.retry",
        "job.snooze",
        "ifood_conciliation.poll",
        "ifood_conciliation.success",
        "ifood_conciliation.python.start",
        "ifood_conciliation.python.success",
    ]
    assert {tenant for *_, tenant in lines} == {"a-1"}
    assert {task for _, task, _ in lines} == {"reconciliation.reconcile", "reconciliation.process"}
    kit.travel("24h")
    (other,) = await run_now(kit, connection, "a-1")
    assert kit.job(other).trace not in {None, trace}
