"""The metrics of the seed's endpoint, as JSON and for Prometheus. All are read from sereno's tables."""

from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from separate_worker.app import CYCLE, app, connect
from sereno import InvalidSchedule
from sereno.jobs.queries.rows import SessionRow
from sereno.monitoring.status import SchedulerLine, status
from sereno.worker.operations import list_workers

# Runs to read: the newest finished one is among them unless a cycle hangs.
LAST_RUNS = 20


class Named(BaseModel):
    """Serialized in camel case, as in the seed: lastRunAt."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Worker(Named):
    """One session of a worker process."""

    session: int
    process: str
    queues: dict[str, int]
    running: int
    lease_seconds: float


class LastRun(Named):
    """The last finished run of the cycle; nulls before the first one."""

    last_run_at: datetime | None = None
    last_run_duration_ms: float | None = None
    last_run_job_count: int | None = None
    last_run_error: str | None = None


class Metrics(LastRun):
    """The lock fields describe the lease of the leading scheduler."""

    locked_by: str | None = None
    locked_at: datetime | None = None
    expires_at: datetime | None = None
    workers: list[Worker]
    waiting: int
    running: int
    dead: int


async def metrics() -> Metrics:
    """Return all metrics, with a handful of small queries."""
    current = await app.database.arun(status())
    sessions = await app.database.arun(list_workers())
    leader = current.scheduler if current.scheduler.alive else SchedulerLine({})
    return Metrics(
        **(await last_run()).model_dump(),
        locked_by=leader.holder,
        locked_at=leader.since,
        expires_at=leader.until,
        workers=[_worker(each) for each in sessions if each.state == "alive"],
        waiting=sum(queue.ready.value + queue.scheduled.value for queue in current.queues),
        running=sum(queue.running.value for queue in current.queues),
        dead=current.dead_letters.value,
    )


def _worker(row: SessionRow) -> Worker:
    return Worker(
        session=row.id,
        process=f"{row.host}-{row.pid}",
        queues=dict(row.queues),
        running=row.running,
        lease_seconds=row.lease_seconds,
    )


async def last_run() -> LastRun:
    try:
        runs = await app.schedules.ahistory(CYCLE, LAST_RUNS)
    except InvalidSchedule:
        # The first worker that starts creates the schedule; none has started yet.
        return LastRun()
    for run in runs:
        if run.started_at and run.finished_at:
            return LastRun(
                last_run_at=run.started_at,
                last_run_duration_ms=(run.finished_at - run.started_at).total_seconds() * 1000,
                last_run_job_count=await _jobs_of(run.job_id),
                last_run_error=run.error,
            )
    return LastRun()


async def _jobs_of(run: int | None) -> int:
    async with await connect() as connection:
        counted = await connection.execute("select count(*) from separate_worker.leads where followed_by = %s", [run])
        row = await counted.fetchone()
    return int(row[0]) if row else 0


async def exposition() -> bytes:
    """Return the state of the database for Prometheus. Each worker exports its own counters at its health port."""
    current = await app.database.arun(status())
    last = await last_run()
    last_run_at = last.last_run_at
    registry = CollectorRegistry()
    jobs = Gauge("separate_worker_jobs", "Jobs, by queue and state", ["queue", "state"], registry=registry)
    oldest = Gauge(
        "separate_worker_oldest_seconds", "Seconds since the oldest job became due", ["queue"], registry=registry
    )
    for line in current.queues:
        jobs.labels(line.queue, "ready").set(line.ready.value)
        jobs.labels(line.queue, "running").set(line.running.value)
        jobs.labels(line.queue, "scheduled").set(line.scheduled.value)
        oldest.labels(line.queue).set(line.oldest_seconds or 0)
    figures = {
        "dead_letters": ("Jobs that used up their retries", current.dead_letters.value),
        "workers": ("Processes that run jobs", current.workers_alive),
        "has_leader": ("Whether a scheduler leads", int(current.scheduler.alive)),
        "last_run_timestamp_seconds": ("Time of the last run", last_run_at.timestamp() if last_run_at else 0),
        "last_run_duration_seconds": ("Duration of the last run", (last.last_run_duration_ms or 0) / 1000),
        "last_run_jobs": ("Jobs enqueued by the last run", last.last_run_job_count or 0),
        "last_run_failed": ("Whether the last run failed", int(last.last_run_error is not None)),
    }
    for name, (text, value) in figures.items():
        Gauge(f"separate_worker_{name}", text, registry=registry).set(value)
    return generate_latest(registry)
