"""Pages of schedules with their last runs, for lists on a screen."""

from dataclasses import dataclass
from datetime import datetime

from sereno.bounded_count import BOUND
from sereno.database.statement import Operation
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules import queries
from sereno.schedules import runs as schedule_runs
from sereno.schedules.lists import list_schedules
from sereno.schedules.rows import FireRow, ScheduleRow
from sereno.schedules.runs import StateCount

# Runs shown per schedule, the newest last.
RUNS = 30
# Schedules in the list of those that are due next.
SOONEST = 6


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """A schedule, and its newest instants, the newest first."""

    row: ScheduleRow
    runs: list[FireRow]


@dataclass(frozen=True, slots=True)
class ScheduleLines:
    """One page of a list; `next` is the cursor of the page after it."""

    items: list[ScheduleLine]
    now: datetime
    next: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleSum:
    """How many schedules there are, how many need attention, which are due next. `exact`: the count hit no bound."""

    total: int
    exact: bool
    by_state: dict[str, int]
    troubled: int
    soonest: list[ScheduleRow]


def lines(
    wanted: ScheduleFilter, *, limit: int, after: str = "", soonest: bool = False, runs: int = RUNS
) -> Operation[ScheduleLines]:
    """Return a page by key or by due time, with two statements for any number of schedules."""
    page = yield from list_schedules(wanted, limit=limit, after=after, soonest=soonest)
    found = yield from schedule_runs.newest([row.id for row in page.items], runs)
    return ScheduleLines([ScheduleLine(row, found[row.id]) for row in page.items], page.now, page.next)


def summary(wanted: ScheduleFilter) -> Operation[ScheduleSum]:
    """Return counts, up to a bound, and the schedules that are due next."""
    found: list[StateCount] = yield from schedule_runs.tally(wanted, BOUND)
    soonest = yield from queries.soonest(wanted, SOONEST)
    total = sum(each.number for each in found)
    by_state = {each.state: each.number for each in found}
    troubled = sum(each.troubled for each in found)
    return ScheduleSum(total, total < BOUND, by_state, troubled, soonest)
