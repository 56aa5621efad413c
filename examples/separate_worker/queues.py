"""The application object, its queues and their limits, and connections to its database."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from separate_worker.settings import read
from sereno import Backoff, Job, Limit, NewJob, Rate, Sereno

HERE = Path(__file__).parent
settings = read()
app = Sereno(service="separate_worker")

QUEUE = "separate_worker"
WEBHOOKS = "separate_worker.webhooks"
CYCLE_QUEUE = "separate_worker.cycle"
TRIES = Backoff(settings.retries, first="2s", cap="10m")
# CRM calls per second for one organisation, over all workers and tasks.
PER_ORGANISATION = Rate(settings.rate, per="1s", key="{tenant}", name="separate_worker.organisation")
# The original design ran one job after another, in one worker. These limits hold over all workers.
ONE_AT_A_TIME = Limit(1, name="separate_worker.one_at_a_time")
ONE_MESSAGE_AT_A_TIME = Limit(1, name="separate_worker.webhooks.one_at_a_time")

app.queue(
    QUEUE,
    rate=PER_ORGANISATION,
    concurrency=ONE_AT_A_TIME if settings.one_at_a_time else None,
    fair_key="{tenant}",
)
app.queue(WEBHOOKS, concurrency=ONE_MESSAGE_AT_A_TIME if settings.one_at_a_time else None, fair_key="{tenant}")


async def enqueue(connection: psycopg.AsyncConnection, jobs: Sequence[NewJob]) -> list[Job[Any]]:
    """Enqueue jobs in the caller's transaction, and note them for the count of the cycle that sees them ended."""
    made = await app.aenqueue_many(jobs, connection)
    await connection.execute(
        "insert into separate_worker.uncounted_jobs select unnest(%s::bigint[])", [[job.id for job in made]]
    )
    return made


async def connect() -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(app.url, autocommit=True)


async def create_tables() -> None:
    """Create the tables and views, which may exist already. The views read the schema in which sereno is."""
    async with await connect() as connection:
        for name in ("schema.sql", "views.sql"):
            text = (HERE / name).read_text()
            await connection.execute(text.replace("sereno.", f"{app.settings.schema}.").encode())
