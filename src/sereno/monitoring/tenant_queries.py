"""Queries about tenants: the share of each in the total work, and the state of one. Every query is bounded."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.limits.rows import LimitNumbers
from sereno.jobs.queries.minute_stats import TenantFigures
from sereno.search.sql_terms import SearchParams, like_exactly

_sql = queries("monitoring/tenant_queries")

Sort = Literal["seconds", "jobs", "failed", "deliveries", "name"]

# Schedules of one tenant are counted up to this number.
SCHEDULE_BOUND = 1000
# Newest live, dead and otherwise finished jobs that are searched for those of one tenant.
WINDOW = 10_000
MOST_LIMITERS = 20


@dataclass(frozen=True, slots=True)
class TenantLine(TenantFigures):
    """One tenant. `share`: of the run time of all jobs, from 0 to 1. `schedules`: counted up to a thousand."""

    share: float
    deliveries: int
    schedules: int
    paused_at: datetime | None
    weight: float


class TenantHour(NamedTuple):
    """Seconds of work in the hour that starts at `at`; the total where `tenant` is None."""

    at: datetime
    tenant: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class TenantState:
    """The pause of a tenant, if any; and its weight, if that is not 1."""

    paused_at: datetime | None
    paused_by: str | None
    note: str | None
    weight: float | None


class TenantLimiter(LimitNumbers, kw_only=True):
    """The limiter of a tenant in a limit that counts by tenant."""

    taken: int
    closed_until: datetime | None


_line = msgspec.json.Decoder(TenantLine)
_standing = msgspec.json.Decoder(TenantState)
_limiter = msgspec.json.Decoder(TenantLimiter)


def list_tenants(
    since: float,
    *,
    part: str | None = None,
    search_params: SearchParams | None = None,
    sort: Sort = "seconds",
    limit: int = 50,
    skip: int = 0,
) -> Operation[list[TenantLine]]:
    """Return tenants with jobs or deliveries in the last `since` seconds, or with a pause. `part`: part of a name."""
    pattern = f"%{like_exactly(part)}%" if part else None
    given = {"since": since, "pattern": pattern, "sort": sort, "limit": limit, "skip": skip, "bound": SCHEDULE_BOUND}
    given["terms"] = None if search_params is None else search_params.terms
    return [_line.decode(row[0]) for row in (yield Statement(_sql["list"], given))]


def hours(since: float, *, tenant: str | None = None, most: int = 10) -> Operation[list[TenantHour]]:
    """Return the hours of the tenants with most work, or of one, and of the total; oldest first."""
    rows = yield Statement(_sql["hours"], {"since": since, "tenant": tenant, "most": most})
    return [TenantHour(*row) for row in rows]


def states(tenant: str) -> Operation[Mapping[str, int]]:
    """Return how many of the tenant's newest jobs are in each state."""
    rows = yield Statement(_sql["states"], {"tenant": tenant, "window": WINDOW})
    return dict(rows)


def standing(tenant: str) -> Operation[TenantState]:
    rows = yield Statement(_sql["standing"], {"tenant": tenant})
    return _standing.decode(rows[0][0])


def limiters(tenant: str) -> Operation[list[TenantLimiter]]:
    rows = yield Statement(_sql["limiters"], {"tenant": tenant, "most": MOST_LIMITERS})
    return [_limiter.decode(row[0]) for row in rows]
