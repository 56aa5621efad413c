"""The archive: its status, batches with their files, where a row is, and a run of both cycles.

Files hold the rows of all tenants, so no operation here is for users of one tenant.
"""

from dataclasses import dataclass
from datetime import date
from typing import Annotated

from fastapi import Depends, Path, Query

from sereno.access.identity import Principal
from sereno.archive import operations as archive
from sereno.archive import queries
from sereno.archive.operations import OFF, ArchiveStatus, BatchDetail
from sereno.archive.orders import EXPORT, MOVE
from sereno.archive.queries import ArchivedLocation, BatchLine, BatchState, DayLine
from sereno.database.statement import Operation
from sereno.errors import Refused
from sereno.jobs import operations as jobs
from sereno.jobs.job import EnqueuedJob, JobOptions
from sereno.server.api.paging import Page, Paging, page_of, paging
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import not_found
from sereno.text import NAME_LIMIT

# Seconds after which the export starts: it includes what the move has found by then; the rest waits for the next night.
EXPORT_AFTER = 30.0

BatchId = Annotated[int, Path(ge=0, lt=2**63)]
Kind = Annotated[str | None, Query(max_length=NAME_LIMIT, description="jobs, deliveries, …, or schema.table.")]


@dataclass
class StartedCycle:
    """The jobs of both cycles; a job that already waits or runs is returned instead of a new one."""

    move: int
    export: int


def routes(context: ServerContext) -> Router:
    """`/archive`."""
    router = Router(context, "archive")

    @router.operation("GET", "/archive", role="viewer")
    async def status() -> ArchiveStatus:
        """How many rows are archived, how many wait, what failed and why, and how far behind the archive is."""
        return await context.read(archive.status(context.settings))

    @router.operation("GET", "/archive/batches", role="viewer")
    async def list_batches(
        page: Annotated[Paging, Depends(paging)],
        kind: Kind = None,
        state: Annotated[BatchState | None, Query(description="`failed`: a file of it could not be verified.")] = None,
    ) -> Page[BatchLine]:
        """Batches, newest first."""

        def query(most: int, before: int | None) -> Operation[list[BatchLine]]:
            return queries.batches(kind, state, before, most)

        return await context.read(page_of(page, query, lambda line: line.id))

    @router.operation("GET", "/archive/batches/{batch_id}", role="viewer")
    async def show_batch(batch_id: BatchId) -> BatchDetail:
        """One batch with its files, their checksums and what went wrong with them."""
        found = await context.read(archive.batch(batch_id))
        if found is None:
            raise not_found(f"batch {batch_id}")
        return found

    _where(context, router)
    _run(context, router)
    return router


def _where(context: ServerContext, router: Router) -> None:
    @router.operation("GET", "/archive/days", role="viewer")
    async def list_days(
        first: Annotated[date, Query(description="First day, in UTC.")],
        last: Annotated[date, Query(description="Last day, included.")],
        kind: Kind = None,
    ) -> Page[DayLine]:
        """Which days (UTC) are archived, by kind: how many rows, and whether they are verified."""
        return Page(await context.read(archive.days(first, last, kind)))

    @router.operation("GET", "/archive/whereabouts", role="viewer")
    async def whereabouts(
        kind: Annotated[str, Query(max_length=NAME_LIMIT, description="jobs, deliveries, events, logs, …")],
        number: Annotated[int, Query(ge=0, lt=2**63, alias="id")],
    ) -> Page[ArchivedLocation]:
        """The batches and files in which a row with this id is or may be."""
        return Page(await context.read(archive.whereabouts(kind, number)))


def _run(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/archive/run", role="admin", status_code=202)
    async def run(who: Who) -> StartedCycle:
        """Run both cycles now, as jobs: old rows are moved, then exported to files. 409 when the archive is off."""
        client = context.app.archive
        if not client.is_on:
            raise Refused(OFF)
        client.register()
        move, export = await context.change(_enqueue(context, who))
        return StartedCycle(move.id, export.id)


def _enqueue(context: ServerContext, who: Principal) -> Operation[list[EnqueuedJob]]:
    wanted = [
        context.app.new_job(MOVE, b"{}", JobOptions(unique_key=f"{MOVE} now")),
        context.app.new_job(EXPORT, b"{}", JobOptions(unique_key=f"{EXPORT} now", delay=EXPORT_AFTER)),
    ]
    return jobs.enqueue(wanted, actor=who.actor)
