"""The demo of this example; `python -m tenders.demo` runs it alone."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

from sereno import Every, Sereno
from sereno.schedules.rules.when import When
from sereno.testing.expo import ExpoProvider
from sereno.testing.provider import Fault
from tenders import phones
from tenders.app import app, install
from tenders.phones import Phone
from tenders.preferences import Preferences
from tenders.samples import REGIONS
from tenders.stand_ins import Api, Authority, PausableSource, SearchPage

APP = "tenders.app:app"
FAST: dict[str, When] = {
    "tenders.ingest": Every("2s"),
    "tenders.dispatch": Every("5s"),
    "tenders.receipt": Every("5s"),
    "sereno.archive_move": Every("7s"),
    "sereno.archive_export": Every("10s"),
}
LINKS = [
    (
        "Both sources were down for a while: a failed cycle, one retry, and a dead letter.",
        "/jobs?q=task:tenders.ingest",
    ),
    ("Each run of a cycle with its counts: tenders found, and new ones.", "/schedule?key=tenders.ingest"),
    ("Requests for details are retried; the event is sent in any case.", "/jobs?q=task:tenders.announce"),
    (
        "The outcome of each push: sent, delivered, or invalid because the phone is gone.",
        "/deliveries?q=event:tenders.*",
    ),
    ("A sold phone: its token is invalid and is not used again.", "/recipient?key=phone-0&tenant=tenders"),
    ("Last year's tenders were archived to Parquet files with checksums.", "/archive"),
]

PHONES = 40
TICKET = "demo-ticket"
EACH = 0.7
OFTEN = 0.08
TROUBLE: list[Fault] = ["busy", "broken", "close", "html"]
# The first poll succeeds; the next two fail at both the page and the API, so that one cycle becomes a dead letter.
OUTAGE = range(1, 3)
LAST_YEAR = """
with claimed as (insert into tenders.registry (code)
    select 'OLD-' || n || '-LE25' from generate_series(1, 300) as n on conflict do nothing returning code)
insert into tenders.tenders (code, title, found_at, notified)
select code, 'Licitación del año pasado', now() - interval '13 months', true from claimed
"""


@asynccontextmanager
async def stage(app: Sereno) -> AsyncIterator[dict[str, str]]:
    """Create tables, phones and last year's tenders, and publish one tender after another."""
    authority, regions = Authority(), list(REGIONS)
    async with SearchPage(authority) as page, Api(authority, TICKET) as api, ExpoProvider() as expo:
        async with await psycopg.AsyncConnection.connect(app.url) as connection:
            await install(connection)
            await connection.execute(LAST_YEAR)
            for number in range(PHONES):
                wanted = Preferences(regions=(regions[number % len(regions)],) if number % 3 else ())
                await phones.register(connection, f"phone-{number}", Phone(_token(number), "android"), wanted)
        expo.tickets[_token(0)] = expo.receipts_of[_token(3)] = "DeviceNotRegistered"
        day = asyncio.create_task(_day(authority, [page, api], expo))
        try:
            yield {
                "TENDERS_SEARCH_URL": page.url,
                # One request of a run, which OUTAGE counts.
                "TENDERS_SEARCH_PAGES": "1",
                "TENDERS_API_URL": api.url,
                "TENDERS_API_TICKET": TICKET,
                "TENDERS_EXPO_URL": expo.url,
                "TENDERS_API_PAUSE": "200ms",
                "TENDERS_RECEIPTS_AFTER": "3s",
                "TENDERS_INGEST_EVERY": "2s",
                "TENDERS_DISPATCH_EVERY": "5s",
                "TENDERS_RECEIPT_EVERY": "5s",
                "TENDERS_CLEANUP_CRON": "*/7 * * * * *",
                "TENDERS_ARCHIVE_EXPORT_CRON": "*/10 * * * * *",
            }
        finally:
            day.cancel()
            with suppress(asyncio.CancelledError):
                await day


async def _day(authority: Authority, sources: list[PausableSource], expo: ExpoProvider) -> None:
    """Publish tenders, and inject random faults into the partners."""
    chance = random.Random(7)  # noqa: S311 - random faults, not secrets
    while True:
        authority.publish()
        is_outage = len(sources[0].log) in OUTAGE
        for partner in sources:
            partner.fault = "broken" if is_outage else _random_fault(chance)
        expo.fault = _random_fault(chance)
        await asyncio.sleep(EACH)


def _random_fault(chance: random.Random) -> Fault | None:
    return chance.choice(TROUBLE) if chance.random() < OFTEN else None


def _token(number: int) -> str:
    return f"ExponentPushToken[demo-{number}]"


async def main() -> None:
    """Run the worker and the dashboard of this example until Ctrl-C."""
    app.migrate()
    async with stage(app) as environment:
        given = {**os.environ, **environment, "SERENO_DATABASE_URL": app.url}
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "sereno", "run", APP, env=given)
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
    await app.aclose()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
