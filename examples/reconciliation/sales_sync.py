"""The second job type: one function. Accounts that name it in `runs` run it."""

from datetime import date, timedelta

from reconciliation.job_types import DAY, job_type
from reconciliation.partner import Partner
from sereno import Context


@job_type(DAY)
async def sales_sync(ctx: Context, account: str, merchant: str, today: str) -> None:
    """Yesterday's sales, on the account's own calendar."""
    day = (date.fromisoformat(today) - timedelta(days=1)).isoformat()
    async with Partner(merchant) as partner:
        sales = await partner.sales(day)
    async with ctx.transaction() as connection:
        await connection.execute(
            "insert into reconciliation.sales (account, day, order_id, amount) select %s, %s, * "
            "from unnest(%s::text[], %s::numeric[]) on conflict do nothing",
            [account, day, [sale.order for sale in sales], [sale.amount for sale in sales]],
        )
        ctx.log.info("has fetched sales", extra={"event": "sales_sync.success", "day": day, "sales": len(sales)})
