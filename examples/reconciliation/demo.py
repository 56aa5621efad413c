"""The demo of this example; `python -m reconciliation.demo` runs it alone until Ctrl-C."""

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

from reconciliation import app as program
from reconciliation.accounts import Account, key_of, save
from reconciliation.database import prepare
from reconciliation.stand_ins import PartnerStandIn
from sereno import Every, Sereno
from sereno.schedules.rules.when import When
from sereno.testing.chats import DiscordProvider

APP = "reconciliation.app:app"
FAST: dict[str, When] = {"reconciliation.report_failures": Every("5s")}
LINKS: list[tuple[str, str]] = [
    (
        "A thousand accounts, each at its own hour in its own time zone; most of their schedules rest at any time.",
        "/schedules?q=key:reconciliation.*",
    ),
    (
        "Jobs that sleep while the partner prepares their reports, and hold no slot meanwhile.",
        "/jobs?q=task:reconciliation.reconcile",
    ),
    (
        "The results of processing: lines and orders of each file, and how many differ from the sales.",
        "/jobs?q=task:reconciliation.process+state:succeeded",
    ),
    (
        "Ten at once, twenty a second; when the partner returns 429, the limit closes for all jobs.",
        "/queues",
    ),
    ("Errors by kind: accounts that have left, a gzip bomb, a file of another merchant.", "/errors"),
    (
        "The log of one account: its report has arrived, and is a gzip bomb.",
        "/logs?q=tenant:r-0027",
    ),
]

ZONES = ("America/Sao_Paulo", "America/Manaus", "America/New_York", "Europe/Riga", "Asia/Tokyo", "Australia/Sydney")
ACCOUNTS = [
    Account(
        f"r-{number:04}",
        f"m-{number}",
        ZONES[number % len(ZONES)],
        f"{2 + number % 4:02}:{number % 60:02}",
        ("reconcile", "sales_sync") if number % 3 else ("reconcile",),
    )
    for number in range(1000)
]
# Fails, by the last two digits of the account; the files of the last two differ from their sales.
TROUBLES = {
    13: "left",
    27: "bomb",
    41: "other-merchant",
    55: "left",
    69: "no-numbers",
    83: "overpaid",
    97: "incomplete",
}
RUNS_A_SECOND = 4


@asynccontextmanager
async def stage(app: Sereno) -> AsyncIterator[dict[str, str]]:
    """Create a thousand accounts and a partner with faults, and trigger a few runs a second."""
    async with (
        PartnerStandIn(retry_after=2, misbehaves=0.03) as partner,
        DiscordProvider() as discord,
        await psycopg.AsyncConnection.connect(app.url, autocommit=True) as connection,
    ):
        # Five of every hundred merchants fail, and the files of two differ from their sales.
        partner.troubles = {f"m-{number}": kind for number in range(1000) if (kind := TROUBLES.get(number % 100))}
        await prepare(connection)
        await save(connection, ACCOUNTS)
        triggering = asyncio.create_task(_trigger_runs(app))
        with tempfile.TemporaryDirectory() as storage:
            try:
                yield {
                    "RECONCILIATION_PARTNER_URL": partner.url,
                    "RECONCILIATION_CLIENT_ID": partner.client_id,
                    "RECONCILIATION_CLIENT_SECRET": partner.client_secret,
                    "RECONCILIATION_DOWNLOAD_HOSTS": partner.url,
                    "RECONCILIATION_STORAGE": f"file://{storage}",
                    "RECONCILIATION_POLL_EVERY": "2s",
                    "RECONCILIATION_DISCORD_URL": discord.url,
                    "RECONCILIATION_DISCORD_HOOK": discord.address,
                }
            finally:
                triggering.cancel()
                with suppress(asyncio.CancelledError):
                    await triggering


async def _trigger_runs(app: Sereno) -> None:
    """Trigger runs; accounts that will fail come first, so that failures show early."""
    chance = random.Random(3)  # noqa: S311 - for a demo
    first = [account for number, account in enumerate(ACCOUNTS) if number in TROUBLES]
    for account in first + chance.sample(ACCOUNTS, len(ACCOUNTS)):
        for name in account.runs:
            await app.schedules.arun(key_of(name, account.id))
        await asyncio.sleep(1 / RUNS_A_SECOND)


async def main() -> None:
    app = program.app
    app.migrate()
    async with stage(app) as environment:
        command = [sys.executable, "-m", "sereno", "worker", APP]
        worker = await asyncio.create_subprocess_exec(
            *command, env=os.environ | environment | {"SERENO_DATABASE_URL": app.url}
        )
        try:
            await worker.wait()
        finally:
            if worker.returncode is None:
                worker.terminate()
                await worker.wait()
    await app.aclose()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
