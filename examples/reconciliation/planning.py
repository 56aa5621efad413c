"""What an account runs tonight. Its schedules enqueue `plan`, which enqueues the job of the night's period."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from psycopg.rows import class_row

from reconciliation.database import Connection
from reconciliation.job_types import CONTROL, JOB_TYPES, RETRY, JobType, app
from reconciliation.periods import Period
from sereno import Context
from sereno.jobs.handle import Job

SCHEDULER, MANUAL = "scheduler", "manual"


@dataclass
class PlannedJobs:
    """The result of a plan: 0 for a period that has its job already, or that a later night covers."""

    enqueued: int


@dataclass
class PlannedAccount:
    """What a plan reads of an account."""

    id: str
    merchant: str
    zone: str
    hour: str
    runs: list[str]
    enabled: bool


@app.task(name="reconciliation.plan", queue=CONTROL, retry=RETRY)
async def plan(ctx: Context, account: str, job_type: str, night: str) -> PlannedJobs | None:
    """Enqueue the job of a night, unless the account has changed since its schedule fired."""
    at, known = date.fromisoformat(night), JOB_TYPES.get(job_type)
    source = SCHEDULER if _is_scheduled(ctx) else MANUAL
    async with ctx.transaction() as connection:
        found = await account_of(connection, account)
        job = None
        if known and found and _runs(found, job_type) and not _is_covered(known, found, at, ctx.claimed_at):
            job = await start(connection, found, job_type, known.period(at), source)
        ctx.set_result(PlannedJobs(int(job is not None and job.created)))
    return None


async def account_of(connection: Connection, account: str) -> PlannedAccount | None:
    cursor = connection.cursor(row_factory=class_row(PlannedAccount))
    await cursor.execute(ACCOUNT, [account])
    return await cursor.fetchone()


ACCOUNT = "select id, merchant, zone, hour, runs, enabled from reconciliation.accounts where id = %s"


async def start(
    connection: Connection, account: PlannedAccount, job_type: str, period: Period, source: str
) -> Job[Any]:
    """Enqueue a job with a trace of its own. By hand, a period is run as often as wanted, one job at a time."""
    turn = period.turn if source == SCHEDULER else f"{period.name}:{MANUAL}"
    task = JOB_TYPES[job_type].task.using(
        connection,
        tenant=account.id,
        trace=str(uuid4()),
        unique_key=f"reconciliation.{job_type}:{account.id}:{turn}",
        unique_for=period.remembered if source == SCHEDULER else "live",
    )
    return await task.aenqueue(account.id, account.merchant, period.name, source)


def _is_scheduled(ctx: Context) -> bool:
    """Return whether the rule of a schedule made this job. `sereno schedule run` makes one between two seconds."""
    return ctx.fire is not None and ctx.fire.at.second == 0 and ctx.fire.at.microsecond == 0


def _runs(account: PlannedAccount, job_type: str) -> bool:
    return account.enabled and job_type in account.runs


def _is_covered(job_type: JobType, account: PlannedAccount, night: date, now: datetime) -> bool:
    """Return whether a missed night is covered by the next one, which is due too, and fetches the same period."""
    following = night + timedelta(days=1)
    due = datetime.combine(following, time.fromisoformat(account.hour), ZoneInfo(account.zone))
    return due <= now and job_type.period(night).name == job_type.period(following).name
