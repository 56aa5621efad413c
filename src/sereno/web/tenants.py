"""Tenants: who takes how much of the house; and everything about one of them in one place."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from sereno.domain.concern import Concern, filled
from sereno.domain.lifecycle import STATES
from sereno.operations import error_groups, tenants
from sereno.operations.attention import attention
from sereno.operations.figures import funnel
from sereno.operations.limits import in_words
from sereno.operations.tenants import DAY, TOP, TenantDetail
from sereno.reception.tenancy import their_tenant
from sereno.store.error_groups import ErrorGroup
from sereno.store.tenants import SCHEDULE_BOUND, WINDOW, Sort, TenantHour, TenantLine
from sereno.web import charts
from sereno.web.charts import Series
from sereno.web.copies import copies
from sereno.web.look import Look
from sereno.web.now import funnel_picture
from sereno.web.pages import Pages
from sereno.web.rule_words import rule_words
from sereno.web.sparkline import spark
from sereno.web.times import clock, figure, length

ROWS = 50
HOUR = 3600
HOURS = 24
DIGITS = 5
MOST_ERRORS = 8
# With one of them, half of everything is much.
NOISY = 0.5
SORTS: dict[str, Sort] = {
    "seconds": "seconds",
    "jobs": "jobs",
    "failed": "failed",
    "deliveries": "deliveries",
    "name": "name",
}


def rooms(pages: Pages) -> None:
    """`/tenants`, `/tenant?name=…`; the second is where somebody of one tenant begins."""

    @pages.at("/tenants", of_tenants=True)
    async def every(look: Look) -> Response:
        if look.who.tenant is not None:
            return _to(look, look.who.tenant)
        part = look.query.get("q", "").strip() or None
        sort = SORTS.get(look.query.get("sort", ""), "seconds")
        skip = _number(look.query.get("after"))
        listed = partial(tenants.list_tenants, part=part, sort=sort, skip=skip, limit=ROWS + 1)
        found, hours = await asyncio.gather(
            look.see(("tenants", part, sort, skip), listed, fresh=5.0),
            look.see("tenant hours", tenants.hours, fresh=15.0),
        )
        lines = (found.value or [])[:ROWS]
        return look.page(
            "tenants.html",
            part=part,
            sort=sort,
            sorts=list(SORTS),
            found=found,
            lines=lines,
            next=skip + ROWS if len(found.value or []) > ROWS else None,
            sentence=_sentence(look, found.value, part),
            hours=hours,
            fairness=_fairness(look, hours.value or []),
            bound=SCHEDULE_BOUND,
            a_day=HOURS,
            copies=copies(look, cli=None, path="figures/jobs", query={"since": int(DAY), "step": HOUR}),
        )

    @pages.at("/tenant", of_tenants=True)
    async def one(look: Look) -> Response:
        name = their_tenant(look.who, look.query.get("name") or None)
        if name is None:
            return RedirectResponse(f"{look.base}tenants", HTTPStatus.SEE_OTHER)
        detail, concerns, told, errors = await asyncio.gather(
            look.see(("tenant", name), partial(tenants.show, name), fresh=2.0),
            look.see(("attention", name), partial(attention, look.house.settings, tenant=name), fresh=5.0),
            look.see(("funnel", name), partial(funnel, DAY, tenant=name), fresh=5.0),
            look.see(
                ("errors of", name),
                partial(error_groups.list_groups, tenant=name, sort="count", muted=True, limit=MOST_ERRORS),
                fresh=5.0,
            ),
        )
        return look.page(
            "tenant.html",
            name=name,
            path=quote(name, safe=""),
            found=detail,
            concerns=concerns,
            said=lambda concern: filled(look.say(concern.said), concern.values),
            ways=partial(_ways, look, name),
            sentence=_sentence_of_one(look, name, detail.value, concerns.value),
            figures=_figures(detail.value),
            hours=_hours_of_one(look, name, detail.value),
            states=STATES,
            window=WINDOW,
            words_of=partial(rule_words, look),
            funnel=told,
            funnel_picture=funnel_picture(look, told.value),
            errors=errors,
            error_href=partial(_error_href, look, name),
            sparkline=partial(_sparkline, look),
            limit_words=in_words,
            copies=copies(look, cli=["job", "list", "--tenant", name], path="jobs", query={"tenant": name}),
        )


def _to(look: Look, name: str) -> Response:
    return RedirectResponse(f"{look.base}tenant?{urlencode({'name': name})}", HTTPStatus.SEE_OTHER)


def _number(text: str | None) -> int:
    if not text or not text.isascii() or not text.isdecimal() or len(text) > DIGITS:
        return 0
    return min(int(text), tenants.DEEPEST)


# All of them


def _sentence(look: Look, lines: Sequence[TenantLine] | None, part: str | None) -> str:
    """Whether somebody takes it all, before any figure."""
    if lines is None:
        return look.say("The database does not answer in time.")
    if not lines:
        return look.say("No tenant matches.") if part else look.say("No tenant had work done in the last 24 hours.")
    top = max(lines, key=lambda line: line.seconds)
    if top.share >= NOISY and len(lines) > 1:
        return look.say(
            "%(tenant)s took %(share)s %% of the worker time.", tenant=top.tenant, share=round(top.share * 100)
        )
    count = figure(min(len(lines), ROWS)) + ("+" if len(lines) > ROWS else "")
    if len(lines) == 1:
        return look.say("One tenant in the last 24 hours.")
    return look.say(
        "%(count)s tenants in the last 24 hours; none took more than %(share)s %% of the worker time.",
        count=count,
        share=max(1, round(top.share * 100)),
    )


def _fairness(look: Look, found: Sequence[TenantHour]) -> dict[str, Any]:
    """The share of those who had most, hour by hour, and of the rest."""
    names = list(dict.fromkeys(each.tenant for each in _most_first(found) if each.tenant is not None))[:TOP]
    seconds = {(each.at, each.tenant): each.seconds for each in found}
    places = _places(look)
    totals = [max(seconds.get((at, None), 0.0), sum(seconds.get((at, name), 0.0) for name in names)) for at in places]
    series = [
        Series(
            f"% {name}",
            f"t{number}",
            [_percent(seconds.get((at, name), 0.0), total) for at, total in zip(places, totals, strict=True)],
        )
        for number, name in enumerate(names)
    ]
    rest = [
        100.0 - sum(one.values[place] or 0.0 for one in series) if total > 0 else 0.0
        for place, total in enumerate(totals)
    ]
    series.append(Series(f"% {look.say('the rest')}", "skip", [max(0.0, value) for value in rest]))
    steps = [clock(at, look.zone, "%H:%M") for at in places]
    picture = charts.bars(steps, series, look.say("Share of the worker time by tenant, hour by hour"))
    whole = sum(totals)
    shares = [
        (number, name, _percent(sum(seconds.get((at, name), 0.0) for at in places), whole))
        for number, name in enumerate(names)
    ]
    return {
        "picture": picture if whole > 0 else "",
        "shares": shares,
        "rest": max(0.0, 100.0 - sum(share for _, _, share in shares)),
    }


def _most_first(found: Sequence[TenantHour]) -> list[TenantHour]:
    """By what each had in all."""
    sums: dict[str | None, float] = {}
    for each in found:
        sums[each.tenant] = sums.get(each.tenant, 0.0) + each.seconds
    return sorted(found, key=lambda each: (-sums[each.tenant], each.tenant or ""))


def _places(look: Look) -> list[datetime]:
    """The hours of a day, this one last; those of UTC, as the figures are kept."""
    last = look.now.replace(minute=0, second=0, microsecond=0)
    return [last - timedelta(hours=back) for back in range(HOURS - 1, -1, -1)]


def _percent(part: float, whole: float) -> float:
    return part / whole * 100 if whole > 0 else 0.0


# One of them


def _sentence_of_one(look: Look, name: str, detail: TenantDetail | None, concerns: Sequence[Concern] | None) -> str:
    if detail is None or concerns is None:
        return look.say("The database does not answer in time.")
    if detail.standing.paused_at is not None:
        return look.say("%(tenant)s is paused: none of its jobs is started.", tenant=name)
    if len(concerns) == 1:
        return look.say("%(tenant)s: one thing needs you.", tenant=name)
    if concerns:
        return look.say("%(tenant)s: %(count)s things need you.", tenant=name, count=len(concerns))
    if detail.figures is None and not detail.states and not detail.schedules:
        return look.say("Nothing is known of %(tenant)s.", tenant=name)
    return look.say("%(tenant)s is fine.", tenant=name)


def _ways(look: Look, name: str, concern: Concern) -> list[tuple[str, str]]:
    """Where to look, within what is this tenant's."""
    kind, values = concern.kind.partition(".")[0], concern.values
    if kind == "job":
        return [("show", look.link("jobs", q=f'state:dead task:"{values.get("task", "")}"', tenant=name))]
    if kind == "schedule":
        return [("why", look.link("schedule", key=values.get("schedule", "")))]
    if kind == "channel" and look.who.tenant is None:
        return [("show", look.link("channels"))]
    return []


def _figures(detail: TenantDetail | None) -> dict[str, Any]:
    """Of a day."""
    if detail is None or detail.figures is None:
        return {"ended": 0, "a_hour": 0.0, "failed": 0, "failures": 0.0, "seconds": 0.0, "share": 0.0}
    found = detail.figures
    house = max(found.seconds, sum(each.seconds for each in detail.hours if each.tenant is None))
    return {
        "ended": found.ended,
        "a_hour": found.ended / HOURS,
        "failed": found.failed,
        "failures": _percent(found.failed, found.ended),
        "seconds": found.seconds,
        "share": _percent(found.seconds, house),
    }


def _hours_of_one(look: Look, name: str, detail: TenantDetail | None) -> Markup | str:
    if detail is None:
        return ""
    seconds = {each.at: each.seconds for each in detail.hours if each.tenant == name}
    places = _places(look)
    steps = [clock(at, look.zone, "%H:%M") for at in places]
    series = [Series(look.say("seconds of work"), "accent", [seconds.get(at, 0.0) for at in places])]
    label = look.say("Worker time by the hour, %(time)s in all", time=length(sum(seconds.values())))
    return charts.bars(steps, series, label)


def _error_href(look: Look, name: str, line: ErrorGroup) -> str:
    """The whole kind for those who see the house; its own dead letters for somebody of this tenant."""
    if look.who.tenant is None:
        return look.link("error", fingerprint=line.fingerprint)
    return look.link("jobs", q=f"state:dead fingerprint:{line.fingerprint}", tenant=name)


def _sparkline(look: Look, line: ErrorGroup) -> Markup:
    return spark(line.hours, look.say("The last 24 hours, the newest last: %(count)s", count=figure(sum(line.hours))))
