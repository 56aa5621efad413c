"""The metrics of the original design's endpoint, as JSON and for Prometheus."""

import os
import socket
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from psycopg.rows import dict_row
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from separate_worker.queues import app, connect, settings
from sereno.jobs.queries.rows import SessionRow
from sereno.monitoring.status import status
from sereno.worker.operations import list_workers


class Named(BaseModel):
    """Serialized in camel case, as in the original design: lastRunAt."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Worker(Named):
    """One session of a worker process."""

    session: int
    process: str
    queues: dict[str, int]
    running: int
    lease_seconds: float


class LastRun(Named):
    """job_runner_state: the last finished run of the cycle; nulls before the first one."""

    last_run_at: datetime | None = None
    last_run_duration_ms: int | None = None
    last_run_job_count: int | None = None
    last_run_error: str | None = None


class Lock(Named):
    """job_runner_lock: the lease of the leading scheduler; nulls if no worker is alive."""

    locked_by: str | None = None
    locked_at: datetime | None = None
    expires_at: datetime | None = None


class Metrics(LastRun, Lock):
    """`job_runner_enabled`, `process`: of the process that answers. The rest is from the database, the same in all."""

    job_runner_enabled: bool
    process: str
    workers: list[Worker]
    waiting: int
    running: int
    dead: int


async def metrics() -> Metrics:
    """Return all metrics, with a handful of small queries."""
    current = await app.database.arun(status())
    sessions = await app.database.arun(list_workers())
    return Metrics(
        **await _only_row("job_runner_state", LastRun),
        **await _only_row("job_runner_lock", Lock),
        job_runner_enabled=settings.runs_jobs,
        process=f"{socket.gethostname()}-{os.getpid()}",
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
    return LastRun(**await _only_row("job_runner_state", LastRun))


async def _only_row(view: str, kind: type[Named]) -> dict[str, Any]:
    """Return the fields of this kind from a view with at most one row."""
    async with await connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(f"select * from separate_worker.{view}".encode())  # noqa: S608 - one of the two above
        row = await cursor.fetchone()
    return {name: row[name] for name in kind.model_fields} if row else {}


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
        "last_run_jobs": ("Jobs that ended in the last cycle", last.last_run_job_count or 0),
        "last_run_failed": ("Whether the last run failed", int(last.last_run_error is not None)),
    }
    for name, (text, value) in figures.items():
        Gauge(f"separate_worker_{name}", text, registry=registry).set(value)
    return generate_latest(registry)
