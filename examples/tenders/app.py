"""The cycles of the original design. Every run is recorded with its counts.

tenders.ingest           every 2 minutes   ingests new tenders from the search page and the API
tenders.dispatch         every minute      counts the pushes; they are sent at once, by sereno.deliver
tenders.receipt          every minute      marks tenders that reached at least one phone
sereno.archive_move      at 03:17          cleanup: moves tenders after 12 months, deliveries after 90 days
sereno.archive_export    at 03:47          writes them to Parquet files, read back before rows are dropped
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg

from sereno import Backoff, Cancel, Context, Every, Limit, Rate, Sereno
from sereno.channels.expo import Expo
from sereno.duration import seconds
from tenders import chilecompra, search_page, store
from tenders.figures import PushCounts, counts_between
from tenders.preferences import Announcement, announcement
from tenders.settings import hot_days, setting, waits
from tenders.source import Unavailable
from tenders.tender import CHILE, Tender, merge

HERE = Path(__file__).parent
# The tenant of all recipients and events: other programs may share the database.
TENANT = "tenders"
CATEGORY = "tenders"
# A failed request for details is repeated after these times; then the event is sent without them.
DETAIL_WAITS = waits("DETAIL_WAITS")
# Of all requests with our ticket: one at a time, and a pause between two.
ONE_REQUEST = Limit(1, name="tenders.ticket")
PACE = Rate(1, per=setting("API_PAUSE"), name="tenders.api")

app = Sereno(
    service="tenders",
    # Other programs may share the database: its pushes wait for its own workers.
    notifications_queue="tenders.push",
    templates=str(HERE / "templates"),
    archive_url=setting("ARCHIVE_URL"),
    archive_move_cron=setting("CLEANUP_CRON"),
    archive_export_cron=setting("ARCHIVE_EXPORT_CRON"),
    archive_zone=setting("CRON_ZONE"),
    keep_deliveries_days=int(setting("RETENTION_DAYS")),
    keep_events_days=hot_days(),
    keep_logs="info",
)
app.archive.table("tenders.tenders", time="found_at", older_than=f"{hot_days()}d")


class Push(Expo):
    """Expo under its own channel name: another program in this database may use Expo with another account."""

    name = "tenders_expo"
    delays = tuple(waits("PUSH_WAITS"))
    receipts_after = seconds(setting("RECEIPTS_AFTER"))


push = Push(setting("EXPO_ACCESS_TOKEN") or None, setting("EXPO_URL"))
published = app.event("tenders.published", Announcement, channels=[push], category=CATEGORY)


# Ingest


@dataclass
class IngestCounts:
    """`found`: tenders of both sources. `new`: those that were never seen before."""

    found: int
    new: int


@app.cycle(Every(setting("INGEST_EVERY")))
@app.task(
    name="tenders.ingest",
    queue="tenders",
    # Before the details of what it found earlier.
    priority=2,
    concurrency=ONE_REQUEST,
    rate=PACE,
    retry=Backoff(1, delays=["5s"]),
    timeout="90s",
)
async def ingest(ctx: Context) -> IngestCounts | None:
    """Commit registry, tender and the announcing job together; the same commit marks this job as succeeded."""
    today = ctx.claimed_at.astimezone(CHILE).date()
    found, lists_are_read = await find_tenders(ctx, today)
    async with ctx.transaction() as connection:
        new = await store.claim(connection, found)
        await app.aenqueue_many([announce.using(tenant=TENANT).job(code) for code in new], connection)
        if lists_are_read:
            await store.lists_were_read(connection, today)
        ctx.set_result(IngestCounts(len(found), len(new)))
    return None


async def find_tenders(ctx: Context, today: date) -> tuple[list[Tender], bool]:
    """Return the merged tenders of both sources, of which one may be down, and whether the API's lists were read."""
    async with await psycopg.AsyncConnection.connect(app.url) as connection:
        days = await store.days_to_read(connection, today)
    page, lists = await asyncio.gather(search_page.newest(days[0]), chilecompra.lists(days))
    for problem in (page.problem, lists.problem):
        if problem is not None:
            ctx.log.warning("%s", problem, extra={"event": "tenders.source_down"})
    if page.problem and lists.problem and not (page.tenders or lists.tenders):
        raise Unavailable(f"{page.problem}; {lists.problem}")
    return merged([*page.tenders, *lists.tenders]), lists.problem is None


def merged(found: Sequence[Tender]) -> list[Tender]:
    """Return one tender for each code."""
    by_code = groupby(sorted(found, key=lambda tender: tender.code), key=lambda tender: tender.code)
    return [reduce(merge, same) for _, same in by_code]


@app.task(
    name="tenders.announce",
    queue="tenders",
    concurrency=ONE_REQUEST,
    rate=PACE,
    retry=Backoff(len(DETAIL_WAITS), delays=DETAIL_WAITS),
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
        await published.anotify(announcement(tender), subject=code, tenant=TENANT, trace=ctx.trace, conn=connection)


async def details_in_time(ctx: Context, code: str) -> Tender | None:
    """Return None after the last retry: an event without details is better than none."""
    try:
        return await chilecompra.details(code)
    except Unavailable as error:
        if ctx.failures >= len(DETAIL_WAITS):
            ctx.log.warning("%s is announced without details: %s", code, error, extra={"event": "tenders.no_details"})
            return None
        if error.after:
            ctx.throttle("tenders.api", seconds=error.after)
        raise


# Pushes and receipts: sereno sends the former and requests the latter


@app.cycle(Every(setting("DISPATCH_EVERY")))
@app.task(name="tenders.dispatch", queue="tenders", retry=0)
async def dispatch(ctx: Context) -> PushCounts | None:
    """Count what was sent since the last run, in whole minutes."""
    now = ctx.claimed_at
    minute = now.replace(second=0, microsecond=0)
    async with ctx.transaction() as connection:
        start = await store.pushes_counted(connection, minute)
        ctx.set_result(await counts_between(app, push.name, min(start or minute, minute), minute, now))
    return None


@dataclass
class ReceiptCounts:
    """`confirmed`: tenders that reached a first phone."""

    confirmed: int


@app.cycle(Every(setting("RECEIPT_EVERY")))
@app.task(name="tenders.receipt", queue="tenders", retry=0)
async def receipt(ctx: Context) -> ReceiptCounts | None:
    """Mark tenders as notified whose receipts say so."""
    async with ctx.transaction() as connection:
        ctx.set_result(ReceiptCounts(await store.confirm(connection, app.settings.schema, published.name, TENANT)))
    return None


async def install(connection: psycopg.AsyncConnection[Any]) -> None:
    """Create the tables and views of this program. Idempotent."""
    # Not in quotes: there it is part of the name of a task.
    text = re.sub(r"(?<!')\bsereno\.", f"{app.settings.schema}.", (HERE / "schema.sql").read_text())
    await connection.execute(text.encode())
