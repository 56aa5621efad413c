"""Tenants for display: a list by usage, and the details of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.queries import minute_stats
from sereno.jobs.queries.minute_stats import TenantFigures
from sereno.monitoring import tenant_queries
from sereno.monitoring.tenant_queries import Sort, TenantHour, TenantLimiter, TenantLine, TenantState
from sereno.schedules import queries as schedules
from sereno.schedules.rows import ScheduleRow
from sereno.search.sql_terms import SearchParams
from sereno.text import check_text

DAY = 86_400.0
# Seconds: the retention of minute statistics, by which the total is measured.
LONGEST = 7 * DAY
# Last row that paging can reach; search by name beyond it.
DEEPEST = 10_000
TOP = 10
# Schedules that are read, and those that the page of a tenant shows as failing or due next.
MOST_SCHEDULES = 200
SHOWN_SCHEDULES = 8


@dataclass(frozen=True, slots=True)
class TenantDetail:
    """One tenant. `figures`: None without any work. `hours`: with the total.

    `states`: of its newest jobs. `schedules`: counts by state; `failing`: schedules whose last run failed, among the
    first two hundred; `coming`: schedules that are due next.
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
    """Return tenants with recent work or a pause, busiest first. `search_params`: the terms of a search."""
    check_text("tenant", part)
    check_span(since)
    if not 0 <= skip <= DEEPEST:
        raise InvalidArguments(f"a list of tenants ends at {DEEPEST:,}: search for a name")
    return tenant_queries.list_tenants(since, part=part, search_params=search_params, sort=sort, limit=limit, skip=skip)


def hours(*, since: float = DAY, most: int = TOP) -> Operation[list[TenantHour]]:
    """Return the seconds of work by hour for the tenants with most work, and in total."""
    check_span(since)
    return tenant_queries.hours(since, most=most)


def show(name: str, *, since: float = DAY) -> Operation[TenantDetail]:
    """Return the details of a tenant. An unknown name is no error: its details are empty."""
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
        raise InvalidArguments(f"since {since:g}: the work of tenants is retained for {LONGEST:g} seconds")
