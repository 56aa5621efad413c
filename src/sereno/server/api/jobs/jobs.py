"""Jobs: list, show, why, enqueue, retry, cancel, delete."""

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from sereno.access.identity import Principal
from sereno.bounded_count import BoundedCount
from sereno.bulk import operations as bulk
from sereno.database.json_values import stored
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments, JobNotFound
from sereno.jobs import operations as jobs
from sereno.jobs import task_rows
from sereno.jobs.enqueue import span_of
from sereno.jobs.filters import JobFilter
from sereno.jobs.job import MOST_PREDECESSORS, JobOptions, NewJob, OnDead
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.reveal import hidden
from sereno.jobs.queries.rows import JobLine
from sereno.jobs.queries.search import JOB_FIELDS, jobs_wanted
from sereno.jobs.queries.why import why
from sereno.jobs.queries.why_carried import FIRST_DIRECT
from sereno.jobs.rows import BulkOperation, JobAction, KeyConflict
from sereno.jobs.task_rows import DeclaredTask
from sereno.search.syntax import LONGEST
from sereno.server.api.bounds import Name, Tags
from sereno.server.api.jobs.bulk import ACCEPTED, InBackground, PerSecond, begun, check_rate
from sereno.server.api.paging import Page, Paging, page_of, paging
from sereno.server.api.router import Router, Who
from sereno.server.shared.archived import gone
from sereno.server.shared.caller_trace import CallerTrace, continued
from sereno.server.shared.context import ServerContext, check_task
from sereno.server.shared.error_masking import sees_all
from sereno.server.shared.search_access import check_search
from sereno.server.shared.tenant_scope import check_theirs, their_tenant
from sereno.text import check_text

JobId = Annotated[int, Path(ge=0, lt=2**63)]


class JobSelection(BaseModel):
    """Which jobs; all given fields must match. `q`: a search, as on the command line."""

    q: str | None = Field(None, max_length=LONGEST)
    ids: list[Annotated[int, Field(ge=0, lt=2**63)]] | None = Field(None, max_length=10_000)
    states: list[Annotated[str, Field(max_length=50)]] | None = Field(None, max_length=20)
    queue: Name | None = None
    task: Name | None = None
    tenant: Name | None = None
    tag: Name | None = None
    error: Name | None = None
    unique_key: Name | None = None
    created_after: AwareDatetime | None = None
    created_before: AwareDatetime | None = None
    finished_after: AwareDatetime | None = None
    finished_before: AwareDatetime | None = None

    def filter(self, who: Principal) -> JobFilter:
        given = JobFilter(**self.model_dump(include=set(JobSelection.model_fields) - {"q"}))
        return of_theirs(given.both(searched(self.q)), who)


class NewJobBody(BaseModel):
    """A new job. `after`: jobs that it waits for; `on_dead`: what a dead one of them means."""

    task: Name
    arguments: dict[str, Any] = {}
    queue: Name | None = None
    priority: int | None = Field(None, ge=0, le=9)
    delay: Annotated[str, Field(max_length=50)] | float | None = None
    run_at: AwareDatetime | None = None
    expires_at: AwareDatetime | None = None
    tenant: Name | None = None
    unique_key: Name | None = None
    tags: Tags = []
    after: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field([], max_length=MOST_PREDECESSORS)
    on_dead: OnDead = "wait"


class RetryBody(BaseModel):
    """All arguments of the new job, not only those that change."""

    arguments: dict[str, Any]


class BulkBody(JobSelection):
    """`dry_run`: only count. `rate`: jobs per second. `reason`: stored with the jobs."""

    dry_run: bool = False
    in_background: InBackground = False
    all: bool = Field(False, description="Confirms all jobs, where no filter is given.")
    rate: PerSecond | None = None
    reason: str | None = Field(None, max_length=500)


@dataclass
class CreatedJob:
    """`created`: false if a job with this unique key existed."""

    id: int
    created: bool


@dataclass
class WhyResponse:
    """Sentences, the most important first."""

    sentences: list[str]


@dataclass
class BulkResponse:
    """What was done; with `dry_run`, what would be. `conflicts`: left alone, as a live job has their unique key."""

    dry_run: bool
    total: int
    exact: bool
    by_task: dict[str, int]
    by_queue: dict[str, int]
    by_tenant: dict[str, int]
    done: list[int]
    stopping: list[int]
    left: list[int]
    conflicts: list[KeyConflict]


def of_theirs(wanted: JobFilter, who: Principal) -> JobFilter:
    """Return the filter for this user: their own tenant's jobs; viewers find errors only as masked."""
    return replace(wanted, tenant=their_tenant(who, wanted.tenant), masked=not sees_all(who))


def searched(text: str | None) -> JobFilter:
    """Return the filter of a search now. Its days are days of UTC, the same for every user."""
    return jobs_wanted(text or "", datetime.now(UTC))


def filter_params(
    who: Who,
    q: Annotated[
        str | None, Query(max_length=LONGEST, description="A search: state:dead tenant:r42 -tag:canary attempts:>3")
    ] = None,
    states: Annotated[list[str] | None, Query(description="One of these states, repeatable.")] = None,
    queue: str | None = None,
    task: str | None = None,
    tenant: str | None = None,
    tag: str | None = None,
    error: Annotated[str | None, Query(description="Part of a reason, an error type or an error message.")] = None,
    unique_key: str | None = None,
    created_after: AwareDatetime | None = None,
    created_before: AwareDatetime | None = None,
    finished_after: AwareDatetime | None = None,
    finished_before: AwareDatetime | None = None,
) -> JobFilter:
    """The filter of a list."""
    given = JobFilter(
        states=states,
        queue=queue,
        task=task,
        tenant=tenant,
        tag=tag,
        error=error,
        unique_key=unique_key,
        created_after=created_after,
        created_before=created_before,
        finished_after=finished_after,
        finished_before=finished_before,
    )
    check_search(q, JOB_FIELDS, who)
    return given.both(searched(q))


def routes(context: ServerContext) -> Router:
    """`/jobs`."""
    router = Router(context, "jobs")

    @router.operation("GET", "/jobs", role="viewer", of_tenants=True, also=[HTTPStatus.NOT_FOUND])
    async def list_jobs(
        who: Who, page: Annotated[Paging, Depends(paging)], wanted: Annotated[JobFilter, Depends(filter_params)]
    ) -> Page[JobLine]:
        """Live and finished jobs, newest first."""
        query = partial(job_queries.list_jobs, of_theirs(wanted, who))
        return await context.read(page_of(page, query, lambda line: line.id))

    @router.operation("POST", "/jobs", role="operator", of_tenants=True, also=[HTTPStatus.NOT_FOUND], status_code=201)
    async def enqueue(body: NewJobBody, who: Who, caller: CallerTrace) -> CreatedJob:
        """Enqueue a job: of the application of this server, or of a task that a worker has declared."""
        given = body.model_dump(exclude={"task", "arguments"})
        with continued(caller) as trace:
            options = JobOptions(**{**given, "tenant": their_tenant(who, body.tenant), "trace": trace})
            wanted = await _new_job(context, who, body, options)
            with span_of([wanted]):
                (made,) = await context.change(jobs.enqueue([wanted], actor=who.actor, tenant=who.tenant))
        return CreatedJob(made.id, made.created)

    @router.operation("GET", "/jobs/{job_id}", role="viewer", of_tenants=True)
    async def show(job_id: JobId, who: Who) -> jobs.JobDetail:
        """One job with all its attempts, steps and progress. Likely secrets in its arguments are masked."""
        return hidden(await context.read(_theirs(job_id, who)))

    @router.operation("GET", "/jobs/{job_id}/why", role="viewer", of_tenants=True)
    async def why_job(job_id: JobId, who: Who) -> WhyResponse:
        """Why the job is in its state, in words."""

        def operation() -> Operation[list[str]]:
            # A job that was published directly may have no row, and so no tenant: only users of all tenants ask for it.
            if who.tenant is not None or job_id < FIRST_DIRECT:
                yield from _theirs(job_id, who)
            return (yield from why(job_id, tenant=who.tenant))

        return WhyResponse(await context.read(operation()))

    _bulk(context, router)
    _again(context, router)
    return router


def _bulk(context: ServerContext, router: Router) -> None:
    options: dict[str, Any] = {"also": [HTTPStatus.NOT_FOUND], "response_model": BulkResponse, "responses": ACCEPTED}

    @router.operation("POST", "/jobs/retry", role="operator", of_tenants=True, **options)
    async def retry(body: BulkBody, who: Who) -> BulkResponse | Response:
        """Run finished jobs again, under their own ids and with a fresh retry budget."""
        wanted = await _open_to(context, who, body.filter(who))
        if body.dry_run:
            return _would(await context.read(jobs.count_retry(wanted)))
        if body.in_background:
            return await _begun(context, who, "job.retry", body, wanted)
        return _did(await context.carry_out(jobs.retry(wanted, rate=body.rate, yes=body.all, actor=who.actor)))

    @router.operation("POST", "/jobs/cancel", role="operator", of_tenants=True, **options)
    async def cancel(body: BulkBody, who: Who) -> BulkResponse | Response:
        """Cancel jobs: waiting ones end at once, running ones are requested to stop."""
        wanted = body.filter(who)
        if body.dry_run:
            return _would(await context.read(jobs.count_cancel(wanted)))
        if body.in_background:
            return await _begun(context, who, "job.cancel", body, wanted)
        check_rate(body.rate, in_background=False)
        return _did(await context.carry_out(jobs.cancel(wanted, reason=body.reason, yes=body.all, actor=who.actor)))

    @router.operation("POST", "/jobs/delete", role="admin", of_tenants=True, **options)
    async def delete(body: BulkBody, who: Who) -> BulkResponse | Response:
        """Delete jobs for good, with their attempts. Refused for a running job."""
        wanted = body.filter(who)
        if body.dry_run:
            return _would(await context.read(jobs.count_delete(wanted)))
        if body.in_background:
            return await _begun(context, who, "job.delete", body, wanted)
        check_rate(body.rate, in_background=False)
        return _did(await context.carry_out(jobs.delete(wanted, yes=body.all, actor=who.actor)))


def _again(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/jobs/{job_id}/retry", role="operator", of_tenants=True, status_code=201)
    async def retry_edited(job_id: JobId, body: RetryBody, who: Who) -> CreatedJob:
        """Enqueue a copy of a finished job with other arguments. Its tag `retry-of:ID` names the original."""
        make_job = await context.job_maker(who)
        row = (await context.read(_theirs(job_id, who))).job
        wanted = await asyncio.to_thread(lambda: bulk.edited(row, _encoded(body.arguments), make_job))

        def operation() -> Operation[CreatedJob]:
            made = yield from bulk.retry_edited(row, wanted, actor=who.actor)
            return CreatedJob(made.id, made.created)

        return await context.change(operation())


async def _declared_elsewhere(context: ServerContext, who: Principal, name: str) -> DeclaredTask | None:
    """Return the declaration of a task that the application of this server does not have."""
    if name in context.app.registry.names:
        return None
    check_text("task", name)
    check_task(name, await context.open_tasks(who))
    return next(iter(await context.read(task_rows.declared(name))), None)


async def _new_job(context: ServerContext, who: Principal, body: NewJobBody, options: JobOptions) -> NewJob:
    if (task := await _declared_elsewhere(context, who, body.task)) is not None:
        limit = context.settings.arguments_limit
        # Its limits are read from the primary: a standby may not have them yet.
        return await context.change(task_rows.declared_job(task, body.arguments, options, limit))
    make_job = await context.job_maker(who)
    # Large arguments take a while to encode; the server handles other requests meanwhile.
    return await asyncio.to_thread(lambda: make_job(body.task, _encoded(body.arguments), options))


def _encoded(arguments: dict[str, Any]) -> bytes:
    return stored(arguments, lambda why: InvalidArguments(f"arguments: {why}"))


async def _open_to(context: ServerContext, who: Principal, wanted: JobFilter) -> JobFilter:
    """Return the filter without tasks that this user may not run; 403 for such a job named by its id."""
    allowed = await context.open_tasks(who)
    if allowed is None:
        return wanted
    if wanted.ids is not None:
        for task in (await context.read(jobs.count_retry(wanted))).by_task:
            check_task(task, allowed)
    return replace(wanted, tasks=sorted(allowed))


async def _begun(
    context: ServerContext, who: Principal, action: JobAction, body: BulkBody, wanted: JobFilter
) -> Response:
    def begin(total: BoundedCount | None) -> Operation[BulkOperation]:
        return bulk.begin(
            action, wanted, rate=body.rate, reason=body.reason, yes=body.all, total=total, actor=who.actor
        )

    return await begun(context, bulk.count_jobs(action, wanted), begin)


def _theirs(job_id: int, who: Principal) -> Operation[jobs.JobDetail]:
    try:
        found = yield from jobs.show(job_id)
    except JobNotFound:
        # For a tenant's user the same text as for a job of another tenant.
        raise (yield from gone("job", job_id, who)) from None
    check_theirs(who, found.job.tenant, f"job {job_id}")
    return found


def _would(tally: jobs.JobTally) -> BulkResponse:
    total = tally.total
    return BulkResponse(True, total.value, total.exact, tally.by_task, tally.by_queue, tally.by_tenant, [], [], [], [])


def _did(changed: jobs.ChangedJobs) -> BulkResponse:
    total = len(changed.done) + len(changed.stopping)
    return BulkResponse(False, total, True, {}, {}, {}, changed.done, changed.stopping, changed.left, changed.conflicts)
