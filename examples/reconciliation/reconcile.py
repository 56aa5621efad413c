"""The main job: fetch a month's report, store it, register it, and enqueue its processing."""

import asyncio
import gzip
from dataclasses import dataclass

import msgspec

from reconciliation import settings, storage
from reconciliation.download import ExpiredLink, download
from reconciliation.job_types import job_type, partner_api
from reconciliation.partner import Partner, ReportState, ReportTotals
from reconciliation.periods import month
from reconciliation.process import process
from reconciliation.report_file import NO_ENTRIES, unpack
from reconciliation.run_log import API, CONCILIATION, RunLog
from sereno import Context, Dead, inject
from sereno.duration import seconds


@dataclass
class ReceivedFile:
    """The result of a run. `bytes`: of the CSV."""

    bytes: int
    lines_announced: int | None


class StoredFile(msgspec.Struct):
    """The checksum and the size of a CSV in the storage."""

    sha256: str
    size: int


@job_type(month)
async def reconcile(
    ctx: Context,
    account: str,
    merchant: str,
    competence: str,
    source: str,
    partner: Partner = inject(partner_api),
) -> ReceivedFile | None:
    """Fetch the report of a month. The job's id is that of the run and of its file. `source`: what triggered it."""
    path = storage.path_of(account, competence, ctx.job_id)
    fields = {
        "account_id": account,
        "merchant_id": merchant,
        "competence": competence,
        "trigger_source": source,
        "file_id": ctx.job_id,
        "storage_path": path,
    }
    with RunLog(ctx, CONCILIATION, API, fields) as log:
        began = await log.started()
        log.stage = "request"
        if (ctx.claimed_at - began).total_seconds() > seconds(settings.LONGEST_WAIT):
            raise Dead(f"the partner has been preparing the report since {began:%Y-%m-%d %H:%M} UTC")
        request = await ctx.step("request", partner.request_report, merchant, competence)
        totals = await ctx.step("download", _download, log, partner, merchant, request, path)
        log.stage = "unpack"
        file = await ctx.step("unpack", _unpack, path)
        log.stage = "register"
        async with ctx.transaction() as connection:
            values = [ctx.job_id, account, merchant, competence, path, file.sha256]
            await connection.execute(REGISTER, [*values, totals.orders, totals.lines, ctx.claimed_at])
            processing = process.using(connection, tenant=account, trace=ctx.trace)
            await processing.aenqueue(account, merchant, competence, ctx.job_id)
            log.counts = ReceivedFile(file.size, totals.lines)
            ctx.set_result(log.counts)
    return None


REGISTER = """
insert into reconciliation.files
       (id, account, merchant, competence, path, sha256, orders_announced, lines_announced, received_at)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s)"""


async def _download(log: RunLog, partner: Partner, merchant: str, request: str, path: str) -> ReportTotals:
    """Store the finished report as it is. Its link is a secret that expires, so each attempt polls for a new one."""
    log.stage = "poll"
    report = await partner.report(merchant, request)
    log.line("poll", "running", "the report is ready", request_id=request)
    log.stage = "download"
    packed = await _packed(partner, merchant, request, report)
    await storage.put(f"{path}.gz", packed)
    return report.totals


async def _packed(partner: Partner, merchant: str, request: str, report: ReportState) -> bytes:
    """Return the file of a report; for a month without entries, an empty one."""
    if report.link is None:
        return gzip.compress(NO_ENTRIES)
    try:
        return await download(report.link)
    except ExpiredLink:
        again = await partner.report(merchant, request)
        return await download(again.link or report.link)


async def _unpack(path: str) -> StoredFile:
    content = await asyncio.to_thread(unpack, await storage.get(f"{path}.gz"))
    return StoredFile(await storage.put(path, content), len(content))
