"""One tenant: everything about it in one place, for operators and for its own users."""

import asyncio
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from sereno.jobs.lifecycle import STATES
from sereno.jobs.limits.operations import in_words
from sereno.jobs.queries.error_groups import ErrorGroup
from sereno.monitoring import error_operations, tenants
from sereno.monitoring.alerts.condition import AlertCondition, filled
from sereno.monitoring.alerts.current_conditions import current_conditions
from sereno.monitoring.tenant_queries import WINDOW
from sereno.monitoring.tenants import DAY, TenantDetail
from sereno.notifications.deliveries.figures import funnel
from sereno.server.shared.tenant_scope import their_tenant
from sereno.server.web.charts import axes, svg
from sereno.server.web.charts.shares import HOURS, percent, places
from sereno.server.web.charts.sparkline import spark
from sereno.server.web.charts.svg import ChartSeries
from sereno.server.web.command_examples import copies
from sereno.server.web.monitoring.now import funnel_picture
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.schedules.rule_text import rule_words
from sereno.server.web.times import clock, length

MOST_ERRORS = 8


def routes(pages: PageRoutes) -> None:
    """`/tenant?name=…`, the start page of users of one tenant."""

    @pages.at("/tenant", of_tenants=True)
    async def one(page: PageRequest) -> Response:
        name = their_tenant(page.who, page.query.get("name") or None)
        if name is None:
            return RedirectResponse(f"{page.base}tenants", HTTPStatus.SEE_OTHER)
        detail, conditions, totals, errors = await asyncio.gather(
            page.load(("tenant", name), partial(tenants.show, name), fresh=2.0),
            page.load(("attention", name), partial(current_conditions, page.context.settings, tenant=name), fresh=5.0),
            page.load(("funnel", name), partial(funnel, DAY, tenant=name), fresh=5.0),
            page.load(
                ("errors of", name),
                partial(error_operations.list_groups, tenant=name, sort="count", muted=True, limit=MOST_ERRORS),
                fresh=5.0,
            ),
        )
        return page.render(
            "tenant.html",
            name=name,
            path=quote(name, safe=""),
            found=detail,
            conditions=conditions,
            condition_text=lambda condition: filled(page.say(condition.sentence), condition.values),
            ways=partial(_ways, page, name),
            sentence=_sentence_of_one(page, name, detail.value, conditions.value),
            figures=_figures(detail.value),
            hours=_hours_of_one(page, name, detail.value),
            states=STATES,
            window=WINDOW,
            words_of=partial(rule_words, page),
            funnel=totals,
            funnel_picture=funnel_picture(page, totals.value),
            errors=errors,
            error_href=partial(_error_href, page, name),
            sparkline=partial(_sparkline, page),
            limit_words=in_words,
            copies=copies(page, cli=["job", "list", "--tenant", name], path="jobs", query={"tenant": name}),
        )


def _sentence_of_one(
    page: PageRequest, name: str, detail: TenantDetail | None, conditions: Sequence[AlertCondition] | None
) -> str:
    if detail is None or conditions is None:
        return page.say("The database does not respond in time.")
    if detail.standing.paused_at is not None:
        return page.say("%(tenant)s is paused: none of its jobs is started.", tenant=name)
    if len(conditions) == 1:
        return page.say("%(tenant)s: one condition needs attention.", tenant=name)
    if conditions:
        return page.say("%(tenant)s: %(count)s conditions need attention.", tenant=name, count=len(conditions))
    if detail.figures is None and not detail.states and not detail.schedules:
        return page.say("Nothing is known of %(tenant)s.", tenant=name)
    return page.say("%(tenant)s: all is well.", tenant=name)


def _ways(page: PageRequest, name: str, condition: AlertCondition) -> list[tuple[str, str]]:
    """Return links to pages with details, within this tenant's data."""
    kind, values = condition.kind.partition(".")[0], condition.values
    if kind == "job":
        return [("show", page.link("jobs", q=f'state:dead task:"{values.get("task", "")}"', tenant=name))]
    if kind == "schedule":
        return [("why", page.link("schedule", key=values.get("schedule", "")))]
    if kind == "channel" and page.who.tenant is None:
        return [("show", page.link("channels"))]
    return []


def _figures(detail: TenantDetail | None) -> dict[str, Any]:
    """Return the figures of a day."""
    if detail is None or detail.figures is None:
        return {"ended": 0, "a_hour": 0.0, "failed": 0, "failures": 0.0, "seconds": 0.0, "share": 0.0}
    found = detail.figures
    context = max(found.seconds, sum(each.seconds for each in detail.hours if each.tenant is None))
    return {
        "ended": found.ended,
        "a_hour": found.ended / HOURS,
        "failed": found.failed,
        "failures": percent(found.failed, found.ended),
        "seconds": found.seconds,
        "share": percent(found.seconds, context),
    }


def _hours_of_one(page: PageRequest, name: str, detail: TenantDetail | None) -> Markup | str:
    if detail is None:
        return ""
    seconds = {each.at: each.seconds for each in detail.hours if each.tenant == name}
    hours = places(page.now)
    steps = [clock(at, page.zone, "%H:%M") for at in hours]
    series = [ChartSeries(page.say("seconds of work"), "accent", [seconds.get(at, 0.0) for at in hours])]
    label = page.say("Worker time by the hour, %(time)s in all", time=length(sum(seconds.values())))
    return svg.bars(steps, series, label, axes.duration)


def _error_href(page: PageRequest, name: str, line: ErrorGroup) -> str:
    """Return the link to the error group; for a tenant's user, to the tenant's own dead letters."""
    if page.who.tenant is None:
        return page.link("error", fingerprint=line.fingerprint)
    return page.link("jobs", q=f"state:dead fingerprint:{line.fingerprint}", tenant=name)


def _sparkline(page: PageRequest, line: ErrorGroup) -> Markup:
    return spark(line.hours, page.say("The last 24 hours, the newest last: %(count)s", count=figure(sum(line.hours))))
