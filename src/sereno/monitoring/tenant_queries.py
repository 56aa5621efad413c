"""Tenants: who has how much of the house, and how one of them stands. Every look has a bound."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.search.sql_terms import SearchParams, like_exactly

_sql = queries("monitoring/tenant_queries")

Sort = Literal["seconds", "jobs", "failed", "deliveries", "name"]

# Of one tenant's schedules, so many are counted.
SCHEDULE_BOUND = 1000
# Jobs of one tenant are looked for among so many of the newest: live, dead, and ended otherwise.
WINDOW = 10_000
MOST_GATES = 20


@dataclass(frozen=True, slots=True)
class TenantLine:
    """What was done for a tenant in a span. `house`: seconds of work for everybody. `schedules`: up to a bound."""

    tenant: str
    ended: int
    failed: int
    seconds: float
    deliveries: int
    paused_at: datetime | None
    house: float
    weight: float | None
    schedules: int

    @property
    def share(self) -> float:
        """Of all the work that was done, from 0 to 1."""
        return min(1.0, self.seconds / self.house) if self.house > 0 else 0.0


class TenantHour(NamedTuple):
    """Seconds of work in the hour that began then; for everybody, where there is no name."""

    at: datetime
    tenant: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class TenantState:
    """Whether it is stopped, by whom and why; what it weighs, if that is not 1."""

    paused_at: datetime | None
    paused_by: str | None
    note: str | None
    weight: float | None


@dataclass(frozen=True, slots=True)
class TenantLimiter:
    """Its own part of a limit that is kept by tenant."""

    name: str
    kind: str
    slots: int | None
    units: float | None
    period: float | None
    burst: float | None
    taken: int
    closed_until: datetime | None

    @property
    def numbers(self) -> dict[str, float | int | None]:
        if self.kind == "slots":
            return {"slots": self.slots}
        return {"units": self.units, "period": self.period, "burst": self.burst}


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
    """Who had work done or was told something in the last so many seconds, and who is stopped. `part`: of a name."""
    pattern = f"%{like_exactly(part)}%" if part else None
    given = {"since": since, "pattern": pattern, "sort": sort, "limit": limit, "skip": skip, "bound": SCHEDULE_BOUND}
    given["terms"] = None if search_params is None else search_params.terms
    return [_line.decode(row[0]) for row in (yield Statement(_sql["list"], given))]


def hours(since: float, *, tenant: str | None = None, most: int = 10) -> Operation[list[TenantHour]]:
    """For those who had most, or for one, and for everybody; the oldest first."""
    rows = yield Statement(_sql["hours"], {"since": since, "tenant": tenant, "most": most})
    return [TenantHour(*row) for row in rows]


def states(tenant: str) -> Operation[Mapping[str, int]]:
    """How many of its jobs are in each state, among the newest."""
    rows = yield Statement(_sql["states"], {"tenant": tenant, "window": WINDOW})
    return dict(rows)


def standing(tenant: str) -> Operation[TenantState]:
    rows = yield Statement(_sql["standing"], {"tenant": tenant})
    return _standing.decode(rows[0][0])


def limiters(tenant: str) -> Operation[list[TenantLimiter]]:
    rows = yield Statement(_sql["limiters"], {"tenant": tenant, "most": MOST_GATES})
    return [_limiter.decode(row[0]) for row in rows]
