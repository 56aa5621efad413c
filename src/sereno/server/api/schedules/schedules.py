"""Schedules: list, show, upcoming and past runs, preview of a rule, export. Changes are in other modules here."""

import asyncio
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from sereno.access.identity import Principal
from sereno.access.masking import masked
from sereno.database.clock import clock
from sereno.database.json_values import encoder
from sereno.database.statement import Operation
from sereno.duration import seconds
from sereno.errors import InvalidArguments
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.job import check_date
from sereno.schedules import operations as schedules
from sereno.schedules.bulk_write import exported
from sereno.schedules.heatmap import Heatmap, heatmap
from sereno.schedules.lists import SchedulePage, in_words, list_schedules, upcoming_fires
from sereno.schedules.rows import ScheduleRow
from sereno.schedules.rules.preview import preview
from sereno.schedules.rules.when import decode, describe
from sereno.schedules.runs import last_job
from sereno.schedules.schedule import shift
from sereno.schedules.search_fields import FIRE_FIELDS
from sereno.search.sql_terms import SearchParams
from sereno.search.syntax import LONGEST
from sereno.server.api.paging import MOST
from sereno.server.api.responses import json_response, response_model
from sereno.server.api.router import Router, Who
from sereno.server.api.schedules import changes as schedule_changes
from sereno.server.api.schedules import runs as schedule_runs
from sereno.server.api.schedules import writing
from sereno.server.api.schedules.selection import Key, Text, Wanted, of_theirs, theirs
from sereno.server.api.schedules.views import (
    Fires,
    LastJob,
    NextRuns,
    ScheduleDefinitions,
    ScheduleDetailResponse,
    SchedulePreview,
    Schedules,
    shown,
)
from sereno.server.api.threads import SerialThread
from sereno.server.shared.context import ServerContext
from sereno.server.shared.run_counts import counts_seen
from sereno.server.shared.search_access import searched
from sereno.text import NAME_LIMIT, check_text
from sereno.zones import moment

MOST_INSTANTS = 1000
MOST_DEFINITIONS = 1000
# Of an export: schedules per query, and bytes of arguments after which a page ends.
AT_ONCE, LARGEST_PAGE = 50, 8 * 1024 * 1024
# Seconds, as on the command line: with more, cells of five minutes are too many to draw.
SHORTEST_SPAN, LONGEST_SPAN = 300.0, 31 * 86400.0

After = Annotated[str, Query(max_length=NAME_LIMIT, description="The `next` of the previous page.")]
Many = Annotated[int, Query(ge=0, le=MOST_INSTANTS)]


class SchedulePreviewBody(BaseModel):
    """A rule as in a definition, such as {"kind": "daily", "at": "03:00", "tz": "Europe/Riga"}."""

    when: dict[str, Any]
    n: int = Field(5, ge=1, le=MOST_INSTANTS)
    after: AwareDatetime | None = Field(None, description="From then on; without it, from now on.")
    key: Text | None = Field(None, description="Apply the spread offset of the schedule with this key.")


def routes(context: ServerContext) -> Router:
    """`/schedules`."""
    router = Router(context, "schedules")
    in_thread = SerialThread(context)
    _many(context, router, in_thread)
    _rule(context, router)
    writing.routes(context, router)
    schedule_changes.routes(context, router)
    schedule_runs.routes(context, router, in_thread)
    # Last: a key may contain slashes, so its path matches everything that is left.
    _one(context, router)
    return router


def _many(context: ServerContext, router: Router, in_thread: SerialThread) -> None:
    @router.operation(
        "GET",
        "/schedules",
        role="viewer",
        of_tenants=True,
        also=[HTTPStatus.NOT_FOUND],
        response_model=response_model(Schedules),
    )
    async def list_them(
        who: Who,
        wanted: Wanted,
        limit: Annotated[int, Query(ge=1, le=MOST, description="Maximum number of items.")] = 50,
        after: After = "",
        soonest: Annotated[bool, Query(description="Ordered by next run; one page only.")] = False,
    ) -> Response:
        """Schedules with their last and next run, by key or by next run."""
        if soonest and after:
            raise InvalidArguments("after continues a list by key: it cannot be combined with soonest")
        check_text("after", after or None)
        query = list_schedules(of_theirs(wanted, who), limit=limit, after=after, soonest=soonest)
        page = await context.read(query)
        return json_response(Schedules([shown(row, who) for row in page.items], page.now, page.next))

    @router.operation("GET", "/schedules/heatmap", role="viewer", of_tenants=True, also=[HTTPStatus.NOT_FOUND])
    async def draw_heatmap(
        who: Who,
        wanted: Wanted,
        span: Annotated[str, Query(max_length=40, description='Such as "24h" or "7d"; at most 31 days.')] = "24h",
    ) -> Heatmap:
        """How many runs are planned, by five minutes, if nothing changes."""
        return await in_thread.read(heatmap(of_theirs(wanted, who), _span(span)))

    @router.operation("GET", "/schedules/export", role="viewer", of_tenants=True, also=[HTTPStatus.NOT_FOUND])
    async def export(
        who: Who,
        wanted: Wanted,
        limit: Annotated[int, Query(ge=1, le=MOST_DEFINITIONS, description="Maximum of items.")] = MOST_DEFINITIONS,
        after: After = "",
    ) -> ScheduleDefinitions:
        """Definitions by key, without their history.

        Operators get unmasked arguments, because an export can be imported again. Viewers get likely secrets masked.
        """
        check_text("after", after or None)
        page = await context.read(_exported(of_theirs(wanted, who), limit, after))
        return ScheduleDefinitions([_definition(row, who) for row in page.items], page.next)


def _exported(wanted: ScheduleFilter, limit: int, after: str) -> Operation[SchedulePage]:
    """Return a page that ends where it gets too large, a few schedules at a time: each may have a megabyte."""
    items: list[ScheduleRow] = []
    size = 0
    while True:
        some = min(limit - len(items), AT_ONCE)
        page = yield from list_schedules(wanted, limit=some, after=after, whole=True)
        items += page.items
        size += sum(len(encoder.encode(row.args)) for row in page.items)
        if page.next is None or len(items) >= limit or size > LARGEST_PAGE:
            return SchedulePage(items, page.now, page.next)
        after = page.next


def _rule(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/schedules/preview", role="viewer", of_tenants=True)
    async def preview_rule(body: SchedulePreviewBody) -> SchedulePreview:
        """When a rule would run, in its own time zone, with a note at changes of the clock. Nothing is stored."""
        when = decode(body.when)
        check_text("key", body.key)
        check_date("after", body.after)
        after: datetime = body.after or moment(await context.read(clock()))
        place = shift(body.key, when) if body.key else 0
        found = await asyncio.to_thread(preview, when, after, body.n, place)
        return SchedulePreview(describe(when), schedules.decode_object(when), upcoming_fires(found))


def _one(context: ServerContext, router: Router) -> None:
    @router.operation("GET", "/schedules/{key:path}/next", role="viewer", of_tenants=True, also=[HTTPStatus.NOT_FOUND])
    async def next_runs(key: Key, who: Who, n: Many = 5) -> NextRuns:
        """When it runs next, with a note at changes of the clock."""
        found = await context.read(_shown(key, who, fires=0, upcoming=n))
        row = found.schedule
        return NextRuns(row.key, in_words(row.rule), row.state, row.paused_until, upcoming_fires(found.upcoming))

    @router.operation(
        "GET",
        "/schedules/{key:path}/fires",
        role="viewer",
        of_tenants=True,
        also=[HTTPStatus.NOT_FOUND],
        response_model=response_model(Fires),
    )
    async def fires(
        key: Key,
        who: Who,
        limit: Many = 50,
        q: Annotated[str | None, Query(max_length=LONGEST, description="A search: state:dead planned:1d..")] = None,
    ) -> Response:
        """Its newest instants: the jobs that they created and their outcome, or why there are none.

        A search covers the newest thousand.
        """
        search_params = searched(q, FIRE_FIELDS, who)
        found = await context.read(_shown(key, who, fires=limit, upcoming=0, search_params=search_params))
        return json_response(Fires(counts_seen(found.fires, who)))

    @router.operation(
        "GET",
        "/schedules/{key:path}",
        role="viewer",
        of_tenants=True,
        also=[HTTPStatus.NOT_FOUND],
        response_model=response_model(ScheduleDetailResponse),
    )
    async def show(key: Key, who: Who, fires: Many = 10, n: Many = 5) -> Response:
        """One schedule, with its last `fires` and its next `n` runs."""

        def operation() -> Operation[ScheduleDetailResponse]:
            found = yield from _shown(key, who, fires=fires, upcoming=n)
            last = yield from _last_job(found, who)
            upcoming = upcoming_fires(found.upcoming)
            runs = counts_seen(found.fires, who)
            return ScheduleDetailResponse(shown(found.schedule, who), last, runs, upcoming, found.now)

        return json_response(await context.read(operation()))


def _shown(
    key: str, who: Principal, *, fires: int, upcoming: int, search_params: SearchParams | None = None
) -> Operation[schedules.ScheduleDetail]:
    yield from theirs(key, who)
    return (yield from schedules.show(key, fires=fires, upcoming=upcoming, search_params=search_params))


def _last_job(found: schedules.ScheduleDetail, who: Principal) -> Operation[LastJob | None]:
    """Return the job of the last run; None if there is none, or if it belongs to another tenant."""
    last = yield from last_job(found)
    if last is None or who.tenant not in (None, last.job.tenant):
        return None
    job = last.job
    return LastJob(job.id, job.state, job.attempt, job.run_at, job.started_at, job.finished_at)


def _definition(row: ScheduleRow, who: Principal) -> dict[str, Any]:
    found = exported(row)
    if "args" in found and not who.may("operator"):
        found["args"] = masked(found["args"])
    return found


def _span(text: str) -> float:
    length = seconds(text)
    if not SHORTEST_SPAN <= length <= LONGEST_SPAN:
        raise InvalidArguments(f"span {text!r:.40} is out of range: 5 minutes to 31 days")
    return length
