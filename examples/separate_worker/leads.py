"""Leads: passed on to the CRM of their organisation, with one follow-up later."""

import hashlib
from typing import Annotated

import aiohttp
import msgspec
import psycopg

from separate_worker.queues import QUEUE, TRIES, app, connect, enqueue, settings
from sereno import Context, Dead, Job, RetryAfter

TOO_MANY, BROKEN = 429, 500
REFERENCE = r"^[\w.:-]{1,100}$"
EMAIL = r"^[^\s@]{1,64}@[^\s@]{1,190}$"

Reference = Annotated[str, msgspec.Meta(pattern=REFERENCE)]


class NewLead(msgspec.Struct):
    """`reference`: the caller's own name for it."""

    reference: Reference
    email: Annotated[str, msgspec.Meta(pattern=EMAIL)]


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


async def add_lead(connection: psycopg.AsyncConnection, organisation: str, lead: NewLead) -> Job[None] | None:
    """Store the lead and its job together; return None if this organisation has sent that reference before."""
    async with connection.transaction():
        made = await connection.execute(
            "insert into separate_worker.leads (organisation, reference, email, follow_up_at) "
            "values (%s, %s, %s, now() + make_interval(hours => %s)) on conflict do nothing returning id",
            [organisation, lead.reference, lead.email, settings.follow_up_hours],
        )
        row = await made.fetchone()
        if row is None:
            return None
        (job,) = await enqueue(connection, [push_lead.using(tenant=organisation).job(row[0])])
        return job


async def close_lead(connection: psycopg.AsyncConnection, organisation: str, reference: str) -> bool:
    """End the follow-up of a lead, unless it was sent; return whether the lead exists."""
    found = await connection.execute(
        "update separate_worker.leads set closed_at = coalesce(closed_at, now()) "
        "where organisation = %s and reference = %s",
        [organisation, reference],
    )
    return found.rowcount > 0


async def enqueue_follow_ups(connection: psycopg.AsyncConnection, cycle: int) -> int:
    """Mark the leads that are due as taken by this job, and enqueue a follow-up for each; return their number."""
    taken = await connection.execute(
        "update separate_worker.leads set followed_by = %s "
        "where followed_by is null and closed_at is null and follow_up_at <= now() returning id, organisation",
        [cycle],
    )
    jobs = [follow_up.using(tenant=organisation).job(lead) async for lead, organisation in taken]
    await enqueue(connection, jobs)
    return len(jobs)


async def add_organisation(connection: psycopg.AsyncConnection, organisation: str, key: str) -> None:
    await connection.execute(
        "insert into separate_worker.organisations (id, key_hash) values (%s, %s) "
        "on conflict (id) do update set key_hash = excluded.key_hash",
        [organisation, hash_of(key)],
    )


def hash_of(key: str) -> bytes:
    """Keys have 128 random bits or more, so one round is enough."""
    return hashlib.sha256(key.encode()).digest()


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
