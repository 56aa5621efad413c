"""The main job: fetch a month's report, store it, register it, and enqueue its processing."""

import asyncio
import csv
import io
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from uuid import uuid4

import msgspec

from reconciliation import storage
from reconciliation.job_types import MONTH, RETRY, app, job_type
from reconciliation.partner import Partner
from reconciliation.storage import BadReport
from sereno import Context, Dead

# A report usually takes minutes; after this the partner has lost it.
LONGEST_WAIT = timedelta(hours=24)
MOST_AMOUNT = Decimal(10) ** 12


class Begun(msgspec.Struct):
    """A run: its idempotency key at the partner, and when it began."""

    key: str
    at: datetime


@job_type(MONTH)
async def reconcile(ctx: Context, account: str, merchant: str, turn: str) -> None:
    """Fetch the report of the month before `turn`: fired in "2026-11", it is October's, which is complete."""
    month = (date.fromisoformat(f"{turn}-01") - timedelta(days=1)).strftime("%Y-%m")
    packed, unpacked = f"{account}/{month}/report.zip", f"{account}/{month}/report.csv"
    about = {"feature": "reconciliation", "merchant": merchant, "month": month}
    begun = await ctx.step("begin", _begin, ctx)
    async with Partner(merchant) as partner:
        report = await ctx.step("request", partner.request_report, month, begun.key)
        if ctx.claimed_at - begun.at > LONGEST_WAIT:
            raise Dead(f"the partner has been preparing the report since {begun.at:%Y-%m-%d %H:%M} UTC")
        ctx.log.info("polls the report", extra={"event": "reconciliation.poll", "report": report, **about})
        await ctx.step("poll", partner.wait_for, report)
        await ctx.step("download", _download, partner, report, packed)
    checksum = await ctx.step("unzip", _unzip, packed, unpacked)
    async with ctx.transaction() as connection:
        cursor = await connection.execute(REGISTER, [account, month, unpacked, checksum, ctx.job_id])
        [(file,)] = await cursor.fetchall()
        await process.using(connection, tenant=account, trace=ctx.trace).aenqueue(file)
        ctx.log.info("has registered its file", extra={"event": "reconciliation.success", "file": file, **about})


REGISTER = """
insert into reconciliation.files (account, month, path, sha256, job_id) values (%s, %s, %s, %s, %s)
on conflict (account, month) do update
set path = excluded.path, sha256 = excluded.sha256, job_id = excluded.job_id, received_at = now(), processed_at = null
returning id"""


def _begin(ctx: Context) -> Begun:
    ctx.log.info("begins", extra={"event": "reconciliation.start"})
    return Begun(uuid4().hex, ctx.claimed_at)


async def _download(partner: Partner, report: str, place: str) -> str:
    return await asyncio.to_thread(storage.store, place, await partner.download(report))


async def _unzip(packed: str, unpacked: str) -> str:
    def work() -> str:
        return storage.store(unpacked, storage.unpack(storage.fetch(packed)))

    return await asyncio.to_thread(work)


@app.task(name="reconciliation.process", queue="reconciliation.files", retry=RETRY)
async def process(ctx: Context, file: int) -> None:
    """Insert the lines of a file into the books: all of them or none, exactly once."""
    async with ctx.transaction() as connection:
        cursor = await connection.execute("select path from reconciliation.files where id = %s for update", [file])
        [(path,)] = await cursor.fetchall()
        entries = await asyncio.to_thread(lambda: read(storage.fetch(path)))
        await connection.execute("delete from reconciliation.entries where file_id = %s", [file])
        await connection.execute(
            "insert into reconciliation.entries (file_id, line, order_id, amount) select %s, line, order_id, amount "
            "from unnest(%s::text[], %s::numeric[]) with ordinality as entry (order_id, amount, line)",
            [file, [order for order, _ in entries], [amount for _, amount in entries]],
        )
        await connection.execute("update reconciliation.files set processed_at = now() where id = %s", [file])
        ctx.log.info("has read the file", extra={"event": "reconciliation.processed", "file": file})


def read(content: bytes) -> list[tuple[str, Decimal]]:
    """Return order and amount of each line."""
    try:
        rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        entries = [(row["order"], Decimal(row["amount"])) for row in rows]
    except (UnicodeDecodeError, csv.Error, KeyError, InvalidOperation, TypeError) as error:
        raise BadReport(f"a line that cannot be read: {type(error).__name__}") from error
    wrong = [
        1 for order, amount in entries if "\x00" in order or not (amount.is_finite() and abs(amount) < MOST_AMOUNT)
    ]
    if wrong:
        raise BadReport(f"{len(wrong)} invalid lines")
    return entries
