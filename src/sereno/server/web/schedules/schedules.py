"""Schedules: how many, which fail, upcoming runs, and each schedule with its last runs."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any

from starlette.responses import Response

from sereno.jobs.filters import ScheduleFilter
from sereno.monitoring.alerts.condition import AlertCondition, filled
from sereno.monitoring.alerts.current_conditions import current_conditions
from sereno.schedules.heatmap import Heatmap
from sereno.schedules.list_pages import ScheduleLines, ScheduleSum, lines, summary
from sereno.schedules.queries import WINDOW
from sereno.schedules.rows import ScheduleRow
from sereno.schedules.search_fields import SCHEDULE_FIELDS
from sereno.search.sql_terms import SearchParams
from sereno.server.shared.cache import Cached
from sereno.server.web.charts.week_heat import HOURS, HeatHour, week_heat
from sereno.server.web.command_examples import copies
from sereno.server.web.monitoring.now import DAY, crowd, forecast, heat_picture, ways
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.schedules import schedule_page
from sereno.server.web.schedules.new_schedule import new_schedule
from sereno.server.web.schedules.rule_text import rule_words
from sereno.server.web.schedules.schedule_rows import line_of, next_of, state_of
from sereno.server.web.search_form import SearchForm, search_params_for
from sereno.text import check_text

PAGE = 50
SPANS = {"24h": DAY, "7d": 7 * DAY}
STATES = ("enabled", "paused", "disabled", "parked", "finished")
MOST_CONDITIONS = 5


def routes(pages: PageRoutes) -> None:
    """`/schedules`, and `/schedule?key=…`."""
    schedule_page.routes(pages)

    @pages.at("/schedules", of_tenants=True)
    async def schedules(page: PageRequest) -> Response:
        named, after = _named(page), page.query.get("after", "")
        form = search_params_for(page, SCHEDULE_FIELDS)
        wanted = replace(named, search_params=form.wanted)
        check_text("after", after or None)
        span = page.query.get("span") if page.query.get("span") in SPANS else "24h"
        seen, found, conditions, coming = await asyncio.gather(
            _listed(page, form, wanted, after),
            # Without the search: a search is no reason to count all schedules.
            page.load(("schedules sum", repr(named)), partial(summary, named), fresh=5.0),
            page.load(
                ("attention", page.tenant),
                partial(current_conditions, page.context.settings, tenant=page.tenant),
                fresh=5.0,
            ),
            # By tenant only: the forecast reads all schedules and must not run for every search.
            forecast(page, ScheduleFilter(tenant=page.tenant), SPANS[str(span)]),
        )
        return page.render(
            "schedules.html",
            form=form,
            among=WINDOW,
            sentence=_search_sentence(page, form, seen.value, after)
            if form.text
            else _sentence(page, found.value, is_filtered=_is_filtered(page)),
            is_filtered=_is_filtered(page),
            found=found,
            soonest=_soonest(page, found.value),
            conditions=[each for each in conditions.value or () if each.kind.startswith("schedule")][:MOST_CONDITIONS],
            condition_text=partial(_condition_text, page),
            ways=ways,
            words_of=partial(rule_words, page),
            seen=seen,
            lines=[line_of(page, each) for each in seen.value.items] if seen.value else [],
            next=seen.value.next if seen.value else None,
            forecast=coming,
            span=span,
            spans=list(SPANS),
            heat=_heat(page, coming.value, str(span)),
            crowd=crowd(coming.value),
            states=STATES,
            state=page.query.get("state", ""),
            bulk=_bulk(wanted),
            copies=_copies(page, wanted),
            **new_schedule(page),
        )


def _named(page: PageRequest) -> ScheduleFilter:
    """Return the filter in the query, without its search."""
    task, state = page.query.get("task") or None, page.query.get("state")
    for name, value in (("task", task), ("tenant", page.tenant)):
        check_text(name, value)
    return ScheduleFilter(task=task, tenant=page.tenant, states=(state,) if state in STATES else None)


async def _listed(
    page: PageRequest, form: SearchForm[SearchParams | None], wanted: ScheduleFilter, after: str
) -> Cached[ScheduleLines]:
    """Return the rows; none for an invalid search, without a query."""
    if form.problem is not None:
        return Cached(ScheduleLines([], page.now))
    key = ("schedules", repr(replace(wanted, search_params=None)), after, form.text)
    return await page.load(key, partial(lines, wanted, limit=PAGE, after=after), fresh=2.0)


def _is_filtered(page: PageRequest) -> bool:
    form = [page.query.get(name) for name in ("q", "task", "state")]
    return any(form) or (page.who.tenant is None and page.tenant is not None)


def _sentence(page: PageRequest, found: ScheduleSum | None, *, is_filtered: bool) -> str:
    say = page.say
    if found is None:
        return say("Schedules")
    if found.total == 0:
        return say("No schedule matches.") if is_filtered else say("There is no schedule yet.")
    if found.total == 1:
        return say("One schedule, and it needs attention.") if found.troubled else say("One schedule, and all is well.")
    count = figure(found.total) + ("" if found.exact else "+")
    if not found.troubled:
        return say("%(count)s schedules, and all is well.", count=count)
    if found.troubled == 1:
        return say("%(count)s schedules. One of them needs attention.", count=count)
    return say("%(count)s schedules. %(bad)s of them need attention.", count=count, bad=figure(found.troubled))


def _search_sentence(
    page: PageRequest, form: SearchForm[SearchParams | None], found: ScheduleLines | None, after: str
) -> str:
    """Return the headline of a search."""
    if form.problem:
        return page.say("The search is invalid.")
    if found is None:
        return page.say("Schedules")
    if found.next is not None or after:
        return page.say("%(count)s schedules on this page match.", count=len(found.items))
    if len(found.items) == 1:
        return page.say("One schedule matches.")
    return (
        page.say("%(count)s schedules match.", count=len(found.items))
        if found.items
        else page.say("No schedule matches.")
    )


def _soonest(page: PageRequest, found: ScheduleSum | None) -> list[tuple[ScheduleRow, datetime]]:
    """Return the schedules that are due next, with their time; without those that are only to be planned."""
    rows = [] if found is None else found.soonest
    return [(row, at) for row in rows if (at := next_of(row, state_of(row, page.now))) is not None]


def _condition_text(page: PageRequest, condition: AlertCondition) -> str:
    return filled(page.say(condition.sentence), condition.values)


def _heat(page: PageRequest, coming: Heatmap | None, span: str) -> str:
    """Draw five minutes a cell for a day; an hour a cell for a week."""
    if span == "24h":
        return heat_picture(page, coming)
    if coming is None or not coming.cells:
        return ""
    days = []
    local = [(cell.at.astimezone(page.zone), cell.fires) for cell in coming.cells]
    for day, cells in groupby(local, key=lambda cell: cell[0].date()):
        fires: list[float | None] = [None] * HOURS
        for at, number in cells:
            fires[at.hour] = (fires[at.hour] or 0) + number
        name = f"{day:%a %d}"
        days.append((name, [_hour(page, f"{name} {hour:02}:00", number) for hour, number in enumerate(fires)]))
    return week_heat(days, page.say("Planned runs"), page.say("fires an hour"))


def _hour(page: PageRequest, at: str, number: float | None) -> HeatHour | None:
    if number is None:
        return None
    return HeatHour(page.say("%(at)s %(count)s fires", at=at, count=figure(number)), number)


def _bulk(wanted: ScheduleFilter) -> dict[str, Any]:
    """Return the filter of this list as the API's bulk changes take it."""
    given: dict[str, Any] = {name: value for name, value in wanted.as_detail().items() if value is not None}
    return {**given, "all": True}


def _copies(page: PageRequest, wanted: ScheduleFilter) -> dict[str, str]:
    states: Sequence[str] = list(wanted.states or ())
    text = None if wanted.search_params is None else wanted.search_params.text
    cli = ["schedule", "list", *([f"--search={text}"] if text else [])]
    for option, value in (
        ("--task", wanted.task),
        ("--tenant", wanted.tenant),
        *(("--state", each) for each in states),
    ):
        cli += [option, value] if value else []
    query = {"q": text, "task": wanted.task, "tenant": wanted.tenant, "states": states or None}
    return copies(page, cli=cli, path="schedules", query=query)
