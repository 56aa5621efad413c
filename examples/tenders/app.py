"""Five cycles: two are ours, three are sereno's own.

tenders.ingest           every 2 minutes   what is new on the page and in the API
sereno.sweep_post        every minute      dispatch: pushes leave at once; this finds what was left behind
tenders.confirm          every minute      receipts: which tenders certainly reached somebody
sereno.archive_move      at 03:17          tenders of 12 months and deliveries of 90 days leave their tables
sereno.archive_export    at 03:47          they become Parquet files, read back before anything is dropped
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

# Whose recipients and events they are: other programs may live in the same database.
TENANT = "tenders"
# Tries for the details of a tender, some 16 minutes; after that, people are told what is known.
WAITS = ["10s", "1m", "5m", "10m"]

app = Sereno(
    service="tenders",
    archive_url=setting("ARCHIVE_URL"),
    archive_move_cron=setting("CLEANUP_CRON"),
    archive_export_cron=setting("ARCHIVE_EXPORT_CRON"),
    keep_deliveries_days=90,
    keep_events_days=365,
    keep_logs="info",
)
app.archive.table("tenders.tenders", time="found_at", older_than="365d")


class Push(Expo):
    """Expo under a name of our own: another program in this database may have an Expo of its own."""

    name = "tenders_expo"
    receipts_after = float(setting("RECEIPTS_AFTER"))


push = Push(setting("EXPO_ACCESS_TOKEN") or None, setting("EXPO_URL"))
published = app.event("tenders.published", Tender, channels=[push], category="tenders")


@published.template()
def words(tender: Tender, to: Recipient) -> Content:
    amount = "amount unknown" if tender.amount is None else f"{tender.amount:,} CLP"
    until = f", until {tender.closes_at.astimezone(CHILE):%d %b %H:%M}" if tender.closes_at else ""
    return Content(tender.title, f"{tender.buyer or tender.region or 'Chile'}: {amount}{until}")


# Ingest


@app.cycle(Every(setting("INGEST_EVERY")))
@app.task(name="tenders.ingest", queue="tenders", retry=Backoff(1, delays=["5s"]), timeout="90s")
async def ingest(ctx: Context) -> None:
    """Registry, tender and the job that tells of it are one commit, which is also the success of this job."""
    today = ctx.claimed_at.astimezone(CHILE).date()
    found, lists_are_read = await look(ctx, today)
    async with ctx.transaction() as connection:
        new = await store.claim(connection, found)
        await app.aenqueue_many([announce.using(tenant=TENANT).job(code) for code in new], connection)
        if lists_are_read:
            await store.lists_were_read(connection, today)
    ctx.log.info("%d tenders found, %d of them new", len(found), len(new), extra={"event": "tenders.found"})


async def look(ctx: Context, today: date) -> tuple[list[Tender], bool]:
    """What both sources know, merged; one of them may be down. And whether the API's lists are among it."""
    async with await psycopg.AsyncConnection.connect(app.url) as connection:
        days = await store.days_to_read(connection, today)
    page, lists = await asyncio.gather(sources.newest(), sources.of_days(days), return_exceptions=True)
    found: list[Tender] = []
    for answer in (page, lists):
        if isinstance(answer, Unavailable):
            ctx.log.warning("%s", answer, extra={"event": "tenders.source_down"})
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found += answer
    if isinstance(page, Unavailable) and isinstance(lists, Unavailable):
        raise Unavailable(f"{page}; {lists}")
    return merged(found), not isinstance(lists, Unavailable)


def merged(found: Sequence[Tender]) -> list[Tender]:
    """One for each code."""
    by_code = groupby(sorted(found, key=lambda tender: tender.code), key=lambda tender: tender.code)
    return [reduce(merge, same) for _, same in by_code]


@app.task(
    name="tenders.announce", queue="tenders", rate=Rate(5, name="tenders.api"), retry=Backoff(len(WAITS), delays=WAITS)
)
async def announce(ctx: Context, code: str) -> None:
    """Ask for the details and tell people: the row and the event are one commit, and the success of this job."""
    details = await details_in_time(ctx, code)
    async with ctx.transaction() as connection:
        known = await store.tender(connection, code)
        if known is None:
            raise Cancel("somebody has deleted it")
        tender = known if details is None else merge(details, known)
        await store.fill_in(connection, tender)
        await published.anotify(tender, subject=code, tenant=TENANT, trace=ctx.trace, conn=connection)


async def details_in_time(ctx: Context, code: str) -> Tender | None:
    """None when the API was asked often enough: better to tell people something than nothing."""
    try:
        return await sources.details(code)
    except Unavailable as error:
        if ctx.failures >= len(WAITS):
            ctx.log.warning("%s is told without details: %s", code, error, extra={"event": "tenders.no_details"})
            return None
        if error.after:
            ctx.throttle("tenders.api", seconds=error.after)
        raise


# Receipts


@app.cycle(Every(setting("CONFIRM_EVERY")))
@app.task(name="tenders.confirm", queue="tenders", retry=0, history=False)
async def confirm(ctx: Context) -> None:
    """A tender is notified when a receipt says so. sereno asks for the receipts; this reads what they said."""
    async with ctx.transaction() as connection:
        await store.confirm(connection, app.settings.schema, published.name, TENANT)


# Installations: what the app's own API calls


async def register(
    connection: psycopg.AsyncConnection[object],
    installation: str,
    token: str,
    *,
    regions: Sequence[str] = (),
    at_least: int = 0,
) -> None:
    """An installation of the app, and what it wants to hear of. What nobody knows yet excludes nobody."""
    condition: dict[str, object] = {}
    if regions:
        condition["region"] = [*regions, None]
    if at_least:
        condition["any"] = [{"amount": {"min": at_least}}, {"amount": None}]
    await app.recipients.aupsert(installation, {push.name: token}, tenant=TENANT, conn=connection)
    await app.recipients.aprefer(installation, category="tenders", condition=condition, tenant=TENANT, conn=connection)


async def install(connection: psycopg.AsyncConnection[object]) -> None:
    """Our own tables. Doing it again changes nothing."""
    await connection.execute((Path(__file__).parent / "schema.sql").read_bytes())
