"""Five cycles: two are ours, three are sereno's own.

tenders.ingest               every 2 minutes   ingests new tenders from the page and the API
sereno.sweep_notifications…  every minute      dispatch: pushes are sent at once; this sends what was missed
tenders.confirm              every minute      receipts: marks tenders that reached at least one phone
sereno.archive_move          at 03:17          moves tenders after 12 months, deliveries after 90 days
sereno.archive_export        at 03:47          writes them to Parquet files, read back before rows are dropped
"""

import asyncio
from collections.abc import Sequence
from datetime import date
from functools import reduce
from itertools import groupby
from pathlib import Path

import psycopg

from sereno import Backoff, Cancel, Content, Context, Every, Rate, Recipient, Sereno
from sereno.channels.expo import Expo
from tenders import sources, store
from tenders.settings import setting
from tenders.sources import Unavailable
from tenders.tender import CHILE, Tender, merge

# The tenant of all recipients and events: other programs may share the database.
TENANT = "tenders"
# Delays between attempts to fetch a tender's details, some 16 minutes; then the event is sent without them.
WAITS = ["10s", "1m", "5m", "10m"]

app = Sereno(
    service="tenders",
    # Other programs may share the database: its pushes wait for its own workers.
    notifications_queue="tenders.push",
    archive_url=setting("ARCHIVE_URL"),
    archive_move_cron=setting("CLEANUP_CRON"),
    archive_export_cron=setting("ARCHIVE_EXPORT_CRON"),
    keep_deliveries_days=90,
    keep_events_days=365,
    keep_logs="info",
)
app.archive.table("tenders.tenders", time="found_at", older_than="365d")


class Push(Expo):
    """Expo under its own channel name: another program in this database may use Expo with another account."""

    name = "tenders_expo"
    receipts_after = float(setting("RECEIPTS_AFTER"))


push = Push(setting("EXPO_ACCESS_TOKEN") or None, setting("EXPO_URL"))
published = app.event("tenders.published", Tender, channels=[push], category="tenders")


@published.template()
def content(tender: Tender, to: Recipient) -> Content:
    amount = "amount unknown" if tender.amount is None else f"{tender.amount:,} CLP"
    until = f", until {tender.closes_at.astimezone(CHILE):%d %b %H:%M}" if tender.closes_at else ""
    return Content(tender.title, f"{tender.buyer or tender.region or 'Chile'}: {amount}{until}")


# Ingest


@app.cycle(Every(setting("INGEST_EVERY")))
@app.task(name="tenders.ingest", queue="tenders", retry=Backoff(1, delays=["5s"]), timeout="90s")
async def ingest(ctx: Context) -> None:
    """Commit registry, tender and the announcing job together; the same commit marks this job as succeeded."""
    today = ctx.claimed_at.astimezone(CHILE).date()
    found, lists_are_read = await find_tenders(ctx, today)
    async with ctx.transaction() as connection:
        new = await store.claim(connection, found)
        await app.aenqueue_many([announce.using(tenant=TENANT).job(code) for code in new], connection)
        if lists_are_read:
            await store.lists_were_read(connection, today)
    ctx.log.info("%d tenders found, %d of them new", len(found), len(new), extra={"event": "tenders.found"})


async def find_tenders(ctx: Context, today: date) -> tuple[list[Tender], bool]:
    """Return the merged tenders of both sources, of which one may be down, and whether the API's lists were read."""
    async with await psycopg.AsyncConnection.connect(app.url) as connection:
        days = await store.days_to_read(connection, today)
    page, lists = await asyncio.gather(sources.newest(), sources.of_days(days), return_exceptions=True)
    found: list[Tender] = []
    for result in (page, lists):
        if isinstance(result, Unavailable):
            ctx.log.warning("%s", result, extra={"event": "tenders.source_down"})
        elif isinstance(result, BaseException):
            raise result
        else:
            found += result
    if isinstance(page, Unavailable) and isinstance(lists, Unavailable):
        raise Unavailable(f"{page}; {lists}")
    return merged(found), not isinstance(lists, Unavailable)


def merged(found: Sequence[Tender]) -> list[Tender]:
    """Return one tender for each code."""
    by_code = groupby(sorted(found, key=lambda tender: tender.code), key=lambda tender: tender.code)
    return [reduce(merge, same) for _, same in by_code]


@app.task(
    name="tenders.announce", queue="tenders", rate=Rate(5, name="tenders.api"), retry=Backoff(len(WAITS), delays=WAITS)
)
async def announce(ctx: Context, code: str) -> None:
    """Fetch the details and publish the event: row, event and success of this job are one commit."""
    details = await details_in_time(ctx, code)
    async with ctx.transaction() as connection:
        known = await store.tender(connection, code)
        if known is None:
            raise Cancel("the tender was deleted")
        tender = known if details is None else merge(details, known)
        await store.fill_in(connection, tender)
        await published.anotify(tender, subject=code, tenant=TENANT, trace=ctx.trace, conn=connection)


async def details_in_time(ctx: Context, code: str) -> Tender | None:
    """Return None after the last retry: an event without details is better than none."""
    try:
        return await sources.details(code)
    except Unavailable as error:
        if ctx.failures >= len(WAITS):
            ctx.log.warning("%s is announced without details: %s", code, error, extra={"event": "tenders.no_details"})
            return None
        if error.after:
            ctx.throttle("tenders.api", seconds=error.after)
        raise


# Receipts


@app.cycle(Every(setting("CONFIRM_EVERY")))
@app.task(name="tenders.confirm", queue="tenders", retry=0, history=False)
async def confirm(ctx: Context) -> None:
    """Mark tenders as notified whose receipts say so. sereno polls the receipts; this reads the results."""
    async with ctx.transaction() as connection:
        await store.confirm(connection, app.settings.schema, published.name, TENANT)


# Installations: called by the app's own API


async def register(
    connection: psycopg.AsyncConnection[object],
    installation: str,
    token: str,
    *,
    regions: Sequence[str] = (),
    at_least: int = 0,
) -> None:
    """Register an installation of the app and its preferences. An unknown field of a tender matches any of them."""
    condition: dict[str, object] = {}
    if regions:
        condition["region"] = [*regions, None]
    if at_least:
        condition["any"] = [{"amount": {"min": at_least}}, {"amount": None}]
    await app.recipients.aupsert(installation, {push.name: token}, tenant=TENANT, conn=connection)
    await app.recipients.aprefer(installation, category="tenders", condition=condition, tenant=TENANT, conn=connection)


async def install(connection: psycopg.AsyncConnection[object]) -> None:
    """Create the tables of this program. Idempotent."""
    await connection.execute((Path(__file__).parent / "schema.sql").read_bytes())
