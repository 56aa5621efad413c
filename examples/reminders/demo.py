"""The demo of this example; `python -m reminders.demo` runs it alone."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import cycle

import psycopg

from reminders.app import app
from reminders.install import create_tables
from reminders.stand_ins import BUSY, NO_MAILBOX, StandIns
from sereno import Every, Sereno
from sereno.schedules.rules.when import When

APP = "reminders.app:app"
FAST: dict[str, When] = {"reminders.find": Every("2s")}
LINKS = [
    (
        "Eve's mail server is always busy: five attempts, a dead letter, and then an SMS.",
        "deliveries?q=recipient:reminders.eve",
    ),
    (
        "Bob's mailbox does not exist: the address is not used any more, and his reminders are sent by SMS.",
        "recipient?key=reminders.bob",
    ),
    (
        "Requeue a dead letter; a requeue of a sent delivery is refused, with the reason.",
        "deliveries?q=state:dead+event:reminders.*",
    ),
]

RECIPIENTS: dict[str, dict[str, str]] = {
    "reminders.ana": {
        "email": "ana@example.org",
        "sms": "+37120000001",
        "telegram": "1001",
        "push": "ExponentPushToken[ana]",
        "whatsapp": "+37120000001",
    },
    "reminders.bob": {"email": NO_MAILBOX, "sms": "+37120000002"},
    "reminders.cyd": {},
    "reminders.eve": {"email": BUSY, "sms": "+37120000003"},
}
# Recipient and channel of each reminder; the channel fax does not exist.
REMINDERS = [
    ("reminders.ana", "email"),
    ("reminders.ana", "telegram"),
    ("reminders.bob", "email"),
    ("reminders.cyd", "in_app"),
    ("reminders.cyd", "email"),
    ("reminders.ana", "sms"),
    ("reminders.ana", "push"),
    ("reminders.ana", "whatsapp"),
    ("reminders.eve", "email"),
    ("reminders.cyd", "fax"),
]
EACH = 0.5
WRITE = "insert into reminders.reminders (person, channel, title, asset, due_at) values (%s, %s, %s, %s, now())"
# Quicker than in production: a demo takes minutes.
QUICK = {
    "NOTIFICATION_CRON_EXPRESSION": "*/2 * * * * *",
    "REMINDERS_FIRST_RETRY": "0.3",
    "REMINDERS_EXPO_RECEIPTS_AFTER": "3",
}


@asynccontextmanager
async def stage(app: Sereno) -> AsyncIterator[dict[str, str]]:
    """Create the tables, four recipients and their providers, and write a reminder every half second."""
    await asyncio.to_thread(create_tables, app)
    for recipient, addresses in RECIPIENTS.items():
        await app.recipients.aupsert(recipient, addresses)
    async with StandIns(trouble=0.08) as stand_ins:
        writer = asyncio.create_task(write(app))
        try:
            yield stand_ins.environment | QUICK
        finally:
            writer.cancel()
            with suppress(asyncio.CancelledError):
                await writer


async def write(app: Sereno) -> None:
    """Insert reminders, as users of the asset manager do."""
    async with await psycopg.AsyncConnection.connect(app.url, autocommit=True) as connection:
        for number, (recipient, channel) in enumerate(cycle(REMINDERS)):
            await connection.execute(WRITE, [recipient, channel, f"inspect the lift {number}", f"L-{number % 7}"])
            await asyncio.sleep(EACH)


async def main() -> None:
    """Run the worker, the scheduler and the dashboard of this example until Ctrl-C."""
    app.migrate()
    async with stage(app) as environment:
        command = [sys.executable, "-m", "sereno", "run", APP]
        given = {**os.environ, **environment, "SERENO_DATABASE_URL": app.url}
        process = await asyncio.create_subprocess_exec(*command, env=given)
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
