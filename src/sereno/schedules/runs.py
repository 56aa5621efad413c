"""Recent runs of a whole page of schedules in one statement, and counts by state up to a bound."""

from collections.abc import Sequence
from typing import NamedTuple

from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules.store import FireRow

_sql = queries("schedules/runs")


class StateCount(NamedTuple):
    """How many schedules are in a state, and how many of them need attention."""

    state: str
    number: int
    troubled: int


def newest(schedules: Sequence[int], limit: int) -> Operation[dict[int, list[FireRow]]]:
    """Return the newest instants of each schedule by its id, the newest first."""
    found: dict[int, list[FireRow]] = {schedule: [] for schedule in schedules}
    if schedules and limit:
        rows = yield Statement(_sql["newest"], {"ids": list(schedules), "limit": limit})
        for schedule, *rest in rows:
            found[schedule].append(FireRow(*rest))
    return found


def tally(wanted: ScheduleFilter, bound: int) -> Operation[list[StateCount]]:
    """Count by state, up to a bound."""
    rows = yield Statement(_sql["tally"], wanted.params() | {"bound": bound})
    return [StateCount(row[0], int(row[1]), int(row[2])) for row in rows]
