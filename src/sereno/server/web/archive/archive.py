"""The archive: which days are in tables, which in files, whether those are verified; details of a batch."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, get_args

from starlette.responses import Response

from sereno.archive import operations, queries
from sereno.archive.operations import ArchiveStatus, BatchDetail
from sereno.archive.queries import BatchState, DayLine
from sereno.database.statement import Operation
from sereno.monitoring import storage_queries
from sereno.monitoring.storage import StoredDays, stored_days
from sereno.server.shared.cache import Cached
from sereno.server.web import cursor
from sereno.server.web.archive import archive_text
from sereno.server.web.charts import day_squares
from sereno.server.web.command_examples import copies
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.sizes import size

WEEKS = 46
# Seconds; sizes change slowly.
FRESH = 30.0
ROWS = 20
# Days in the table: the next that leave.
NEXT = 7
STATES: tuple[BatchState, ...] = get_args(BatchState)
# The kind whose days are partitions; shown by default.
JOBS = "jobs"


@dataclass(frozen=True, slots=True)
class BatchDrawer:
    """One batch. `detail`: None if it does not exist, or with `is_busy` if the database did not respond."""

    number: str
    detail: BatchDetail | None = None
    is_busy: bool = False
    age: float = 0.0
    copies: dict[str, str] | None = None


def routes(pages: PageRoutes) -> None:
    """`/archive`."""

    @pages.at("/archive")
    async def archive(page: PageRequest) -> Response:
        settings = page.context.settings
        seen, status = await asyncio.gather(
            page.load("stored", partial(stored_days, settings.keep_history_days), fresh=FRESH),
            page.load("archive", partial(operations.status, settings)),
        )
        known = [each.kind for each in status.value.kinds if each.on or each.found] if status.value else []
        kind = page.query["kind"] if page.query.get("kind") in known else None
        state = next((each for each in STATES if each == page.query.get("state")), None)
        before = cursor.number(page.query.get("before"))
        calendar, found, opened = await asyncio.gather(
            page.load(("archive days", kind), partial(_calendar, kind or JOBS), fresh=FRESH),
            page.load(
                ("archive batches", kind, state, before), partial(queries.batches, kind, state, before, ROWS + 1)
            ),
            _opened(page),
        )
        is_on = bool(page.context.app.archive.is_on) or (status.value is not None and status.value.on)
        words = archive_text.ArchiveText(page, is_on=is_on, behind=_behind(status.value))
        lines = (found.value or [])[:ROWS]
        return page.render(
            "archive.html",
            seen=seen,
            pool=status,
            found=found,
            lines=lines,
            next_page=lines[-1].id if len(found.value or []) > ROWS else None,
            drawer=opened,
            sentence=words.sentence(seen.value, status.value),
            picture=words.picture(seen.value if kind in (None, JOBS) else None, calendar.value, WEEKS),
            calendar=calendar,
            next=seen.value.days[:NEXT] if seen.value else [],
            before=_before(seen.value) if kind in (None, JOBS) else 0,
            smaller=_smaller(seen.value, status.value),
            words=words,
            kind=kind,
            kinds=known,
            state=state,
            states=STATES,
            settings=settings,
            size=size,
            weeks=WEEKS,
            copies=copies(page, cli=["archive", "status"], path="archive"),
            list_copies=_list_copies(page, kind, state),
        )


def _calendar(kind: str) -> Operation[tuple[date, list[DayLine]]]:
    """Return the current day, and the archived days of a kind."""
    today = yield from storage_queries.today()
    return today, (yield from operations.days(day_squares.first_day(today, WEEKS), today, kind))


async def _opened(page: PageRequest) -> BatchDrawer | None:
    text = page.query.get("batch")
    if not text:
        return None
    number = cursor.number(text)
    if number is None:
        return BatchDrawer(text[:30])
    seen: Cached[BatchDetail | None] = await page.load(("archive batch", number), partial(operations.batch, number))
    if seen.value is None:
        return BatchDrawer(str(number), is_busy=seen.is_missing)
    made = copies(page, cli=["archive", "verify", "--batch", str(number)], path=f"archive/batches/{number}")
    return BatchDrawer(str(number), seen.value, age=max(0.0, seen.age), copies=made)


def _list_copies(page: PageRequest, kind: str | None, state: str | None) -> dict[str, str]:
    given = {name: value for name, value in (("kind", kind), ("state", state)) if value}
    cli = ["archive", "list", *(part for name, value in given.items() for part in (f"--{name}", value))]
    return copies(page, cli=cli, path="archive/batches", query=given)


def _behind(status: ArchiveStatus | None) -> float:
    """Return by how many seconds the archive is behind."""
    return 0.0 if status is None else max(status.lag, status.overdue)


def _before(found: StoredDays | None) -> int:
    """Return how many stored days are older than the chart."""
    if found is None:
        return 0
    start = day_squares.first_day(found.today, WEEKS)
    return sum(each.day < start for each in found.days)


def _smaller(found: StoredDays | None, status: ArchiveStatus | None) -> float | None:
    """Return about how many times smaller a job is in a file than in its table; None before both are known."""
    if found is None or status is None or not found.rows:
        return None
    filed: Sequence[Any] = [each.found for each in status.kinds if each.kind == JOBS and each.found]
    rows, length = sum(each.verified_rows for each in filed), sum(each.verified_bytes for each in filed)
    return (found.bytes / found.rows) / (length / rows) if rows and length else None
