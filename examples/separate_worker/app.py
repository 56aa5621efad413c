"""The tasks: pass a lead on to its organisation's CRM, and send one follow-up a day later.

WORKER_MODE=1 python -m separate_worker
"""

import hashlib
from pathlib import Path

import aiohttp
import psycopg

from separate_worker.settings import read
from sereno import Backoff, Context, Dead, Every, Job, Rate, RetryAfter, Sereno

settings = read()
app = Sereno(service="separate_worker")

QUEUE = "separate_worker"
CYCLE = "separate_worker.follow_ups"
# CRM calls per second for one organisation, over all workers and tasks.
PER_ORGANISATION = Rate(settings.rate, per="1s", key="{tenant}", name="separate_worker.organisation")
TRIES = Backoff(6, first="2s", cap="10m")
TOO_MANY, BROKEN = 429, 500

app.queue(QUEUE, rate=PER_ORGANISATION, fair_key="{tenant}")


@app.task(name="separate_worker.push_lead", queue=QUEUE, retry=TRIES, timeout="1m")
async def push_lead(ctx: Context, lead: int) -> None:
    await _call_crm(ctx, lead, "leads")
    # The commit of this block is also the success of the job.
    async with ctx.transaction() as connection:
        await connection.execute("update separate_worker.leads set pushed_at = now() where id = %s", [lead])


@app.task(name="separate_worker.follow_up", queue=QUEUE, retry=TRIES, timeout="1m")
async def follow_up(ctx: Context, lead: int) -> None:
    await _call_crm(ctx, lead, "follow-ups")
    async with ctx.transaction() as connection:
        await connection.execute("update separate_worker.leads set followed_at = now() where id = %s", [lead])


@app.cycle(Every(settings.interval), key=CYCLE)
@app.task(name=CYCLE, queue=f"{QUEUE}.cycle", retry=0)
async def follow_ups(ctx: Context) -> None:
    """Mark the leads that are due and enqueue a job for each, in one transaction.

    A failed run is not retried: the next one finds the same leads.
    """
    async with ctx.transaction() as connection:
        taken = await connection.execute(
            "update separate_worker.leads set followed_by = %s where followed_by is null and follow_up_at <= now() "
            "returning id, organisation",
            [ctx.job_id],
        )
        jobs = [follow_up.using(tenant=organisation).job(lead) async for lead, organisation in taken]
        await app.aenqueue_many(jobs, connection)
    ctx.log.info("cycle complete: %s jobs", len(jobs))


async def add_lead(
    connection: psycopg.AsyncConnection, organisation: str, reference: str, email: str
) -> Job[None] | None:
    """Store the lead and its job together; return None if this organisation has sent that reference before."""
    async with connection.transaction():
        made = await connection.execute(
            "insert into separate_worker.leads (organisation, reference, email) values (%s, %s, %s) "
            "on conflict do nothing returning id",
            [organisation, reference, email],
        )
        row = await made.fetchone()
        return await push_lead.using(connection, tenant=organisation).aenqueue(row[0]) if row else None


async def add_organisation(connection: psycopg.AsyncConnection, organisation: str, key: str) -> None:
    await connection.execute(
        "insert into separate_worker.organisations (id, key_hash) values (%s, %s) "
        "on conflict (id) do update set key_hash = excluded.key_hash",
        [organisation, hash_of(key)],
    )


def hash_of(key: str) -> bytes:
    """Keys have 128 random bits or more, so one round is enough."""
    return hashlib.sha256(key.encode()).digest()


async def connect() -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(app.url, autocommit=True)


async def create_tables() -> None:
    async with await connect() as connection:
        await connection.execute((Path(__file__).parent / "schema.sql").read_bytes())


async def _call_crm(ctx: Context, lead: int, what: str) -> None:
    """One call. The key is the same for all attempts, so that the CRM executes it once even if we send it twice."""
    async with await connect() as connection:
        found = await connection.execute("select email from separate_worker.leads where id = %s", [lead])
        row = await found.fetchone()
    if row is None:
        raise Dead("the lead is gone")
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{settings.crm_url}/{ctx.tenant}/{what}",
            json={"email": row[0]},
            headers={"Idempotency-Key": f"{what}-{lead}"},
        ) as response,
    ):
        if response.status == TOO_MANY:
            raise RetryAfter.from_header(response.headers.get("Retry-After", ""))
        if response.status >= BROKEN:
            response.raise_for_status()
        if not response.ok:
            raise Dead(f"the CRM refuses it: {response.status}")
