"""The system as a whole: status, health, figures, settings, audit and tasks."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Query
from psycopg.errors import QueryCanceled
from pydantic import BaseModel, Field

from sereno.access.audit_queries import audit_page
from sereno.access.identity import Role
from sereno.access.rows import AuditRow
from sereno.bounded_count import BoundedCount
from sereno.database.statement import Operation
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries import minute_stats
from sereno.jobs.queries.minute_stats import AttemptCounts, AttemptFigures, quantile
from sereno.jobs.queries.queues import QueueLine
from sereno.jobs.queries.rows import TaskLine
from sereno.jobs.task import TaskDefinition
from sereno.monitoring import doctor, verify
from sereno.monitoring.doctor import DoctorCheck
from sereno.monitoring.search_fields import AUDIT_FIELDS
from sereno.monitoring.settings import SettingLine, list_settings
from sereno.monitoring.standby import check_standby, primary_position
from sereno.monitoring.status import SystemStatus, status
from sereno.monitoring.verify import InvariantResult
from sereno.search.syntax import LONGEST
from sereno.server.api.paging import LARGEST_PAGE, Page, Paging, paging
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.search_access import searched
from sereno.text import NAME_LIMIT

# Timeout in seconds of all checks of a verification together; the command line has more time.
VERIFY_SECONDS = 120.0
AN_HOUR = 3600.0
# An audit subject may hold two names: "recipient …, tenant …".
LONGEST_SUBJECT = 2 * NAME_LIMIT


@dataclass
class CurrentUser:
    """The current user. `tenant`: the only tenant they can access; null for all."""

    name: str
    role: Role
    tenant: str | None


@dataclass
class Health:
    """`healthy`: no check fails."""

    healthy: bool
    checks: list[DoctorCheck]


class VerifyBody(BaseModel):
    """`all`: check every row, not only the newest. `seconds`: the timeout of each query."""

    all: bool = False
    seconds: float = Field(default=verify.TIMEOUT, gt=0, le=verify.TIMEOUT, allow_inf_nan=False)


@dataclass
class VerifyResponse:
    """`holds`: no invariant is violated."""

    holds: bool
    invariants: list[InvariantResult]


@dataclass
class LastTick:
    """The scheduler's last pass over due schedules; nulls if none has run. `fires`: jobs that it created."""

    at: datetime | None
    seconds_ago: float | None
    seconds: float | None
    fires: int | None
    error: str | None
    error_at: datetime | None
    lag_seconds: float | None


@dataclass
class Durations:
    """Median and 95th percentile in seconds; null without data."""

    median: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class LastHour(AttemptCounts):
    """Attempts that ended within the hour, how long they waited from due to started, and how long they ran."""

    waited: Durations
    ran: Durations


@dataclass
class Metrics:
    """Figures for a dashboard. `finished_total` only grows; `tasks` are counted among the newest jobs."""

    last_tick: LastTick
    last_hour: LastHour
    workers_alive: int
    slots: int
    schedules: dict[str, int]
    queues: list[QueueLine]
    dead_letters: BoundedCount
    finished_total: int
    tasks: list[TaskLine]


@dataclass
class RetryPolicy:
    """How often it is retried, and after how many seconds: `delays`, or `first` times `factor` up to `cap`."""

    retries: int
    first: float
    factor: float
    cap: float
    delays: list[float]


@dataclass
class TaskOptions:
    """A task as the application declares it. `timeout`: in seconds, null for none. `limits`: by their names."""

    name: str
    arguments: list[str]
    queue: str
    priority: int
    retry: RetryPolicy
    timeout: float | None
    isolate: bool
    batch: int
    history: bool
    settle_at_once: bool
    limits: list[str]
    fair_key: str | None
    order_key: str | None
    dead_blocks: bool


def routes(context: ServerContext) -> Router:
    """`/status`, `/doctor`, `/verify`, `/metrics`, `/settings`, `/audit`, `/me`, `/tasks`."""
    router = Router(context, "system")

    @router.operation("GET", "/me", role="viewer", of_tenants=True)
    async def me(who: Who) -> CurrentUser:
        """The current user."""
        return CurrentUser(who.name, who.role, who.tenant)

    @router.operation("GET", "/status", role="viewer")
    async def show_status() -> SystemStatus:
        """Everything on one screen: workers, the scheduler, queues, dead letters, pauses."""
        return await context.read(status())

    @router.operation("GET", "/metrics", role="viewer")
    async def metrics() -> Metrics:
        """Figures: the last tick and its duration, what waits, runs and finished, and results by task."""
        return await context.read(_metrics())

    @router.operation("GET", "/tasks", role="viewer")
    async def list_tasks() -> Page[TaskOptions]:
        """The tasks of the application that the server was started with, by name."""
        registry = context.app.registry
        return Page([_task(registry.find(name)) for name in registry.names])

    _health(context, router)
    _record(context, router)
    return router


def _health(context: ServerContext, router: Router) -> None:
    running = asyncio.Lock()

    @router.operation("GET", "/doctor", role="viewer")
    async def diagnose() -> Health:
        """Check for problems, and say what helps."""
        checks = await context.read(doctor.doctor(context.settings))
        if context.settings.read_url:
            written = await context.read(primary_position())
            checks.append(await asyncio.to_thread(check_standby, context.settings, written))
        return Health(all(check.level != "fail" for check in checks), checks)

    @router.operation("POST", "/verify", role="admin")
    async def prove(body: VerifyBody | None = None) -> VerifyResponse:
        """Check the invariants on the live database, reading only; one check at a time. It may take a while."""
        wanted = body or VerifyBody()
        if running.locked():
            raise HTTPError(HTTPStatus.CONFLICT, "another verification is running: try again when it has finished")
        window = None if wanted.all else verify.WINDOW
        async with running:
            found = await _bounded(
                context, verify.verify(lease=context.settings.lease, window=window, timeout=wanted.seconds)
            )
        return VerifyResponse(all(invariant.holds for invariant in found), found)


def _record(context: ServerContext, router: Router) -> None:
    @router.operation("GET", "/settings", role="admin")
    async def settings() -> Page[SettingLine]:
        """Every setting, its value and where it came from. Secrets are masked."""
        return Page(list_settings(context.settings, context.app.setting_sources))

    @router.operation("GET", "/audit", role="viewer")
    async def audit(
        who: Who,
        page: Annotated[Paging, Depends(paging)],
        subject: Annotated[
            str | None, Query(max_length=LONGEST_SUBJECT, description='Only this subject, such as "queue ifood".')
        ] = None,
        actor: Annotated[str | None, Query(max_length=NAME_LIMIT, description="Only by this actor.")] = None,
        action: Annotated[
            str | None, Query(max_length=NAME_LIMIT, description='"queue.pause", or "queue" for all of its actions.')
        ] = None,
        q: Annotated[
            str | None, Query(max_length=LONGEST, description="A search: actor:maria action:schedule.* at:1d..")
        ] = None,
    ) -> Page[AuditRow]:
        """Audit entries, newest first. `actor` and `action` are searched among the newest entries."""
        search_params = searched(q, AUDIT_FIELDS, who)

        found, has_more = await context.read(
            audit_page(
                before=page.before,
                subject=subject,
                actor=actor,
                action=action,
                search_params=search_params,
                most=page.limit,
                skip=page.skip,
                most_bytes=LARGEST_PAGE,
            )
        )
        return Page(found, found[-1].id if has_more else None)


async def _bounded(context: ServerContext, operation: Operation[list[InvariantResult]]) -> list[InvariantResult]:
    """Run the verification, which sets up its transaction itself."""
    try:
        async with asyncio.timeout(VERIFY_SECONDS):
            return await context.database.arun(operation)
    except (TimeoutError, QueryCanceled):
        raise HTTPError(
            HTTPStatus.SERVICE_UNAVAILABLE, "the verification takes too long: run `sereno verify`, which has more time"
        ) from None


def _metrics() -> Operation[Metrics]:
    found = yield from status()
    finished = yield from job_queries.finished_total()
    by_task = yield from job_queries.by_task()
    ended = yield from minute_stats.read(AN_HOUR, step=AN_HOUR)
    tick = found.scheduler
    return Metrics(
        LastTick(
            tick.ticked_at,
            tick.ticked_seconds_ago,
            tick.tick_seconds,
            tick.tick_fires,
            tick.error,
            tick.error_at,
            tick.lag_seconds,
        ),
        _last_hour(ended),
        found.workers_alive,
        found.slots,
        tick.schedules,
        found.queues,
        found.dead_letters,
        finished,
        by_task,
    )


def _last_hour(found: Sequence[AttemptFigures]) -> LastHour:
    waits = [sum(bucket) for bucket in zip(*(line.waits for line in found), strict=True)]
    runs = [sum(bucket) for bucket in zip(*(line.runs for line in found), strict=True)]
    return LastHour(
        **{field.name: sum(getattr(line, field.name) for line in found) for field in fields(AttemptCounts)},
        waited=Durations(quantile(waits, 0.5), quantile(waits, 0.95)),
        ran=Durations(quantile(runs, 0.5), quantile(runs, 0.95)),
    )


def _task(task: TaskDefinition) -> TaskOptions:
    retry, rule = task.retry, task.rule
    return TaskOptions(
        name=task.name,
        arguments=list(task.arguments.names),
        queue=task.queue,
        priority=task.priority,
        retry=RetryPolicy(retry.retries, retry.first, retry.factor, retry.cap, list(retry.delays)),
        timeout=task.timeout,
        isolate=task.isolate,
        batch=task.batch,
        history=task.history,
        settle_at_once=task.settle_at_once,
        limits=[str(limit.name) for limit in rule.limits],
        fair_key=rule.fair,
        order_key=rule.order,
        dead_blocks=rule.dead_blocks,
    )
