"""Schedules: how many, what fails, what is to come, and each with its last runs."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any

from starlette.responses import Response

from sereno.jobs.job import check_text
from sereno.jobs.job_filter import ScheduleFilter
from sereno.monitoring.alerts.condition import AlertCondition, filled
from sereno.monitoring.alerts.current_conditions import attention
from sereno.schedules.heatmap import Heatmap
from sereno.schedules.list_pages import ScheduleLines, ScheduleSum, lines, summary
from sereno.schedules.store import WINDOW, ScheduleRow
from sereno.search.search_filter import SCHEDULE_FIELDS
from sereno.search.sql_terms import SearchParams
from sereno.server.shared.cache import Cached
from sereno.server.web.charts.week_heat import HOURS, Hour, week_heat
from sereno.server.web.command_examples import copies
from sereno.server.web.monitoring.now import DAY, crowd, forecast, heat_picture, ways
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.schedules import schedule_page
from sereno.server.web.schedules.rule_text import rule_words
from sereno.server.web.schedules.schedule_rows import line_of, next_of, state_of
from sereno.server.web.search_form import SearchForm, sought_for
from sereno.server.web.times import figure

PAGE = 50
SPANS = {"24h": DAY, "7d": 7 * DAY}
STATES = ("enabled", "paused", "disabled", "parked", "finished")
MOST_CONCERNS = 5


def rooms(pages: PageRoutes) -> None:
    """`/schedules`, and `/schedule?key=…`."""
    schedule_page.rooms(pages)

    @pages.at("/schedules", of_tenants=True)
    async def schedules(look: PageRequest) -> Response:
        named, after = _named(look), look.query.get("after", "")
        asked = sought_for(look, SCHEDULE_FIELDS)
        wanted = replace(named, sought=asked.wanted)
        check_text("after", after or None)
        span = look.query.get("span") if look.query.get("span") in SPANS else "24h"
        seen, found, concerns, coming = await asyncio.gather(
            _listed(look, asked, wanted, after),
            # Of what is named: a search is no reason to count every schedule.
            look.see(("schedules sum", repr(named)), partial(summary, named), fresh=5.0),
            look.see(
                ("attention", look.tenant), partial(attention, look.house.settings, tenant=look.tenant), fresh=5.0
            ),
            # By tenant alone: whatever somebody types is no reason to read every schedule again.
            forecast(look, ScheduleFilter(tenant=look.tenant), SPANS[str(span)]),
        )
        return look.page(
            "schedules.html",
            asked=asked,
            among=WINDOW,
            sentence=_sought_sentence(look, asked, seen.value, after)
            if asked.text
            else _sentence(look, found.value, is_filtered=_is_filtered(look)),
            is_filtered=_is_filtered(look),
            found=found,
            soonest=_soonest(look, found.value),
            concerns=[each for each in concerns.value or () if each.kind.startswith("schedule")][:MOST_CONCERNS],
            said=partial(_said, look),
            ways=ways,
            words_of=partial(rule_words, look),
            seen=seen,
            lines=[line_of(look, each) for each in seen.value.items] if seen.value else [],
            next=seen.value.next if seen.value else None,
            forecast=coming,
            span=span,
            spans=list(SPANS),
            heat=_heat(look, coming.value, str(span)),
            crowd=crowd(coming.value),
            states=STATES,
            state=look.query.get("state", ""),
            bulk=_bulk(wanted),
            copies=_copies(look, wanted),
        )


def _named(look: PageRequest) -> ScheduleFilter:
    """What the address asks for, but for its search."""
    task, state = look.query.get("task") or None, look.query.get("state")
    for name, value in (("task", task), ("tenant", look.tenant)):
        check_text(name, value)
    return ScheduleFilter(task=task, tenant=look.tenant, states=(state,) if state in STATES else None)


async def _listed(
    look: PageRequest, asked: SearchForm[SearchParams | None], wanted: ScheduleFilter, after: str
) -> Cached[ScheduleLines]:
    """Nothing is looked for where the search means nothing."""
    if asked.problem is not None:
        return Cached(ScheduleLines([], look.now))
    key = ("schedules", repr(replace(wanted, sought=None)), after, asked.text)
    return await look.see(key, partial(lines, wanted, limit=PAGE, after=after), fresh=2.0)


def _is_filtered(look: PageRequest) -> bool:
    asked = [look.query.get(name) for name in ("q", "task", "state")]
    return any(asked) or (look.who.tenant is None and look.tenant is not None)


def _sentence(look: PageRequest, found: ScheduleSum | None, *, is_filtered: bool) -> str:
    say = look.say
    if found is None:
        return say("Schedules")
    if found.total == 0:
        return say("No schedule matches.") if is_filtered else say("There is no schedule yet.")
    if found.total == 1:
        return say("One schedule, and it needs you.") if found.troubled else say("One schedule, and all is well.")
    count = figure(found.total) + ("" if found.exact else "+")
    if not found.troubled:
        return say("%(count)s schedules, and all is well.", count=count)
    if found.troubled == 1:
        return say("%(count)s schedules. One of them needs you.", count=count)
    return say("%(count)s schedules. %(bad)s of them need you.", count=count, bad=figure(found.troubled))


def _sought_sentence(
    look: PageRequest, asked: SearchForm[SearchParams | None], found: ScheduleLines | None, after: str
) -> str:
    """What a search has found."""
    if asked.problem:
        return look.say("This search is not understood.")
    if found is None:
        return look.say("Schedules")
    if found.next is not None or after:
        return look.say("%(count)s schedules on this page match.", count=len(found.items))
    if len(found.items) == 1:
        return look.say("One schedule matches.")
    return (
        look.say("%(count)s schedules match.", count=len(found.items))
        if found.items
        else look.say("No schedule matches.")
    )


def _soonest(look: PageRequest, found: ScheduleSum | None) -> list[tuple[ScheduleRow, datetime]]:
    """Those that are due next, each with when; one that is only to be planned then is not."""
    rows = [] if found is None else found.soonest
    return [(row, at) for row in rows if (at := next_of(row, state_of(row, look.now))) is not None]


def _said(look: PageRequest, concern: AlertCondition) -> str:
    return filled(look.say(concern.said), concern.values)


def _heat(look: PageRequest, coming: Heatmap | None, span: str) -> str:
    """Five minutes a cell for a day; an hour a cell for a week."""
    if span == "24h":
        return heat_picture(look, coming)
    if coming is None or not coming.cells:
        return ""
    days = []
    local = [(cell.at.astimezone(look.zone), cell.fires) for cell in coming.cells]
    for day, cells in groupby(local, key=lambda cell: cell[0].date()):
        fires: list[float | None] = [None] * HOURS
        for at, number in cells:
            fires[at.hour] = (fires[at.hour] or 0) + number
        name = f"{day:%a %d}"
        days.append((name, [_hour(look, f"{name} {hour:02}:00", number) for hour, number in enumerate(fires)]))
    return week_heat(days, look.say("Fires to come"))


def _hour(look: PageRequest, at: str, number: float | None) -> Hour | None:
    if number is None:
        return None
    return Hour(look.say("%(at)s %(count)s fires", at=at, count=f"{number:,.0f}"), number)


def _bulk(wanted: ScheduleFilter) -> dict[str, Any]:
    """The filter of this list in the words of the API's bulk changes."""
    given: dict[str, Any] = {name: value for name, value in wanted.as_detail().items() if value is not None}
    return {**given, "all": True}


def _copies(look: PageRequest, wanted: ScheduleFilter) -> dict[str, str]:
    states: Sequence[str] = list(wanted.states or ())
    text = None if wanted.sought is None else wanted.sought.text
    cli = ["schedule", "list", *([f"--search={text}"] if text else [])]
    for option, value in (
        ("--task", wanted.task),
        ("--tenant", wanted.tenant),
        *(("--state", each) for each in states),
    ):
        cli += [option, value] if value else []
    query = {"q": text, "task": wanted.task, "tenant": wanted.tenant, "states": states or None}
    return copies(look, cli=cli, path="schedules", query=query)
