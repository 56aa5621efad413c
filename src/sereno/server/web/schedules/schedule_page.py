"""One schedule: its rule, past and upcoming runs, and all actions."""

import asyncio
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import Response

from sereno.access.audit_queries import audit_lines
from sereno.access.masking import masked
from sereno.database.statement import Operation
from sereno.duration import duration_text
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules import operations as schedules
from sereno.schedules import queries
from sereno.schedules.bulk_write import exported
from sereno.schedules.operations import ScheduleDetail
from sereno.schedules.rows import ScheduleRow
from sereno.schedules.runs import counts_text
from sereno.server.shared.http_error import HTTPError, not_found
from sereno.server.shared.run_counts import counts_seen
from sereno.server.shared.tenant_scope import check_theirs
from sereno.server.web.charts.punctuality import PunctualityPoint, punctuality
from sereno.server.web.command_examples import copies
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.schedules.new_schedule import RULE
from sereno.server.web.schedules.rule_text import exact, rule_words, zone_of
from sereno.server.web.schedules.schedule_rows import (
    SHADES,
    dots,
    kind_of,
    late_of,
    next_of,
    run_words,
    state_of,
    took_of,
)
from sereno.server.web.times import clock, length
from sereno.text import NAME_LIMIT, check_text

FIRES = 60
DOTS = 30
TO_COME = 10
AUDIT = 20
# Fields that the form contains; the others are submitted unchanged.
FORM = {
    "key",
    "task",
    "args",
    "when",
    "queue",
    "priority",
    "tags",
    "missed",
    "missed_limit",
    "missed_window",
    "max_lateness",
    "overlap",
    "starts_at",
    "ends_at",
    "max_fires",
    "disable_after",
    "expires_after",
    "enabled",
    "note",
}


def routes(pages: PageRoutes) -> None:
    """`/schedule?key=…`."""

    @pages.at("/schedule", of_tenants=True)
    async def schedule(page: PageRequest) -> Response:
        key = page.query.get("key", "")
        if not 0 < len(key) <= NAME_LIMIT:
            raise HTTPError(HTTPStatus.NOT_FOUND, page.say("There is no such schedule."))
        check_text("key", key)
        seen, changes = await asyncio.gather(
            page.load(("schedule", key, page.who.tenant), partial(_detail, page, key)),
            _changes(page, key),
        )
        found = seen.value
        if found is None:
            words = page.say("The database is busy or unavailable. This page retries automatically.")
            return page.render("problem.html", HTTPStatus.SERVICE_UNAVAILABLE, title=key, words=words)
        row = found.schedule
        state = state_of(row, found.now)
        return page.render(
            "schedule.html",
            seen=seen,
            row=row,
            here_key=urlencode({"key": key}),
            words=rule_words(page, row.rule),
            its_jobs='by:"schedule:' + key.replace("\\", "\\\\").replace('"', '\\"') + '"',
            sentence=_sentence(page, found, state),
            state=state,
            shade=SHADES.get(state, "off"),
            origin=_origin(page, row),
            zone=zone_of(row.rule),
            upcoming=found.upcoming,
            dots=dots(page, found.fires[:DOTS]),
            fires=counts_seen(found.fires, page.who),
            counts_text=counts_text,
            late_of=late_of,
            took_of=took_of,
            picture=_picture(page, found),
            args=masked(row.args),
            is_known=row.task in page.context.app.registry.names,
            changes=changes,
            exact=exact,
            is_new=False,
            rule=RULE | row.rule,
            kind=row.rule.get("kind"),
            rest={name: value for name, value in exported(row).items() if name not in FORM},
            copies=copies(page, cli=["schedule", "show", row.key], path="schedules/-", query={"key": row.key}),
        )


def _detail(page: PageRequest, key: str) -> Operation[ScheduleDetail]:
    """Return the schedule; a missing one and one of another tenant give the same error."""
    what = f"schedule {key!r:.80}"
    there = yield from queries.page(ScheduleFilter(keys=[key]), 1)
    if not there:
        raise not_found(what)
    check_theirs(page.who, there[0].tenant, what)
    return (yield from schedules.show(key, fires=FIRES, upcoming=TO_COME))


async def _changes(page: PageRequest, key: str) -> Any:
    """Return who changed it; users of one tenant have no access to the audit."""
    if page.who.tenant is not None:
        return None
    query = partial(audit_lines, subject=f"schedule {key}", most=AUDIT)
    return await page.load(("schedule audit", key), query, fresh=5.0)


def _sentence(page: PageRequest, found: ScheduleDetail, state: str) -> str:
    """Return the headline: the rule, and when it runs next or why it does not."""
    row, say = found.schedule, page.say
    words = rule_words(page, row.rule)
    words = words[:1].upper() + words[1:]
    at = next_of(row, state) or (found.upcoming[0].at if found.upcoming and state == "enabled" else None)
    if at is not None:
        seconds = (at - page.now).total_seconds()
        if seconds <= 0:
            return say("%(rule)s; due now.", rule=words)
        return say("%(rule)s; next in %(time)s.", rule=words, time=duration_text(seconds))
    if state == "paused" and row.paused_until is not None:
        return say("%(rule)s; paused until %(at)s.", rule=words, at=_full(page, row.paused_until))
    match state:
        case "paused":
            return say("%(rule)s; paused until it is resumed.", rule=words)
        case "disabled":
            return say("%(rule)s; disabled until it is resumed.", rule=words)
        case "parked":
            return say("%(rule)s; parked, because its definition is invalid.", rule=words)
        case "finished":
            return say("%(rule)s; finished.", rule=words)
        case _:
            return say("%(rule)s; the next counts from the end of the current run.", rule=words)


def _full(page: PageRequest, at: datetime) -> str:
    return clock(at, page.zone, "%Y-%m-%d %H:%M")


def _origin(page: PageRequest, row: ScheduleRow) -> str:
    if row.declared_by is not None:
        return page.say(
            "Declared by the code of %(service)s: the next deploy resets it to the code.",
            service=row.declared_by,
        )
    return page.say("Created at run time: no deploy changes it.")


def _picture(page: PageRequest, found: ScheduleDetail) -> Markup | None:
    """Draw how late each of the last runs began, and which never ran."""
    points = []
    for run in found.fires:
        if run.planned_at is None or (run.state in ("waiting", "scheduled", "ready") and run.started_at is None):
            continue
        late = late_of(run)
        words = run_words(page, run)
        if late is not None:
            words += " · " + page.say("%(time)s late", time=length(late))
        points.append(PunctualityPoint(run.planned_at, late, kind_of(run), words))
    if not points:
        return None
    ends = (clock(min(each.at for each in points), page.zone, "%a %H:%M"), clock(page.now, page.zone, "%a %H:%M"))
    return punctuality(points, page.say("How late each run began"), ends)
