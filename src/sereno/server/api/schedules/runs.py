"""Runs on request: one schedule now, instants of the past, or all that is due."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from pydantic import AwareDatetime, BaseModel, Field

from sereno.access.identity import Principal
from sereno.database.clock import clock
from sereno.database.driver import adrive
from sereno.database.statement import Operation, Plan
from sereno.errors import InvalidArguments
from sereno.jobs.job import EnqueuedJob, check_date
from sereno.schedules import operations as schedules
from sereno.schedules.lists import clock_of
from sereno.schedules.rows import ScheduleRow
from sereno.schedules.ticker import Ticker, passes
from sereno.server.api.jobs.jobs import CreatedJob
from sereno.server.api.router import Router, Who
from sereno.server.api.schedules.selection import Key, theirs
from sereno.server.api.threads import SerialThread
from sereno.server.shared.context import ServerContext, check_task
from sereno.zones import moment

# Instants in the response; further ones are counted.
LISTED = 1000


class BackfillBody(BaseModel):
    """Instants of the past, from `start` to `end`. `rate`: jobs per second; without it, all at once."""

    start: AwareDatetime
    end: AwareDatetime
    rate: float | None = Field(None, ge=0.001, le=100_000)
    dry_run: bool = False


@dataclass
class PastInstant:
    """`done`: it created a job before, and creates none again."""

    at: datetime
    local: str
    done: bool


@dataclass
class BackfillResponse:
    """The plan, and unless `dry_run` the jobs that were created.

    `total`: instants in the range, of which the first 1,000 are listed. `to_make`: those that created no job before.
    `there_before`: instants whose unique key had a job already. `left`: recorded by another process meanwhile.
    """

    key: str
    dry_run: bool
    total: int
    to_make: int
    instants: list[PastInstant]
    jobs: list[int]
    there_before: int
    left: int


@dataclass
class ParkedInstant:
    key: str
    why: str


@dataclass
class TickResponse:
    """The result of a pass."""

    fires: int
    skips: int
    runs_ended: int
    parked: list[ParkedInstant]


def routes(context: ServerContext, router: Router, in_thread: SerialThread) -> None:
    """The routes that run schedules."""

    @router.operation("POST", "/schedules/tick", role="operator")
    async def tick() -> TickResponse:
        """Fire what is due, once. For a setup with a timer of its own instead of a scheduler."""
        done = await adrive(passes(Ticker()), context.change)
        return TickResponse(
            done.fires, done.skips, done.runs_ended, [ParkedInstant(key, why) for key, why in done.parked]
        )

    also = [HTTPStatus.NOT_FOUND]

    @router.operation("POST", "/schedules/{key:path}/run", role="operator", of_tenants=True, also=also, status_code=201)
    async def run(key: Key, who: Who) -> CreatedJob:
        """Run the schedule now, whatever its rule, and even if a run is in progress."""
        allowed = await context.open_tasks(who)

        def operation() -> Operation[EnqueuedJob]:
            yield from _theirs(key, who, allowed, locked=True)
            return (yield from schedules.run_now(key, actor=who.actor))

        made = await context.change(operation())
        return CreatedJob(made.id, made.created)

    @router.operation("POST", "/schedules/{key:path}/backfill", role="operator", of_tenants=True, also=also)
    async def backfill(key: Key, body: BackfillBody, who: Who) -> BackfillResponse:
        """Run instants of the past, each at most once. `dry_run` only lists them."""
        allowed = await context.open_tasks(who)
        plan = await in_thread.read(_planned(key, body, who, allowed))
        wanted = [at for at in plan.instants if at not in plan.done]
        jobs = [] if body.dry_run else await context.carry_out(_make(key, wanted, body.rate, who, allowed))
        made = [job.id for job in jobs if job.created]
        left = 0 if body.dry_run else len(wanted) - len(jobs)
        return BackfillResponse(
            key, body.dry_run, len(plan.instants), len(wanted), _listed(plan), made, len(jobs) - len(made), left
        )


def _theirs(
    key: str, who: Principal, allowed: Collection[str] | None, *, locked: bool = False
) -> Operation[ScheduleRow]:
    """Return the schedule of this key; 403 for a task that this user may not run."""
    row = yield from theirs(key, who, locked=locked)
    if allowed is not None:
        check_task(row.task, allowed)
    return row


def _planned(
    key: str, body: BackfillBody, who: Principal, allowed: Collection[str] | None
) -> Operation[schedules.Backfill]:
    check_date("start", body.start)
    check_date("end", body.end)
    yield from _theirs(key, who, allowed)
    if body.end > moment((yield from clock())):
        raise InvalidArguments(f"a backfill is for the past, but end ({body.end.isoformat()}) is in the future")
    if body.end <= body.start:
        raise InvalidArguments(f"end ({body.end.isoformat()}) is not after start ({body.start.isoformat()})")
    return (yield from schedules.backfill_plan(key, body.start, body.end))


def _make(
    key: str, wanted: Sequence[datetime], rate: float | None, who: Principal, allowed: Collection[str] | None
) -> Plan[list[EnqueuedJob]]:
    """Create the jobs in transactions of a few hundred."""
    made: list[EnqueuedJob] = []
    pace = schedules.BackfillPace(rate)
    for some in schedules.batches(wanted):
        made += yield _some(key, some, pace, who, allowed)
    return made


def _some(
    key: str, some: Sequence[datetime], pace: schedules.BackfillPace, who: Principal, allowed: Collection[str] | None
) -> Operation[list[EnqueuedJob]]:
    yield from _theirs(key, who, allowed, locked=True)
    return (yield from schedules.backfill(key, some, pace=pace, actor=who.actor))


def _listed(plan: schedules.Backfill) -> list[PastInstant]:
    clock = clock_of(plan.schedule.rule)
    return [PastInstant(at, at.astimezone(clock).isoformat(), at in plan.done) for at in plan.instants[:LISTED]]
