"""Tenants as a person sees them: all of them by what they take, and everything of one in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.jobs import minute_stats
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.minute_stats import TenantFigures
from sereno.monitoring import tenant_queries
from sereno.monitoring.tenant_queries import Sort, TenantHour, TenantLimiter, TenantLine, TenantState
from sereno.schedules import store as schedules
from sereno.schedules.store import ScheduleRow
from sereno.search.sql_terms import SearchParams
from sereno.text import check_text

DAY = 86_400.0
# As long as minutes are kept, by which the whole house is measured.
LONGEST = 7 * DAY
# A list goes no further: whoever looks for one has its name.
DEEPEST = 10_000
TOP = 10
# Schedules on the page of a tenant: those that failed, those that are due next.
MOST_SCHEDULES = 200
SHOWN_SCHEDULES = 8


@dataclass(frozen=True, slots=True)
class TenantDetail:
    """One tenant. `figures`: None where nothing was done for it. `hours`: with the whole house beside it.

    `states`: of its newest jobs. `schedules`: by state; `failing`: those whose last run failed, of the first two
    hundred; `coming`: those that are due next.
    """

    name: str
    standing: TenantState
    figures: TenantFigures | None
    hours: Sequence[TenantHour]
    states: Mapping[str, int]
    schedules: Mapping[str, int]
    failing: Sequence[ScheduleRow]
    coming: Sequence[ScheduleRow]
    limiters: Sequence[TenantLimiter]


def list_tenants(
    *,
    since: float = DAY,
    part: str | None = None,
    search_params: SearchParams | None = None,
    sort: Sort = "seconds",
    limit: int = 50,
    skip: int = 0,
) -> Operation[list[TenantLine]]:
    """Those for whom something was done, or who are stopped; the busiest first. `search_params`: what a search asks."""
    check_text("tenant", part)
    check_span(since)
    if not 0 <= skip <= DEEPEST:
        raise InvalidArguments(f"a list of tenants goes to {DEEPEST:,}: look for a name")
    return tenant_queries.list_tenants(since, part=part, search_params=search_params, sort=sort, limit=limit, skip=skip)


def hours(*, since: float = DAY, most: int = TOP) -> Operation[list[TenantHour]]:
    """Seconds of work by the hour for those who had most, and for everybody."""
    check_span(since)
    return tenant_queries.hours(since, most=most)


def show(name: str, *, since: float = DAY) -> Operation[TenantDetail]:
    """Everything of one; there is always something to say of a name, be it that nobody knows it."""
    check_text("tenant", name)
    check_span(since)
    wanted = ScheduleFilter(tenant=name)
    figures = yield from minute_stats.tenants(since, tenant=name, most=1)
    first = yield from schedules.page(wanted, MOST_SCHEDULES)
    return TenantDetail(
        name,
        standing=(yield from tenant_queries.standing(name)),
        figures=figures[0] if figures else None,
        hours=(yield from tenant_queries.hours(since, tenant=name)),
        states=(yield from tenant_queries.states(name)),
        schedules=(yield from schedules.count(wanted, tenant_queries.SCHEDULE_BOUND)),
        failing=[row for row in first if row.failed_in_row][:SHOWN_SCHEDULES],
        coming=(yield from schedules.soonest(wanted, SHOWN_SCHEDULES)),
        limiters=(yield from tenant_queries.limiters(name)),
    )


def check_span(since: float) -> None:
    if not 0 < since <= LONGEST:
        raise InvalidArguments(f"since {since:g}: the work of tenants can be seen for {LONGEST:g} seconds")
