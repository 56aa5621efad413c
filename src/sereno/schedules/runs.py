"""Recent runs of a page of schedules in one statement, the last job of one, and counts by state up to a bound."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sereno.database.statement import Operation, Statement, queries
from sereno.errors import JobNotFound
from sereno.jobs import operations as jobs
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.lifecycle import LIVE
from sereno.schedules.operations import ScheduleDetail
from sereno.schedules.rows import FireRow

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


def last_job(detail: ScheduleDetail) -> Operation[jobs.JobDetail | None]:
    """Return the job of the last run, preferring an active one; None if there is none, or if it was deleted."""
    live = [fire.job_id for fire in detail.fires if fire.reason is None and fire.state in LIVE]
    wanted = detail.schedule.last_job_id
    if live and wanted not in live:
        wanted = live[0]
    if wanted is None:
        return None
    try:
        return (yield from jobs.show(wanted))
    except JobNotFound:
        return None


def tally(wanted: ScheduleFilter, bound: int) -> Operation[list[StateCount]]:
    """Count by state, up to a bound."""
    rows = yield Statement(_sql["tally"], wanted.params() | {"bound": bound})
    return [StateCount(row[0], int(row[1]), int(row[2])) for row in rows]


def counts_text(counts: Mapping[str, int | float]) -> str:
    """Return the number fields of a result as text: found 12 · new 3."""
    return " · ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:,.6g}" for name, value in counts.items()
    )
