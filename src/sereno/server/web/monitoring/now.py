"""Overview: whether all is well, what needs attention, what runs, and what is planned."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from sereno.bounded_count import BOUND
from sereno.jobs.filters import JobFilter, ScheduleFilter
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries import minute_stats
from sereno.jobs.queries.minute_stats import AttemptFigures, quantile
from sereno.monitoring.alerts.condition import AlertCondition, filled
from sereno.monitoring.alerts.current_conditions import current_conditions
from sereno.monitoring.snapshot import snapshot
from sereno.notifications.deliveries.figures import Funnel, funnel
from sereno.notifications.operations import list_events
from sereno.schedules import queries as schedules
from sereno.schedules.heatmap import Heatmap, heatmap
from sereno.server.shared.cache import Cached
from sereno.server.web.charts import svg
from sereno.server.web.charts.svg import ChartSeries, FunnelStage
from sereno.server.web.facets import toggled
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.schedules.schedule_rows import ScheduleTableRow, soonest
from sereno.server.web.times import clock

# Time ranges: seconds, and seconds per step of a chart.
RANGES = {"1h": (3600, 60), "6h": (21_600, 300), "24h": (86_400, 1200), "7d": (604_800, 7200)}
DAY = 86_400.0
# Seconds. A forecast reads all schedules: it is refreshed rarely, may run long, and no page waits for it.
FORECAST_SECONDS = 300.0
FORECAST_MOST_SECONDS = 20.0
FORECAST_TIMEOUT = 0.05
# A cell with this many times the median is highlighted.
CROWD = 8
NEWEST, EVENTS, SOONEST = 8, 6, 5
# The most of the soonest schedules that may be the engine's own.
OWN = 3


def routes(pages: PageRoutes) -> None:
    """The start page."""

    @pages.at("/", of_tenants=True)
    async def now(page: PageRequest) -> Response:
        if page.who.tenant is not None:
            return RedirectResponse(f"{page.base}tenant?{urlencode({'name': page.who.tenant})}", HTTPStatus.SEE_OTHER)
        wanted = page.query.get("range", "1h")
        since, step = RANGES.get(wanted, RANGES["1h"])
        context = page.context
        seen, conditions, figures, totals, count, newest, events, coming, soon = await asyncio.gather(
            page.load("snapshot", snapshot),
            page.load("attention", partial(current_conditions, context.settings), fresh=5.0),
            page.load(("minutes", since), partial(minute_stats.read, since, step=step)),
            page.load("funnel", partial(funnel, DAY), fresh=5.0),
            page.load("schedules", partial(schedules.count, ScheduleFilter(), BOUND), fresh=30.0),
            page.load("newest", partial(job_queries.list_jobs, JobFilter(), NEWEST)),
            page.load("newest events", partial(list_events, limit=EVENTS)),
            forecast(page),
            soonest(page, SOONEST + OWN),
        )
        return page.render(
            "now.html",
            seen=seen,
            conditions=conditions,
            ways=ways,
            condition_text=partial(_condition_text, page),
            sentence=_sentence(page, conditions.value),
            ranges=list(RANGES),
            range=wanted if wanted in RANGES else "1h",
            figures=figures,
            pictures=_pictures(page, figures.value or [], since, step, seen.value and seen.value.oldest_seconds),
            funnel=totals,
            funnel_picture=funnel_picture(page, totals.value),
            schedule_count=sum((count.value or {}).values()),
            is_capped=sum((count.value or {}).values()) >= BOUND,
            forecast=coming,
            heat=heat_picture(page, coming.value),
            crowd=crowd(coming.value),
            newest=newest,
            events=events,
            soonest=Cached(_of_people(soon.value), soon.age),
        )


def _of_people(lines: list[ScheduleTableRow] | None) -> list[ScheduleTableRow] | None:
    """Return the lines without the engine's own schedules."""
    return None if lines is None else [each for each in lines if not each.row.key.startswith("sereno.")][:SOONEST]


async def forecast(page: PageRequest, wanted: ScheduleFilter | None = None, span: float = DAY) -> Any:
    """Return the planned runs, refreshed rarely and in the background."""
    form = wanted or ScheduleFilter()
    return await page.load(
        ("forecast", span, str(form)),
        partial(heatmap, form, span),
        fresh=FORECAST_SECONDS,
        timeout=FORECAST_TIMEOUT,
        seconds=FORECAST_MOST_SECONDS,
    )


def _sentence(page: PageRequest, conditions: Sequence[AlertCondition] | None) -> str:
    """Return the headline: whether all is well."""
    if conditions is None:
        return page.say("The database does not respond in time.")
    if not conditions:
        return page.say("All is well.")
    if len(conditions) == 1:
        return page.say("One condition needs attention.")
    return page.say("%(count)s conditions need attention.", count=len(conditions))


def _condition_text(page: PageRequest, condition: AlertCondition) -> str:
    return filled(page.say(condition.sentence), condition.values)


def ways(condition: AlertCondition) -> list[tuple[str, str]]:
    """Return links to pages with details: a label and a path."""
    kind, values = condition.kind.partition(".")[0], condition.values
    if kind == "job":
        return [("show", "jobs?" + urlencode({"q": f"state:dead {_of_task(values)}"}))]
    if kind == "task":
        return [("show", "jobs?" + urlencode({"q": _of_task(values)}))]
    if kind == "order":
        return [("why", f"jobs?job={values.get('job', '')}")]
    if kind == "schedule":
        return [("why", "schedule?" + urlencode({"key": str(values.get("schedule", ""))}))]
    if kind == "tenant":
        return [("show", "tenant?" + urlencode({"name": str(values.get("tenant", ""))}))]
    pages = {"queue": "queues", "limit": "queues", "worker": "queues", "session": "queues", "channel": "channels"}
    return [("show", pages.get(kind, "system"))]


def _of_task(values: Mapping[str, str | int]) -> str:
    """Return the task quoted for a search."""
    return toggled((), "task", str(values.get("task", "")), negated=False)


def _pictures(
    page: PageRequest, figures: Sequence[AttemptFigures], since: int, step: int, oldest: float | None
) -> dict[str, Any]:
    """Draw finished attempts, and how long they waited and ran; a step without a figure had none."""
    by_time = {int(each.at.timestamp()): each for each in figures}
    last = int(page.now.timestamp()) // step * step
    places = range(last - since // step * step + step, last + step, step)
    time_format = "%H:%M" if since <= DAY else "%a %H:%M"
    steps = [
        clock(page.now + timedelta(seconds=place - page.now.timestamp()), page.zone, time_format) for place in places
    ]
    found = [by_time.get(place) for place in places]
    say = page.say
    ended = [
        ChartSeries(say("succeeded"), "ok", [each.succeeded if each else 0 for each in found]),
        ChartSeries(say("retried"), "retry", [each.retried if each else 0 for each in found]),
        ChartSeries(say("dead"), "dead", [each.dead if each else 0 for each in found]),
    ]
    whole = [each for each in found if each is not None]
    dashed = None if oldest is None else (say("oldest waiting"), oldest)
    total = sum(each.succeeded + each.retried + each.dead + each.cancelled + each.other for each in whole)
    return {
        "ended": svg.bars(steps, ended, say("Jobs that ended, by time")),
        "a_minute": total * 60 / since,
        "waited": svg.lines(steps, _quantiles(found, "waits"), say("How long jobs waited"), oldest=dashed),
        "ran": svg.lines(steps, _quantiles(found, "runs"), say("How long jobs ran")),
        "wait": quantile(_total(whole, "waits"), 0.95),
        "run": quantile(_total(whole, "runs"), 0.95),
    }


def _quantiles(found: Sequence[AttemptFigures | None], what: str) -> list[ChartSeries]:
    return [
        ChartSeries(name, kind, [quantile(getattr(each, what), share) if each else None for each in found])
        for name, kind, share in (("p50", "p50", 0.5), ("p95", "p95", 0.95))
    ]


def _total(found: Sequence[AttemptFigures], what: str) -> list[int]:
    columns = [getattr(each, what) for each in found]
    return [sum(column) for column in zip(*columns, strict=False)] if columns else []


def funnel_picture(page: PageRequest, totals: Funnel | None) -> str:
    """Draw the stages from matched to read."""
    if totals is None:
        return ""
    stages = [
        FunnelStage(page.say(name), kind, getattr(totals, name))
        for name, kind in (
            ("matched", "accent"),
            ("eligible", "accent"),
            ("sent", "ok"),
            ("delivered", "ok"),
            ("read", "ok"),
        )
    ]
    return svg.funnel(stages, page.say("Deliveries of the last 24 hours"))


def heat_picture(page: PageRequest, coming: Heatmap | None, columns: int = 24) -> str:
    """Draw a column for each hour (or part of a day), its cells from top to bottom."""
    if coming is None or not coming.cells:
        return ""
    size = max(1, len(coming.cells) // columns)
    # The last cell may be incomplete: the time is rarely a multiple of five minutes.
    groups = [coming.cells[start : start + size] for start in range(0, columns * size, size)]
    names = [clock(group[0].at, page.zone, "%H:%M" if columns == 24 else "%a") for group in groups]  # noqa: PLR2004 - hours
    cells = [
        [
            (
                page.say("%(at)s %(count)s fires", at=clock(cell.at, page.zone, "%a %H:%M"), count=figure(cell.fires)),
                cell.fires,
            )
            for cell in group
        ]
        for group in groups
    ]
    return svg.heat(names, cells, page.say("Planned runs"), page.say("fires in five minutes"))


def crowd(coming: Heatmap | None) -> tuple[Any, float] | None:
    """Return the busiest five minutes, where they stand out."""
    if coming is None or not coming.cells:
        return None
    fires = sorted(cell.fires for cell in coming.cells)
    top = max(coming.cells, key=lambda cell: cell.fires)
    middle = max(1.0, fires[len(fires) // 2])
    return (top.at, top.fires) if top.fires > CROWD * middle and top.fires >= 100 else None  # noqa: PLR2004 - few do no harm
