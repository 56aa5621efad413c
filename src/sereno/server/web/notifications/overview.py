"""Notifications: outcomes of deliveries, why some were skipped, and the health of providers."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.responses import Response

from sereno.access.masking import masked
from sereno.monitoring.alerts.condition_queries import is_failing
from sereno.notifications import operations
from sereno.notifications import queries as notification_queries
from sereno.notifications.deliveries import figures
from sereno.notifications.deliveries.figures import ChannelHealth, Funnel
from sereno.notifications.operations import EventDetail, TallyLine
from sereno.notifications.rows import ChannelPause, EventLine
from sereno.notifications.search_fields import EVENT_FIELDS
from sereno.search.sql_terms import SearchParams
from sereno.server.shared.cache import Cached
from sereno.server.shared.http_error import not_found
from sereno.server.shared.tenant_scope import check_theirs, their_tenant
from sereno.server.web.charts import svg
from sereno.server.web.charts.svg import ChartSeries
from sereno.server.web.command_examples import copies
from sereno.server.web.notifications.page_parts import (
    AT_ONCE,
    KINDS,
    FigureBar,
    bars,
    because,
    known_types,
    number_of,
    over_time,
    tabs,
)
from sereno.server.web.notifications.queries import event as event_at
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.search_form import SearchForm, listed, search_params_for

# Time ranges: seconds, seconds per step of the chart, and the label.
RANGES = {
    "24h": (86_400.0, 3600.0, "in the last 24 hours"),
    "7d": (604_800.0, 21_600.0, "in the last 7 days"),
    "30d": (2_592_000.0, 86_400.0, "in the last 30 days"),
}
ROWS = 25
# Seconds; providers are shown for a shorter time than deliveries.
HEALTH_SECONDS, HEALTH_STEP = 3600.0, 120.0
FUNNEL_FRESH = 5.0
# States of deliveries that reached the provider, and the recipient.
GIVEN = frozenset({"sent", "delivered", "read", "bounced", "unknown"})
ARRIVED = frozenset({"delivered", "read"})
LONGEST_PAYLOAD = 20_000


def routes(pages: PageRoutes) -> None:
    """`/notifications`, `/event?id=…`."""

    @pages.at("/notifications", of_tenants=True)
    async def notifications(page: PageRequest) -> Response:
        tenant = their_tenant(page.who, page.query.get("tenant") or None)
        kind, form = page.query.get("type") or None, search_params_for(page, EVENT_FIELDS)
        wanted = page.query.get("range", "24h")
        span = wanted if wanted in RANGES else "24h"
        totals, health, events = await asyncio.gather(
            _funnel(page, span, tenant, kind), _health(page, tenant), _events(page, form, tenant, kind)
        )
        lines = (events.value or [])[:ROWS]
        return page.render(
            "notifications.html",
            tabs=tabs(page),
            tenant=tenant,
            kind=kind,
            form=form,
            types=known_types(page),
            ranges=list(RANGES),
            range=span,
            range_words=page.say(RANGES[span][2]),
            sentence=_sentence(page, totals.value, span),
            totals=totals,
            lost=",".join(figures.FAILURES),
            funnel=_stages(page, totals.value, tenant, kind),
            reasons=_reasons(page, totals.value, tenant, kind),
            failures=_failures(page, totals.value, tenant, kind),
            picture=_picture(page, totals.value, *RANGES[span][:2]),
            health=health,
            channels=[_card(page, each) for each in (health.value or [])] if health else [],
            found=events,
            lines=lines,
            next=lines[-1].id if len(events.value or []) > ROWS else None,
            copies=_copies(page, form.text, tenant, kind),
        )

    @pages.at("/event", of_tenants=True)
    async def event(page: PageRequest) -> Response:
        number = number_of(page.query.get("id"))
        if number is None:
            raise not_found(f"event {page.query.get('id', ''):.30}")
        seen = await page.load(("event", number), partial(event_at, number), keep=False)
        if seen.value is None and not seen.is_missing:
            raise not_found(f"event {number}")
        if seen.value is not None:
            check_theirs(page.who, seen.value.event.tenant, f"event {number}")
        return page.render(
            "event.html", tabs=tabs(page), number=number, seen=seen, **_of_event(page, number, seen.value)
        )


async def _funnel(page: PageRequest, span: str, tenant: str | None, kind: str | None) -> Any:
    """Return the funnel. Figures are stored by tenant or by event type: with both, those of the tenant."""
    since, step, _ = RANGES[span]
    event = kind if tenant is None else None
    query = partial(figures.funnel, since, step=step, tenant=tenant, event=event)
    return await page.load(("funnel", span, tenant, event), query, fresh=FUNNEL_FRESH)


async def _health(page: PageRequest, tenant: str | None) -> Any:
    """Return the health of all channels; nothing for users of one tenant."""
    if tenant is not None:
        return None
    query = partial(figures.channel_health, HEALTH_SECONDS, step=HEALTH_STEP)
    seen, pauses = await asyncio.gather(
        page.load(("channel health", HEALTH_SECONDS), query, fresh=FUNNEL_FRESH),
        page.load("pauses", notification_queries.pauses, fresh=AT_ONCE),
    )
    stopped = {(each.channel, each.account): each for each in pauses.value or ()}
    return Cached(None if seen.value is None else [_as_now(each, stopped) for each in seen.value], seen.age)


def _as_now(each: ChannelHealth, stopped: Mapping[tuple[str, str], ChannelPause]) -> ChannelHealth:
    """Return the figures with the current state: figures may be a few seconds old."""
    pause = stopped.get((each.channel, each.account or ""))
    if pause is None:
        failed = each.failed + each.unknown
        state = "failing" if is_failing(failed, failed + each.accepted) else "working"
        return replace(each, state=state, paused_since=None, paused_why=None)
    return replace(each, state="paused", paused_since=pause.since, paused_why=pause.reason)


async def _events(
    page: PageRequest, form: SearchForm[SearchParams | None], tenant: str | None, kind: str | None
) -> Any:
    before = number_of(page.query.get("before"))
    query = partial(
        operations.list_events, kind=kind, tenant=tenant, search_params=form.wanted, limit=ROWS + 1, before=before
    )
    return await listed(page, form, ("events", kind, tenant, before), query)


def _sentence(page: PageRequest, totals: Funnel | None, span: str) -> str:
    """Return the headline: outcomes of the deliveries."""
    if totals is None:
        return page.say("The database does not respond in time.")
    when = page.say(RANGES[span][2])
    if not totals.matched and not totals.sent and not totals.skipped_total:
        return page.say("No deliveries %(when)s.", when=when)
    sent = page.say(
        "%(sent)s of %(matched)s deliveries were sent %(when)s",
        sent=figure(totals.sent),
        matched=figure(max(totals.matched, totals.sent)),
        when=when,
    )
    if not totals.skipped_total:
        return page.say("%(sent)s; none was skipped.", sent=sent)
    skipped = figure(totals.skipped_total)
    if not totals.skipped:
        return page.say("%(sent)s; %(skipped)s were skipped.", sent=sent, skipped=skipped)
    reason = because(page, next(iter(totals.skipped)))
    if len(totals.skipped) == 1:
        return page.say("%(sent)s; %(skipped)s were skipped, because %(why)s.", sent=sent, skipped=skipped, why=reason)
    return page.say(
        "%(sent)s; %(skipped)s were skipped, mostly because %(why)s.", sent=sent, skipped=skipped, why=reason
    )


def _stages(page: PageRequest, totals: Funnel | None, tenant: str | None, kind: str | None) -> list[FigureBar]:
    """Return the stages from matched to read."""
    if totals is None:
        return []
    to = partial(page.link, "deliveries", tenant=_tenant_param(page, tenant), type=kind)
    return bars(
        [
            (page.say("matched"), totals.matched, "accent", to()),
            (page.say("eligible"), totals.eligible, "accent", None),
            (page.say("sent"), totals.sent, "ok", to(state="sent")),
            (page.say("delivered"), totals.delivered, "ok", to(state="delivered")),
            (page.say("read"), totals.read, "ok", to(state="read")),
        ]
    )


def _reasons(page: PageRequest, totals: Funnel | None, tenant: str | None, kind: str | None) -> list[FigureBar]:
    to = page.link("deliveries", tenant=_tenant_param(page, tenant), type=kind, state="skipped")
    found = totals.skipped if totals is not None else {}
    return bars((because(page, reason), number, "skip", to) for reason, number in found.items())


def _failures(page: PageRequest, totals: Funnel | None, tenant: str | None, kind: str | None) -> list[FigureBar]:
    found = totals.failures if totals is not None else {}
    to = partial(page.link, "deliveries", tenant=_tenant_param(page, tenant), type=kind)
    return bars((page.say(state), number, KINDS.get(state, "dead"), to(state=state)) for state, number in found.items())


def _tenant_param(page: PageRequest, tenant: str | None) -> str | None:
    """Return the parameter; a user of one tenant does not need it."""
    return None if page.who.tenant else tenant


def _picture(page: PageRequest, totals: Funnel | None, since: float, step: float) -> str:
    if totals is None or not totals.steps:
        return ""
    names, found = over_time(page, totals.steps, since, step)
    series = [
        ChartSeries(page.say("sent"), "ok", [each.sent if each else 0 for each in found]),
        ChartSeries(page.say("skipped"), "skip", [each.skipped if each else 0 for each in found]),
        ChartSeries(page.say("failed"), "dead", [each.failed if each else 0 for each in found]),
    ]
    return svg.bars(names, series, page.say("Deliveries by time: sent, skipped, failed"))


def _card(page: PageRequest, each: ChannelHealth) -> dict[str, Any]:
    """Return what is shown of one provider."""
    names, found = over_time(page, each.steps, HEALTH_SECONDS, HEALTH_STEP)
    series = [
        ChartSeries(page.say("accepted"), "ok", [step.accepted if step else 0 for step in found]),
        ChartSeries(page.say("throttled"), "retry", [step.throttled if step else 0 for step in found]),
        ChartSeries(page.say("failed"), "dead", [step.failed if step else 0 for step in found]),
    ]
    label = page.say("Results of %(channel)s in the last hour", channel=each.channel)
    return {
        "health": each,
        "picture": svg.bars(names, series, label) if each.steps else "",
        "throttled": each.throttled / each.sent if each.sent else 0.0,
        "codes": bars((code, number, "dead", None) for code, number in list(each.codes.items())[:5]),
    }


def _of_event(page: PageRequest, number: int, detail: EventDetail | None) -> dict[str, Any]:
    if detail is None:
        return {"event": None}
    event, tally = detail.event, detail.deliveries
    payload = json.loads(bytes(event.payload))
    hidden = masked(payload)
    return {
        "event": event,
        "total": detail.total,
        # The filter `length` of the templates is a different one.
        "audience_count": len(event.audience or ()),
        "sentence": _event_sentence(page, event, detail),
        "payload": json.dumps(hidden, ensure_ascii=False, indent=2)[:LONGEST_PAYLOAD],
        "is_masked": hidden != payload,
        "funnel": _event_funnel(page, number, tally),
        "tally": [
            (line, page.link("deliveries", event=number, state=line.state, channel=line.channel)) for line in tally
        ],
        "variants": detail.variants,
        "copies": copies(page, cli=["event", "show", str(number)], path=f"events/{number}"),
    }


def _event_sentence(page: PageRequest, event: EventLine, detail: EventDetail) -> str:
    total = detail.total
    count = f"{figure(total.value)}{'' if total.exact else '+'}"
    # Many channels, such as e-mail without receipts, never report a delivery.
    sent = sum(line.count for line in detail.deliveries if line.state in GIVEN)
    if not total.value:
        return page.say("%(type)s: no deliveries yet.", type=event.type)
    return page.say("%(type)s: %(sent)s of %(count)s deliveries sent.", type=event.type, sent=figure(sent), count=count)


def _event_funnel(page: PageRequest, number: int, tally: Sequence[TallyLine]) -> list[FigureBar]:
    def of(*states: str) -> int:
        return sum(line.count for line in tally if line.state in states)

    to = partial(page.link, "deliveries", event=number)
    total = sum(line.count for line in tally)
    return bars(
        [
            (page.say("matched"), total, "accent", to()),
            (page.say("eligible"), total - of("skipped"), "accent", None),
            (page.say("sent"), of(*GIVEN), "ok", to(state="sent")),
            (page.say("delivered"), of(*ARRIVED), "ok", to(state="delivered")),
            (page.say("read"), of("read"), "ok", to(state="read")),
        ]
    )


def _copies(page: PageRequest, text: str, tenant: str | None, kind: str | None) -> dict[str, str]:
    cli = ["event", "list", *(["--type", kind] if kind else []), *(["--tenant", tenant] if tenant else [])]
    cli += ["--", text] if text else []
    return copies(page, cli=cli, path="events", query={"q": text, "type": kind, "tenant": tenant})
