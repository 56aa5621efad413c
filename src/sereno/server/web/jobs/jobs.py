"""Jobs: a list with search and facets, details of one of them, and bulk actions."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias, TypeVar

from starlette.responses import Response

from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.statement import Operation
from sereno.jobs.filters import JobFilter
from sereno.jobs.lifecycle import LIVE, STATES
from sereno.jobs.operations import JobPage, list_jobs
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries import minute_stats
from sereno.jobs.queries.minute_stats import TenantFigures
from sereno.jobs.queries.queues import QueueLine
from sereno.jobs.queries.rows import JobLine, TaskLine
from sereno.jobs.queries.search import JOB_FIELDS, WINDOW, jobs_wanted
from sereno.monitoring.snapshot import SystemSnapshot, snapshot_and_queues
from sereno.search.syntax import SearchTerm
from sereno.server.shared.error_masking import sees_all
from sereno.server.shared.tenant_scope import their_tenant
from sereno.server.web import cursor
from sereno.server.web.command_examples import copies
from sereno.server.web.facets import Facet, facets, left_out, toggled
from sereno.server.web.jobs.group_panel import group_panel
from sereno.server.web.jobs.job_drawer import drawer
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.search_form import SearchForm, filter_params

T = TypeVar("T")
Values: TypeAlias = list[tuple[str, BoundedCount | None]]

ROWS = 50
# Values of each facet.
MOST_VALUES = 10
# Values of each facet including those of the jobs on the page.
MOST_SHOWN = 15
MOST_RUNNING = 500
DAY = 86_400.0
# Seconds: counts of facets change slowly, and a page does not wait for them.
FACETS_FRESH = 30.0
FACETS_TIMEOUT = 0.3


def routes(pages: PageRoutes) -> None:
    """`/jobs`."""

    @pages.at("/jobs", of_tenants=True)
    async def jobs(page: PageRequest) -> Response:
        form = _search(page)
        before = cursor.number(page.query.get("before"))
        found, running, opened, parts, group = await asyncio.gather(
            _listed(page, form, before),
            page.load("running now", partial(job_queries.running_now, MOST_RUNNING)),
            drawer(page, page.query["job"]) if page.query.get("job") else _nothing(),
            _context(page),
            group_panel(page, form.wanted),
        )
        lines = found.value.items if found and found.value else []
        return page.render(
            "jobs.html",
            form=form,
            is_everything=_is_everything(form),
            is_among_newest=form.wanted is not None and form.wanted.window is not None,
            found=found,
            lines=lines,
            next=found.value.next if found and found.value else None,
            progress={each.id: each for each in running.value or []},
            took=partial(_took, page.now),
            drawer=opened,
            sentence=_sentence(page, form, found.value if found else None, parts),
            context=parts,
            group=group,
            facets=_facets(form.terms, lines, parts),
            chips=[(str(term), left_out(form.terms, place)) for place, term in enumerate(form.terms)],
            bulk=_bulk_body(page, form),
            copies=_copies(page, form),
            among=WINDOW,
            about=partial(toggled, (), negated=False),
        )


def _search(page: PageRequest) -> SearchForm[JobFilter]:
    """Return the search in the query, limited to the user's tenant."""
    named = JobFilter(tenant=page.query.get("tenant") or None)
    form = filter_params(page, JOB_FIELDS, lambda text, now: jobs_wanted(text, now).both(named))
    if form.wanted is None:
        return form
    theirs = their_tenant(page.who, form.wanted.tenant)
    wanted = replace(form.wanted, tenant=theirs, masked=not sees_all(page.who))
    is_found_by_index = any(
        each is not None for each in (wanted.ids, wanted.schedules, wanted.fingerprint, wanted.group)
    )
    if wanted.tenant is not None and not is_found_by_index:
        # A tenant may have few jobs among many: the list searches no further than any search does.
        wanted = replace(wanted, window=wanted.window or WINDOW)
    return replace(form, wanted=wanted)


def _is_everything(form: SearchForm[JobFilter]) -> bool:
    return form.wanted is not None and not form.terms and form.wanted.tenant is None


async def _listed(page: PageRequest, form: SearchForm[JobFilter], before: int | None) -> Any:
    """Return the page of jobs; None for an invalid search."""
    if form.wanted is None:
        return None
    wanted = form.wanted
    key = ("jobs", form.text, wanted.tenant, before)
    return await page.load(key, partial(list_jobs, wanted, limit=ROWS, before=before))


async def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class JobListParts:
    """Figures of all tenants; empty for users of one tenant."""

    snapshot: SystemSnapshot | None = None
    queues: Sequence[QueueLine] = ()
    tasks: Sequence[TaskLine] = ()
    tenants: Sequence[TenantFigures] = ()


async def _context(page: PageRequest) -> JobListParts:
    if page.who.tenant is not None:
        return JobListParts()

    async def seldom(key: str, operation: Callable[[], Operation[T]]) -> T | None:
        return (await page.load(key, operation, fresh=FACETS_FRESH, timeout=FACETS_TIMEOUT)).value

    seen, tasks, tenants = await asyncio.gather(
        page.load("snapshot and queues", snapshot_and_queues),
        seldom("by task", job_queries.by_task),
        seldom("tenants of a day", partial(minute_stats.tenants, DAY, most=MOST_VALUES)),
    )
    figures, queues = seen.value or (None, [])
    return JobListParts(figures, queues, tasks or [], tenants or [])


def _sentence(page: PageRequest, form: SearchForm[JobFilter], listed: JobPage | None, parts: JobListParts) -> str:
    """Return the headline."""
    if form.problem is not None:
        return page.say("The search is invalid.")
    if listed is None:
        return page.say("The database does not respond in time.")
    if _is_everything(form) and parts.snapshot is not None:
        dead = parts.snapshot.dead
        if dead.value == 0:
            return page.say("No dead jobs.")
        if dead.value == 1:
            return page.say("One dead job needs attention.")
        return page.say("%(count)s dead jobs need attention.", count=shown(dead))
    if cursor.number(page.query.get("before")) is not None:
        return page.say("Older jobs.")
    if not form.terms and listed.items:
        return page.say("The newest jobs.")
    if listed.next is not None:
        return page.say("More than %(count)s jobs match: the newest are shown.", count=len(listed.items))
    if len(listed.items) == 1:
        return page.say("One job matches.")
    return page.say("%(count)s jobs match.", count=len(listed.items)) if listed.items else page.say("No job matches.")


def _facets(
    terms: Sequence[SearchTerm], lines: Sequence[JobLine], parts: JobListParts
) -> list[tuple[str, list[Facet]]]:
    """Return facets with counts from bounded queries or rollups; else without, from the jobs of this page."""
    here: dict[str, Values] = {
        name: [(value, None) for value in dict.fromkeys(values) if value]
        for name, values in (
            ("queue", [line.queue for line in lines]),
            ("task", [line.task for line in lines]),
            ("tag", [tag for line in lines for tag in line.tags or ()]),
        )
    }
    queues = [(line.queue, total([line.waiting, line.scheduled, line.ready, line.running])) for line in parts.queues]
    tasks = [(line.task, _of_task(line)) for line in parts.tasks]
    tenants = [(line.tenant, BoundedCount(line.ended)) for line in parts.tenants]
    named: dict[str, Values] = {
        "state": [(state, count) for state, count in zip(STATES, _of_states(parts), strict=True)],
        "queue": _joined(_largest(queues), here["queue"]),
        "task": _joined(_largest(tasks), here["task"]),
        "tenant": _largest(tenants),
        "tag": here["tag"],
    }
    return [(name, facets(terms, name, values[:MOST_SHOWN])) for name, values in named.items() if values]


def _of_states(parts: JobListParts) -> list[BoundedCount | None]:
    """Return counts in the order of STATES. Succeeded and cancelled jobs are not counted."""
    if parts.snapshot is None:
        return [None] * len(STATES)
    live = {name: total(getattr(line, name) for line in parts.queues) for name in LIVE}
    return [{**live, "dead": parts.snapshot.dead}.get(state) for state in STATES]


def _of_task(line: TaskLine) -> BoundedCount:
    return BoundedCount(line.waiting + line.running + line.succeeded + line.cancelled + line.dead)


def _largest(values: Iterable[tuple[str, BoundedCount]]) -> Values:
    return [(name, count) for name, count in sorted(values, key=lambda each: (-each[1].value, each[0]))]


def _joined(counted: Values, others: Values) -> Values:
    """Return the counted values, then the others on the page."""
    known = {name for name, _ in counted}
    return [*counted[:MOST_VALUES], *(each for each in others if each[0] not in known)]


def total(counts: Iterable[BoundedCount]) -> BoundedCount:
    """Return the sum, and whether it is exact."""
    several = list(counts)
    value = sum(count.value for count in several)
    return BoundedCount(min(value, BOUND), value <= BOUND and all(count.exact for count in several))


def shown(count: BoundedCount) -> str:
    """Return a number such as 10 000+ where the count stopped."""
    return figure(count.value) + ("" if count.exact else "+")


def _took(now: datetime, line: JobLine) -> float | None:
    if line.started_at is None:
        return None
    return max(0.0, ((line.finished_at or now) - line.started_at).total_seconds())


def _bulk_body(page: PageRequest, form: SearchForm[JobFilter]) -> dict[str, Any]:
    """Return the selection of all that match, as the API takes it."""
    tenant = page.query.get("tenant")
    return {"q": form.text, **({"tenant": tenant} if tenant else {})}


def _copies(page: PageRequest, form: SearchForm[JobFilter]) -> dict[str, str]:
    tenant = page.query.get("tenant") or None
    words = ["job", "list", *(["--tenant", tenant] if tenant else []), *(["--", form.text] if form.text else [])]
    return copies(page, cli=words, path="jobs", query={"q": form.text, "tenant": tenant})
