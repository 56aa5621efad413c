"""The work: a lead goes to its organisation's CRM; a day later, whoever did not answer is written to once more.

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
# However many workers run, and whatever they do for it: so many calls a second for one organisation.
PER_ORGANISATION = Rate(settings.rate, per="1s", key="{tenant}", name="separate_worker.organisation")
TRIES = Backoff(6, first="2s", cap="10m")
TOO_MANY, BROKEN = 429, 500

app.queue(QUEUE, rate=PER_ORGANISATION, fair_key="{tenant}")


@app.task(name="separate_worker.push_lead", queue=QUEUE, retry=TRIES, timeout="1m")
async def push_lead(ctx: Context, lead: int) -> None:
    await _tell_crm(ctx, lead, "leads")
    # The commit of this block is also the success of the job.
    async with ctx.transaction() as connection:
        await connection.execute("update separate_worker.leads set pushed_at = now() where id = %s", [lead])


@app.task(name="separate_worker.follow_up", queue=QUEUE, retry=TRIES, timeout="1m")
async def follow_up(ctx: Context, lead: int) -> None:
    await _tell_crm(ctx, lead, "follow-ups")
    async with ctx.transaction() as connection:
        await connection.execute("update separate_worker.leads set followed_at = now() where id = %s", [lead])


@app.cycle(Every(settings.interval), key=CYCLE)
@app.task(name=CYCLE, queue=f"{QUEUE}.cycle", retry=0)
async def follow_ups(ctx: Context) -> None:
    """One pass over what is due: it takes the leads and makes a job for each, in one transaction.

    A pass that fails is not tried again: the next one finds the same leads.
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


async def add_lead(connection: psycopg.AsyncConnection, organisation: str, reference: str, email: str) -> Job | None:
    """The lead and its job, both or neither; None if this organisation has sent that reference before."""
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


async def _tell_crm(ctx: Context, lead: int, what: str) -> None:
    """One call. The key is the same for all tries, so that the CRM does it once even if we have to ask twice."""
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
        ) as answer,
    ):
        if answer.status == TOO_MANY:
            raise RetryAfter.from_header(answer.headers.get("Retry-After", ""))
        if answer.status >= BROKEN:
            answer.raise_for_status()
        if not answer.ok:
            raise Dead(f"the CRM refuses it: {answer.status}")
