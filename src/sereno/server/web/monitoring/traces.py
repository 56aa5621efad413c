"""Traces: found by an id or a subject; and one of them, from its cause to the last receipt."""

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from sereno.database.statement import Operation
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.monitoring.traces import operations as operation
from sereno.monitoring.traces.operations import Trace, TraceLine
from sereno.monitoring.traces.trace import TraceLane
from sereno.server.shared.cache import Cached
from sereno.server.shared.http_error import not_found
from sereno.server.web.charts import trace_timeline
from sereno.server.web.command_examples import copies
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.times import clock, length

NEWEST = 30
# What the text of a search is; "any" tries all of them.
WAYS = ("any", "trace", "subject", "job", "delivery")
_NUMBER = re.compile("[0-9]{1,19}")
# Rows of the table.
MOST_LANES = 300


def routes(pages: PageRoutes) -> None:
    """`/traces`, `/trace?id=…`."""

    @pages.at("/traces", of_tenants=True)
    async def traces(page: PageRequest) -> Response:
        text, by = page.query.get("q", "").strip(), page.query.get("by", "any")
        by = by if by in WAYS else "any"
        if text and by == "trace":
            return _to(page, text)
        found = await _found(page, text, by)
        if text and found.value is not None and len({line.id for line in found.value}) == 1:
            return _to(page, found.value[0].id)
        return page.render(
            "traces.html",
            text=text,
            by=by,
            ways=WAYS,
            found=found,
            sentence=_sentence(page, text, found),
            copies=_copies(page, text, by),
        )

    @pages.at("/trace", of_tenants=True)
    async def trace(page: PageRequest) -> Response:
        wanted = page.query.get("id", "")
        if not wanted:
            return RedirectResponse(f"{page.base}traces", HTTPStatus.SEE_OTHER)
        tenant = page.who.tenant
        found = await page.load(("trace", wanted, tenant), partial(_there, wanted, tenant), fresh=2.0)
        return page.render("trace.html", wanted=wanted, found=found, **_drawn(page, found.value))


def _to(page: PageRequest, trace_id: str) -> Response:
    return RedirectResponse(page.link("trace", id=trace_id), HTTPStatus.SEE_OTHER)


def _there(trace_id: str, tenant: str | None) -> Operation[Trace]:
    try:
        return (yield from operation.trace(trace_id, tenant=tenant))
    except (ConfigurationError, InvalidArguments):
        raise not_found(f"trace {trace_id!r:.60}") from None


async def _found(page: PageRequest, text: str, by: str) -> Cached[list[TraceLine]]:
    tenant = page.tenant
    if not text:
        return await page.load(("traces", tenant), partial(operation.newest, tenant=tenant, most=NEWEST), fresh=2.0)
    if by in ("job", "delivery") and _NUMBER.fullmatch(text) is None:
        return Cached([])
    given: dict[str, Callable[[], Operation[list[TraceLine]]]] = {
        "any": partial(operation.anything, text, tenant=tenant),
        "subject": partial(operation.find, subject=text, tenant=tenant),
        "job": lambda: operation.find(job=int(text), tenant=tenant),
        "delivery": lambda: operation.find(delivery=int(text), tenant=tenant),
    }
    return await page.load(("traces", by, text, tenant), given[by], fresh=2.0)


def _sentence(page: PageRequest, text: str, found: Cached[list[TraceLine]]) -> str:
    if found.value is None:
        return page.say("The database does not respond in time.")
    if not text:
        return page.say("From the cause to the last receipt.")
    if not found.value:
        return page.say("No trace matches.")
    return page.say("%(count)s traces are found.", count=figure(len({line.id for line in found.value})))


def _copies(page: PageRequest, text: str, by: str) -> dict[str, str]:
    """Without a text, or for "any", the examples search by subject."""
    name = by if by in ("job", "delivery") else "subject"
    return copies(page, cli=["trace", f"--{name}", text or "…"], path="traces", query={name: text or "…"})


def _drawn(page: PageRequest, found: Trace | None) -> dict[str, Any]:
    if found is None:
        return {"sentence": page.say("The database does not respond in time."), "picture": "", "lanes": [], "left": 0}
    href = partial(_href, page)
    moment = partial(_moment, page)
    rows = trace_timeline.rows(found, page.now, page.say, href, moment)
    whole, active = (found.end - found.start).total_seconds(), trace_timeline.active(found)
    subject = next((lane.name for lane in found.lanes if lane.kind == "event"), None)
    return {
        "sentence": page.say(
            "%(whole)s, %(active)s of it active.", whole=length(whole), active=length(min(active, whole))
        ),
        "about": subject or next((lane.name for lane in found.lanes if lane.kind == "job"), found.id),
        "picture": trace_timeline.picture(rows, page.say, moment),
        "undrawn": max(0, len(rows) - trace_timeline.MOST_ROWS),
        "lanes": [(lane, href(lane)) for lane in found.lanes[:MOST_LANES]],
        "left": max(0, len(found.lanes) - MOST_LANES),
        "took": lambda span: length((span.end - span.start).total_seconds()),
        "copies": copies(page, cli=["trace", found.id], path=f"traces/{quote(found.id, safe='')}"),
    }


def _moment(page: PageRequest, at: datetime) -> str:
    """Return the time, with the day unless it is today."""
    is_today = clock(at, page.zone, "%Y-%m-%d") == clock(page.now, page.zone, "%Y-%m-%d")
    return clock(at, page.zone, "%H:%M:%S" if is_today else "%m-%d %H:%M:%S")


def _href(page: PageRequest, lane: TraceLane) -> str:
    """Return the link to the page of a lane's subject."""
    if lane.kind == "job":
        return page.link("jobs", job=lane.id)
    if lane.kind == "schedule":
        return page.link("schedule", key=lane.name)
    if lane.kind == "event":
        return page.link("event", id=lane.id)
    return page.link("deliveries", event=lane.id, channel=lane.name)
