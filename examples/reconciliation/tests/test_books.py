"""The comparison of files with sales, and the second job type that fetches these."""

from datetime import timedelta
from decimal import Decimal

import pytest
from reconciliation import storage
from reconciliation.accounts import Account, save, standing
from reconciliation.database import Connection
from reconciliation.stand_in_files import BALANCE, orders
from reconciliation.stand_ins import PartnerStandIn
from reconciliation.tests.steps import command, pause_schedules, rows, run_now

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

BOTH = ("reconcile", "sales_sync")
DIFFERENCES = "select account, kind, order_id, in_file, in_sales from reconciliation.differences order by 1, 2"


async def test_the_sales_of_a_day_are_fetched_page_by_page(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    """Pages count from 1, or from 0: the documentation has both."""
    await save(connection, [Account("a-1", "m-1", runs=("sales_sync",)), Account("a-2", "m-20", runs=("sales_sync",))])
    (job, _) = await run_now(kit, connection, "a-1", "a-2", name="sales_sync")
    await kit.adrain()
    day = kit.job(job).args["day"]
    query = "select order_id, day::text, gross, balance from reconciliation.sales where account = %s"
    for account, merchant in (("a-1", "m-1"), ("a-2", "m-20")):
        assert set(await rows(connection, query, account)) == {
            (order, day, Decimal("50.00"), Decimal(BALANCE) / 100) for order in orders(merchant, day)
        }
        assert partner.calls["sales", merchant] == 2
    stood = (await standing(connection, "a-1"))["sales_sync"]
    assert stood.last_status == "success"


async def test_files_are_compared_with_the_sales_of_the_days_that_are_known(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    troubles = {"a-0": "", "a-1": "overpaid", "a-2": "incomplete", "a-3": "unknown orders"}
    await save(connection, [Account(account, f"m-{account}", runs=BOTH) for account in troubles])
    partner.polls = 0
    partner.troubles = {f"m-{account}": kind for account, kind in troubles.items()}
    await pause_schedules()
    # The first file of the month arrives before any sales are known: there is nothing to compare.
    kit.travel_to(kit.now().replace(day=1) + timedelta(days=40))
    await run_now(kit, connection, *troubles)
    await kit.adrain()
    assert await rows(connection, DIFFERENCES) == []
    jobs = await run_now(kit, connection, *troubles, name="sales_sync")
    await kit.adrain()
    day = kit.job(jobs[0]).args["day"]
    due, more = Decimal(BALANCE) / 100, Decimal(BALANCE + 100) / 100
    first = {account: orders(f"m-{account}", day)[0] for account in troubles}
    found = await rows(connection, DIFFERENCES)
    assert found[:2] == [
        ("a-1", "other amount", first["a-1"], more, due),
        ("a-2", "not in the file", first["a-2"], None, due),
    ]
    [(account, kind, order, in_file, in_sales)] = found[2:]
    assert (account, kind, in_file, in_sales) == ("a-3", "not in the sales", Decimal("50.00"), None)
    assert order not in orders("m-a-3", day)
    results = "select result ->> 'differences' from sereno.jobs_v1 where task = %s order by id"
    assert await rows(connection, results, "reconciliation.sales_sync") == [("0",), ("1",), ("1",), ("1",)]

    # The next night the partner has corrected one account; what remains is known since the first night.
    since = "select account, since from reconciliation.differences order by 1"
    before = dict(await rows(connection, since))
    partner.troubles["m-a-1"] = ""
    kit.travel("24h")
    runs = await run_now(kit, connection, *troubles)
    await kit.adrain()
    assert dict(await rows(connection, since)) == {account: before[account] for account in ("a-2", "a-3")}
    results = "select args ->> 'account', result from sereno.jobs_v1 where task = %s and args ->> 'file' = %s"
    [(account, result)] = await rows(connection, results, "reconciliation.process", str(runs[2]))
    assert (account, result["differences"], result["difference_total"]) == ("a-2", 1, float(-due))

    [_, line] = (await command("differences", "a-2")).splitlines()
    assert line.split("\t")[2:6] == [first["a-2"], "not in the file", "", f"{due:.2f}"]


async def test_an_older_file_does_not_replace_a_newer_one(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    """Yesterday's processing failed, and an operator retries it after tonight's."""
    await save(connection, [Account("a-1", "m-1")])
    partner.polls = 0
    partner.troubles["m-1"] = "other-month"
    await pause_schedules()
    kit.travel_to(kit.now().replace(day=1) + timedelta(days=40))
    (older,) = await run_now(kit, connection, "a-1")
    (dead,) = (await kit.adrain()).failed
    assert (dead.task, dead.error_type) == ("reconciliation.process", "BadReport")
    assert "entries of '2001-01'" in (dead.error_message or "")
    assert not await rows(connection, "select 1 from reconciliation.entries")
    del partner.troubles["m-1"]
    kit.travel("24h")
    (newer,) = await run_now(kit, connection, "a-1")
    await kit.adrain()
    # The file is as it should have been.
    [(good, bad)] = await rows(
        connection,
        "select good.path, bad.path from reconciliation.files good, reconciliation.files bad "
        "where good.id = %s and bad.id = %s",
        newer,
        older,
    )
    await storage.put(bad, await storage.get(good))
    await kit.app.jobs.aretry(dead.id)
    await kit.adrain()
    assert await rows(connection, "select distinct file_id from reconciliation.entries") == [(newer,)]
    assert await rows(connection, "select id, status from reconciliation.received_files order by id") == [
        (older, "replaced"),
        (newer, "processed"),
    ]
