"""The status of the whole system."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.clock import clock
from sereno.database.statement import Operation
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.queues import QueueLine, list_queues
from sereno.jobs.queries.rows import NextJob, OpenTransaction, PauseRow
from sereno.schedules import queries as schedules
from sereno.zones import moment


@dataclass(frozen=True, slots=True)
class SchedulerLine:
    """The scheduler that leads, and its last tick; `holder` is None when no scheduler has run yet.

    `lease_seconds`: the rest of its lease, negative once expired. `lag_seconds`: delay of the oldest due schedule.
    """

    schedules: dict[str, int]
    lag_seconds: float | None = None
    alive: bool = False
    holder: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    lease_seconds: float | None = None
    ticked_at: datetime | None = None
    ticked_seconds_ago: float | None = None
    tick_seconds: float | None = None
    tick_fires: int | None = None
    error: str | None = None
    error_at: datetime | None = None
    zones: str | None = None


@dataclass(frozen=True, slots=True)
class SystemStatus:
    """Workers, queues, dead jobs, pauses and the scheduler."""

    schema_version: int
    workers_alive: int
    slots: int
    queues: list[QueueLine]
    dead_letters: BoundedCount
    next_scheduled: NextJob | None
    oldest_transaction: OpenTransaction | None
    pauses: list[PauseRow]
    scheduler: SchedulerLine


def status() -> Operation[SystemStatus]:
    """Return the status, from a few bounded queries and a count of the schedules."""
    version = yield from job_queries.schema_version()
    sessions = yield from job_queries.sessions()
    alive = [session for session in sessions if session.state == "alive"]
    queues = yield from list_queues()
    dead = yield from job_queries.dead_letters()
    following = yield from job_queries.next_scheduled()
    oldest = yield from job_queries.oldest_transaction()
    pauses = yield from job_queries.pauses()
    leader = yield from scheduler()
    slots = sum(sum(session.queues.values()) for session in alive)
    return SystemStatus(version, len(alive), slots, queues, dead, following, oldest, pauses, leader)


def scheduler() -> Operation[SchedulerLine]:
    """Return the scheduler that leads, and the schedules by state."""
    counts = yield from schedules.count(ScheduleFilter(), BOUND)
    row = yield from schedules.scheduler()
    now = moment((yield from clock()))
    if row is None:
        first = yield from schedules.soonest(ScheduleFilter(), 1)
        due = first[0].next_run_at if first else None
        return SchedulerLine(counts, None if due is None or due > now else (now - due).total_seconds())
    ago = None if row.ticked_at is None else now - row.ticked_at
    return SchedulerLine(
        counts,
        row.lag,
        row.alive,
        row.holder,
        row.since,
        row.until,
        (row.until - now).total_seconds(),
        row.ticked_at,
        None if ago is None else max(ago, timedelta()).total_seconds(),
        row.tick_seconds,
        row.tick_fires,
        row.error,
        row.error_at,
        row.zones,
    )
