"""The second job type: one function. Accounts that name it in `runs` run it."""

from collections.abc import Sequence
from dataclasses import dataclass

from reconciliation.comparison import compare, lock_account
from reconciliation.database import Connection
from reconciliation.job_types import job_type, partner_api
from reconciliation.partner import Partner, Sale
from reconciliation.periods import day
from reconciliation.run_log import API, SALES_SYNC, RunLog
from sereno import Context, inject


@dataclass
class FetchedSales:
    """The result of a run. `differences`: of the month, once its file is processed."""

    sales: int
    differences: int


@job_type(day)
async def sales_sync(
    ctx: Context,
    account: str,
    merchant: str,
    day: str,
    source: str,
    partner: Partner = inject(partner_api),
) -> FetchedSales | None:
    """Fetch the sales of a day, and compare its month again."""
    fields = {"account_id": account, "merchant_id": merchant, "day": day, "trigger_source": source}
    with RunLog(ctx, SALES_SYNC, API, fields) as log:
        await log.started()
        log.stage = "fetch"
        sales = await partner.sales(merchant, day)
        log.stage = "store"
        async with ctx.transaction() as connection:
            await lock_account(connection, account)
            await _store(connection, account, day, sales)
            await connection.execute(KNOWN, [account, day, ctx.job_id, merchant, len(sales), ctx.claimed_at])
            count, _ = await compare(connection, account, day[:7], ctx.claimed_at)
            log.counts = FetchedSales(len(sales), count)
            ctx.set_result(log.counts)
    return None


async def _store(connection: Connection, account: str, day: str, sales: Sequence[Sale]) -> None:
    columns = (
        [sale.id for sale in sales],
        [sale.current_status for sale in sales],
        [sale.gross for sale in sales],
        [sale.billing_summary.sale_balance for sale in sales],
    )
    await connection.execute(STORE, [account, day, *columns])


STORE = """
insert into reconciliation.sales (account, day, order_id, status, gross, balance)
select %s, %s, * from unnest(%s::text[], %s::text[], %s::numeric[], %s::numeric[])
on conflict (account, order_id) do update
set day = excluded.day, status = excluded.status, gross = excluded.gross, balance = excluded.balance"""

KNOWN = """
insert into reconciliation.sales_days (account, day, id, merchant, sales, synchronised_at)
values (%s, %s, %s, %s, %s, %s)
on conflict (account, day) do update
set id = excluded.id, merchant = excluded.merchant, sales = excluded.sales,
    synchronised_at = excluded.synchronised_at"""
