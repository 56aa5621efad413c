"""Tenants: the share of worker time of each, hour by hour and in a list."""

import asyncio
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from sereno.monitoring import tenants
from sereno.monitoring.search_fields import TENANT_FIELDS
from sereno.monitoring.tenant_queries import SCHEDULE_BOUND, Sort, TenantHour, TenantLine
from sereno.monitoring.tenants import TOP
from sereno.search.sql_terms import SearchParams
from sereno.server.web import cursor
from sereno.server.web.charts import axes, svg
from sereno.server.web.charts.shares import HOURS, percent, places
from sereno.server.web.charts.svg import ChartSeries
from sereno.server.web.command_examples import copies
from sereno.server.web.monitoring import tenant_page
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.search_form import SearchForm, listed, search_params_for
from sereno.server.web.times import clock
from sereno.text import NAME_LIMIT, check_text

ROWS = 50
# A share of the worker time that counts as much.
NOISY = 0.5
SORTS: dict[str, Sort] = {
    "seconds": "seconds",
    "jobs": "jobs",
    "failed": "failed",
    "deliveries": "deliveries",
    "name": "name",
}


def routes(pages: PageRoutes) -> None:
    """`/tenants`, `/tenant?name=…`."""
    tenant_page.routes(pages)

    @pages.at("/tenants", of_tenants=True)
    async def every(page: PageRequest) -> Response:
        if page.who.tenant is not None:
            return _to(page, page.who.tenant)
        check_text("q", page.query.get("q", "").strip()[:NAME_LIMIT] or None)
        form = search_params_for(page, TENANT_FIELDS)
        sort = SORTS.get(page.query.get("sort", ""), "seconds")
        skip = min(cursor.number(page.query.get("after")) or 0, tenants.DEEPEST)
        query = partial(tenants.list_tenants, search_params=form.wanted, sort=sort, skip=skip, limit=ROWS + 1)
        found, hours = await asyncio.gather(
            listed(page, form, ("tenants", sort, skip), query, fresh=5.0),
            page.load("tenant hours", tenants.hours, fresh=15.0),
        )
        lines = (found.value or [])[:ROWS]
        return page.render(
            "tenants.html",
            form=form,
            sort=sort,
            found=found,
            lines=lines,
            next=skip + ROWS if len(found.value or []) > ROWS else None,
            sentence=_sentence(page, found.value, form),
            hours=hours,
            fairness=_fairness(page, hours.value or []),
            bound=SCHEDULE_BOUND,
            a_day=HOURS,
            copies=copies(page, cli=None, path="tenants", query={"q": form.text, "sort": sort}),
        )


def _to(page: PageRequest, name: str) -> Response:
    return RedirectResponse(f"{page.base}tenant?{urlencode({'name': name})}", HTTPStatus.SEE_OTHER)


def _sentence(page: PageRequest, lines: Sequence[TenantLine] | None, form: SearchForm[SearchParams | None]) -> str:
    """Return the headline: whether one tenant takes most of the worker time."""
    if form.problem:
        return page.say("The search is invalid.")
    if lines is None:
        return page.say("The database does not respond in time.")
    if not lines and form.terms:
        return page.say("No tenant matches.")
    if not lines:
        return page.say("No tenant had jobs in the last 24 hours.")
    top = max(lines, key=lambda line: line.seconds)
    if top.share >= NOISY and len(lines) > 1:
        return page.say(
            "%(tenant)s took %(share)s %% of the worker time.", tenant=top.tenant, share=round(top.share * 100)
        )
    count = figure(min(len(lines), ROWS)) + ("+" if len(lines) > ROWS else "")
    if len(lines) == 1:
        return page.say("One tenant in the last 24 hours.")
    return page.say(
        "%(count)s tenants in the last 24 hours; none took more than %(share)s %% of the worker time.",
        count=count,
        share=max(1, round(top.share * 100)),
    )


def _fairness(page: PageRequest, found: Sequence[TenantHour]) -> dict[str, Any]:
    """Return the hourly shares of the largest tenants, and of the rest."""
    names = list(dict.fromkeys(each.tenant for each in _most_first(found) if each.tenant is not None))[:TOP]
    seconds = {(each.at, each.tenant): each.seconds for each in found}
    hours = places(page.now)
    totals = [max(seconds.get((at, None), 0.0), sum(seconds.get((at, name), 0.0) for name in names)) for at in hours]
    series = [
        ChartSeries(
            name,
            f"t{number}",
            [percent(seconds.get((at, name), 0.0), total) for at, total in zip(hours, totals, strict=True)],
        )
        for number, name in enumerate(names)
    ]
    rest = [
        100.0 - sum(one.values[place] or 0.0 for one in series) if total > 0 else 0.0
        for place, total in enumerate(totals)
    ]
    series.append(ChartSeries(page.say("the rest"), "skip", [max(0.0, value) for value in rest]))
    steps = [clock(at, page.zone, "%H:%M") for at in hours]
    picture = svg.bars(steps, series, page.say("Share of the worker time by tenant, hour by hour"), axes.percentage)
    whole = sum(totals)
    shares = [
        (number, name, percent(sum(seconds.get((at, name), 0.0) for at in hours), whole))
        for number, name in enumerate(names)
    ]
    return {
        "picture": picture if whole > 0 else "",
        "shares": shares,
        "rest": max(0.0, 100.0 - sum(share for _, _, share in shares)),
    }


def _most_first(found: Sequence[TenantHour]) -> list[TenantHour]:
    """Return them by their totals, the largest first."""
    sums: dict[str | None, float] = {}
    for each in found:
        sums[each.tenant] = sums.get(each.tenant, 0.0) + each.seconds
    return sorted(found, key=lambda each: (-sums[each.tenant], each.tenant or ""))
