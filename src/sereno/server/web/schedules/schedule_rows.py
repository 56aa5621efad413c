"""Rows of schedules with their last runs as dots: for the list, and for other pages that show a few of them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from sereno.jobs.filters import ScheduleFilter
from sereno.schedules.list_pages import ScheduleLine, lines
from sereno.schedules.rows import FireRow, ScheduleRow
from sereno.server.shared.cache import Cached
from sereno.server.web.charts.run_dots import RunDot, run_dots
from sereno.server.web.page_request import PageRequest
from sereno.server.web.schedules.rule_text import rule_words, zone_of
from sereno.server.web.times import clock, length

# The colour of a run by its outcome; a waiting one has none.
KINDS = {"succeeded": "ok", "dead": "dead", "running": "accent", "cancelled": "skip", "skipped": "skip"}
# The colour of a schedule's state.
SHADES = {"enabled": "ok", "paused": "paused", "disabled": "off", "parked": "bad", "finished": "off"}


@dataclass(frozen=True, slots=True)
class ScheduleTableRow:
    """A row. `failed`: the error of its last run; None where it did not fail."""

    row: ScheduleRow
    href: str
    when: str
    zone: str
    state: str
    shade: str
    dots: Markup
    next: datetime | None
    failed: str | None


async def soonest(page: PageRequest, n: int = 5) -> Cached[list[ScheduleTableRow]]:
    """Return the schedules that are due next, for `_schedule_rows.html` as `lines`."""
    wanted = ScheduleFilter(tenant=page.tenant)
    seen = await page.load(
        ("schedules soonest", page.tenant, n), partial(lines, wanted, limit=n, soonest=True), fresh=2.0
    )
    return Cached(None if seen.value is None else [line_of(page, each) for each in seen.value.items], seen.age)


def line_of(page: PageRequest, found: ScheduleLine) -> ScheduleTableRow:
    row = found.row
    state = state_of(row, page.now)
    return ScheduleTableRow(
        row,
        f"{page.base}schedule?{urlencode({'key': row.key})}",
        rule_words(page, row.rule, zone=False),
        zone_of(row.rule),
        state,
        SHADES.get(state, "off"),
        dots(page, found.runs),
        next_of(row, state),
        (row.last_error or "dead") if row.failed_in_row else None,
    )


def state_of(row: ScheduleRow, now: datetime) -> str:
    """Return the state; paused until a time counts as paused."""
    paused = row.state == "enabled" and row.paused_until is not None and row.paused_until > now
    return "paused" if paused else row.state


def next_of(row: ScheduleRow, state: str) -> datetime | None:
    """Return the next run; before the scheduler has planned it, the column holds when to plan it instead."""
    return row.next_run_at if row.planned and state == "enabled" else None


def dots(page: PageRequest, runs: list[FireRow]) -> Markup:
    """Draw the runs, the newest last."""
    marks = [RunDot(kind_of(run), run_words(page, run), _job(page, run)) for run in reversed(runs)]
    good = sum(run.state == "succeeded" for run in runs)
    label = page.say("Last %(count)s runs: %(good)s succeeded", count=len(runs), good=good)
    return run_dots(marks, label)


def kind_of(run: FireRow) -> str:
    """Return the colour; amber for more than one attempt."""
    if run.state == "succeeded" and run.attempt > 1:
        return "retry"
    return KINDS.get(run.state, "wait")


def run_words(page: PageRequest, run: FireRow) -> str:
    """Return the tooltip: when, the outcome, and the run time or the reason."""
    parts = [clock(run.planned_at or run.fired_at, page.zone, "%a %d %b %H:%M"), page.say(run.state)]
    if run.reason is not None:
        parts.append(page.say(run.reason))
    if (took := took_of(run)) is not None:
        parts.append(length(took.total_seconds()))
    if run.attempt > 1:
        parts.append(page.say("try %(number)s", number=run.attempt))
    return " · ".join(parts)


def took_of(run: FireRow) -> timedelta | None:
    if run.started_at is None or run.finished_at is None:
        return None
    return run.finished_at - run.started_at


def late_of(run: FireRow) -> float | None:
    """Return the seconds from the planned instant to the start; None for a run that never started."""
    if run.planned_at is None or run.reason is not None:
        return None
    began: Any = run.started_at if run.attempt <= 1 and run.started_at is not None else run.fired_at
    return max(0.0, float((began - run.planned_at).total_seconds()))


def _job(page: PageRequest, run: FireRow) -> str | None:
    return None if run.job_id is None else f"{page.base}jobs?job={run.job_id}"
