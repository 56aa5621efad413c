"""Traces: all jobs, events and deliveries of one cause, ready to be drawn."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Query

from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.monitoring.traces import operations as trace
from sereno.monitoring.traces.operations import Trace, TraceLine
from sereno.server.api.paging import Page
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import not_found
from sereno.text import NAME_LIMIT

Number = Annotated[int | None, Query(ge=0, lt=2**63)]


def routes(context: ServerContext) -> Router:
    """`/traces`."""
    router = Router(context, "traces")

    @router.operation("GET", "/traces", role="viewer", of_tenants=True)
    async def find(
        who: Who,
        subject: Annotated[
            str | None, Query(min_length=1, max_length=NAME_LIMIT, description="Subject of an event: tender 1057-22.")
        ] = None,
        job: Number = None,
        delivery: Number = None,
    ) -> Page[TraceLine]:
        """The traces of events by their subject, of a job, or of a delivery: give one of the three."""
        return Page(await context.read(trace.find(subject=subject, job=job, delivery=delivery, tenant=who.tenant)))

    @router.operation("GET", "/traces/{trace_id:path}", role="viewer", of_tenants=True, also=[HTTPStatus.NOT_FOUND])
    async def show(trace_id: Annotated[str, Path(min_length=1, max_length=NAME_LIMIT)], who: Who) -> Trace:
        """Schedules, jobs with their attempts, events, and the outcome of deliveries; for a tenant, its own part only.

        Deliveries are counted by channel and state; a few hundred of them are listed. Rows without a trace are found as
        `job:7` or `event:7`.
        """
        return await context.read(_theirs(trace_id, who.tenant))

    return router


def _theirs(trace_id: str, tenant: str | None) -> Operation[Trace]:
    try:
        return (yield from trace.trace(trace_id, tenant=tenant))
    except ConfigurationError:
        raise not_found(f"trace {trace_id!r:.60}") from None
