"""The processing of a received file: read it, replace the books of its month, compare them with the sales."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from reconciliation import report_file, storage
from reconciliation.comparison import compare, lock_account
from reconciliation.database import Connection
from reconciliation.job_types import FILES, RETRY, app
from reconciliation.report_file import Entry
from reconciliation.run_log import BACKEND, CONCILIATION, RunLog
from sereno import Context


@dataclass
class ProcessedFile:
    """The result of the processing. `is_complete`: as many lines and orders as the partner has announced."""

    lines: int
    orders: int
    differences: int
    difference_total: float
    is_complete: bool


@app.task(name="reconciliation.process", queue=FILES, retry=RETRY)
async def process(ctx: Context, account: str, merchant: str, competence: str, file: int) -> ProcessedFile | None:
    """Insert the lines of a file into the books: all of them or none, exactly once. `file`: also the id of its run."""
    path = storage.path_of(account, competence, file)
    fields = {
        "account_id": account,
        "merchant_id": merchant,
        "competence": competence,
        "file_id": file,
        "storage_path": path,
    }
    with RunLog(ctx, CONCILIATION, BACKEND, fields, run=file) as log:
        await log.started()
        log.stage = "read"
        content = await storage.get(path)
        entries = await asyncio.to_thread(report_file.read, content, competence, merchant)
        orders = len({entry.order_id for entry in entries if entry.order_id})
        log.stage = "book"
        async with ctx.transaction() as connection:
            await lock_account(connection, account)
            is_complete = await _book(connection, ctx, file, entries, orders)
            log.stage = "compare"
            count, total = await compare(connection, account, competence, ctx.claimed_at)
            log.counts = ProcessedFile(len(entries), orders, count, float(total), is_complete)
            ctx.set_result(log.counts)
    return None


async def _book(connection: Connection, ctx: Context, file: int, entries: Sequence[Entry], orders: int) -> bool:
    """Replace the entries of the month by those of this file. An older file than the books' changes nothing."""
    values = {"file": file, "lines": len(entries), "orders": orders, "now": ctx.claimed_at}
    [(is_newest, is_complete)] = await (await connection.execute(PROCESSED, values)).fetchall()
    if is_newest:
        await connection.execute(REPLACE, values)
        columns = [[getattr(entry, name) for entry in entries] for name in Entry.__slots__]
        await connection.execute(INSERT, [file, *columns])
    return bool(is_complete)


PROCESSED = """
update reconciliation.files as this
set processed_at = %(now)s, lines = %(lines)s, orders = %(orders)s,
    replaced_at = case when exists (
        select from reconciliation.files as newer
        where (newer.account, newer.competence) = (this.account, this.competence) and newer.processed_at is not null
          and (newer.received_at, newer.id) > (this.received_at, this.id)) then %(now)s::timestamptz end
where id = %(file)s
returning replaced_at is null,
          coalesce(lines = lines_announced, true) and coalesce(orders = orders_announced, true)"""

REPLACE = """
with replaced as (
    update reconciliation.files as older set replaced_at = %(now)s
    from reconciliation.files as this
    where this.id = %(file)s and (older.account, older.competence) = (this.account, this.competence)
      and (older.received_at, older.id) < (this.received_at, this.id) and older.replaced_at is null
    returning older.id)
delete from reconciliation.entries where file_id = %(file)s or file_id in (select id from replaced)"""

INSERT = """
insert into reconciliation.entries (file_id, line, order_id, order_day, trigger, description, amount, counts)
select %s, line, order_id, order_day, trigger, description, amount, counts
from unnest(%s::text[], %s::date[], %s::text[], %s::text[], %s::numeric[], %s::boolean[])
     with ordinality as entry (order_id, order_day, trigger, description, amount, counts, line)"""
